"""The parts of a round fitted on development families: what an AR step, a draft forward, a verification cost.

Times are seconds. Every development family is fitted alone, and every context of it: no part is assumed to be linear
in anything that was measured. Between contexts, and beyond them, a part follows the line through the two nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .costmodel import Counts
from .mechanisms import cells
from .records import validate
from .stats import t_half_width
from .study import Study, shared_columns

# pandas' types say that df[column] may be almost anything; in this module a table is just a table.
Table = Any
LEVEL = 0.95
_FEWEST = 3  # values that get an interval


@dataclass(frozen=True)
class CostsAt:
    """One development family's costs at one context.

    A round of k proposals takes ``draft`` k + ``draft_round`` for the draft, one verification of its block, and
    ``overhead`` + ``overhead_row`` k for acceptance and what is around it. ``blocks``: rows -> seconds of a
    verification; a block of one row is an AR step.
    """

    ar: float
    draft: float
    draft_round: float
    blocks: dict[float, float]
    repair: float
    overhead: float
    overhead_row: float


@dataclass(frozen=True)
class Costs:
    """Fitted costs of one development family, by context in tokens."""

    family: str
    at: dict[int, CostsAt]

    def _of(self, part: Callable[[CostsAt], float], context: float) -> float:
        return along({c: part(here) for c, here in self.at.items()}, context)

    def ar_step(self, context: float) -> float:
        """Seconds of one AR step at this context."""
        return self._of(lambda here: here.ar, context)

    def draft_forward(self, context: float, k: int) -> float:
        """Seconds of one draft forward, the mean of a round of k."""
        return self._of(lambda here: here.draft + here.draft_round / k, context)

    def verify(self, rows: float, context: float) -> float:
        """Seconds of one target forward over a block of ``rows``."""
        return self._of(lambda here: along(here.blocks, rows), context)

    def repair_forward(self, context: float) -> float:
        """Seconds of the target's forward over a replacement."""
        return self._of(lambda here: here.repair, context)

    def overhead(self, context: float, k: int) -> float:
        """Seconds per round of k proposals outside the models."""
        return self._of(lambda here: here.overhead + here.overhead_row * k, context)

    def spec_seconds(self, counts: Counts, context: float) -> float:
        """The time of a run with these counts."""
        drafted = counts.draft_forwards > 0
        return (
            counts.draft_forwards * self._of(lambda here: here.draft, context)
            + drafted * counts.rounds * self._of(lambda here: here.draft_round, context)
            + sum(n * self.verify(rows, context) for rows, n in counts.blocks.items())
            + counts.repairs * self.repair_forward(context)
            + counts.rounds * self._of(lambda here: here.overhead, context)
            + counts.proposed * self._of(lambda here: here.overhead_row, context)
        )


def along(known: dict[Any, float], x: float) -> float:
    """Linear between the two known points nearest to ``x``, continued beyond the ends; a single point is a constant."""
    points = sorted(known)
    if len(points) == 1:
        return known[points[0]]
    right = min(max(int(np.searchsorted(points, x)), 1), len(points) - 1)
    low, high = points[right - 1], points[right]
    return known[low] + (known[high] - known[low]) * (x - low) / (high - low)


def fit(costs: Table) -> list[Costs]:
    """Costs per development family. ``costs``: schema "costs".

    A family that lacks a context of the others (its job found too little memory, say) would be drawn out to it: it is
    left out while there is one that has all.
    """
    parts = {str(family): part for family, part in costs.groupby("family", sort=False)}
    every = costs["context_tokens"].nunique()
    whole = {family: part for family, part in parts.items() if part["context_tokens"].nunique() == every}
    return [
        Costs(family, {int(c): _fit_at(here) for c, here in part.groupby("context_tokens", sort=False)})
        for family, part in (whole or parts).items()
    ]


def _fit_at(runs: Table) -> CostsAt:
    # Medians over repeats, as R is measured: a run that something disturbed does not move the fit.
    rows = runs.groupby(["variant", "formulation"], sort=False, dropna=False).median(numeric_only=True)
    rows = rows.reset_index()
    plain, free = rows[rows["variant"] == "ar"], rows[rows["formulation"] == "repair-free"]
    reference = rows[rows["formulation"] == "reference"]
    ar = float((plain["decode_s"] / (plain["new_tokens"] - 1)).iloc[0])
    draft, draft_round = _solve(free[["draft_calls_n", "rounds_n"]], free["draft_s"])
    around = free["accept_s"] + free["other_s"] + free["repair_s"]
    overhead, overhead_row = _solve(free[["rounds_n", "proposed_tokens"]], around)
    mean_rows = free["block_rows_tokens"] / free["target_calls_n"]
    blocks = dict(zip(mean_rows, free["verify_s"] / free["target_calls_n"], strict=True))
    # A reference round ends with a draft forward of its own (the catch-up), but not the last one.
    catch_ups = (reference["rounds_n"] - 1) * draft
    repairs = reference["target_calls_n"] - reference["rounds_n"]
    per_repair = ((reference["repair_s"] - catch_ups) / repairs)[repairs > 0]
    repair = float(per_repair.mean()) if len(per_repair) else 0.0
    return CostsAt(ar, draft, draft_round, {1.0: ar, **blocks}, repair, overhead, overhead_row)


def _solve(counts: Table, seconds: Table) -> tuple[float, float]:
    """Least squares: seconds = a x first count + b x second count. The shortest answer where one run cannot tell."""
    a, b = np.linalg.lstsq(counts.to_numpy(float), seconds.to_numpy(float), rcond=None)[0]
    return float(a), float(b)


def in_sample_residuals(costs: Table) -> pd.Series:
    """Measured / fitted - 1 of R for the development runs themselves, from their own counts."""
    found = []
    for one in fit(costs):
        part: Any = costs[costs["family"] == one.family]
        for row in part[part["formulation"] == "repair-free"].to_dict("records"):
            context, calls = row["context_tokens"], row["target_calls_n"]
            ar = part[(part["variant"] == "ar") & (part["context_tokens"] == context)]["decode_s"].median()
            own = Counts(
                row["new_tokens"], row["rounds_n"], row["proposed_tokens"], row["accepted_tokens"],
                row["rejections_n"], row["draft_calls_n"], 0, {row["block_rows_tokens"] / calls: calls},
            )  # fmt: skip
            fitted_R = (row["new_tokens"] - 1) * one.ar_step(context) / one.spec_seconds(own, context)
            found.append(ar / row["decode_s"] / fitted_R - 1)
    return pd.Series(found, name="residual")


def fit_table(study: Study, costs: Table) -> pd.DataFrame:
    """Every component at every context, with its interval over development families (schema "cost-fit").

    In seconds and in AR steps. Verification per k, over the k + 1 rows of the repair-free formulation; draft forward
    and overhead are those of rounds of the profile's k. Rows of a context beyond the development texts are marked
    ``extrapolated``.
    """
    fitted, rows = fit(costs), []
    for context in dict.fromkeys(context for context, _ in cells(study.profile)):
        for name, k, cost in _parts(context, study.profile.k, int(costs["k"].max())):
            (mean_s, low_s, high_s) = t_interval(cost(one) for one in fitted)
            (mean, low, high) = t_interval(cost(one) / one.ar_step(context) for one in fitted)
            rows.append(
                shared_columns(study)
                | {
                    "context_tokens": context, "component": name, "k": k, "families_n": len(fitted),
                    "cost_s": mean_s, "cost_low_s": low_s, "cost_high_s": high_s,
                    "steps": mean, "steps_low": low, "steps_high": high,
                    "extrapolated": context > int(costs["context_tokens"].max()),
                }
            )  # fmt: skip
    return validate(pd.DataFrame(rows), "cost-fit")


def _parts(context: int, k: int, most: int) -> Sequence[tuple[str, int | None, Callable[[Costs], float]]]:
    return [
        ("ar step", None, lambda c: c.ar_step(context)),
        ("draft forward", None, lambda c: c.draft_forward(context, k)),
        *(("verification", k, lambda c, k=k: c.verify(k + 1, context)) for k in range(1, most + 1)),
        ("repair", None, lambda c: c.repair_forward(context)),
        ("round overhead", None, lambda c: c.overhead(context, k)),
    ]


def t_interval(values: Iterable[float], level: float = LEVEL) -> tuple[float, float | None, float | None]:
    """Mean and Student's t interval; none from fewer than three values: from two it is wider than what is measured."""
    found = np.asarray(list(values), dtype=float)
    if len(found) < _FEWEST:
        return float(found.mean()), None, None
    half = t_half_width(found, level)
    return float(found.mean()), float(found.mean() - half), float(found.mean() + half)
