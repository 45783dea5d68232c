"""The cost line fitted and put to the test: stage costs from development families, R of held-out cells predicted.

Times are seconds. A component is linear in the context L (tokens / 1024), verification also in the block's rows:
AR step a0 + a1 L, draft forward d0 + d1 L, verification v0 + v1 M + v2 L + v3 M L, repair r0 + r1 L, and an overhead
h per round. Each development family is fitted alone; the spread over them gives the intervals.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from .costmodel import Counts, best_k, break_even_alpha, counts_from_trace
from .errors import InvalidSetting
from .files import canonical_json, sha256_text
from .jobs import finished, write_job
from .measure import Say, Study, run_from_store, shared_columns, sharing, where_it_fits
from .mechanisms import Cell, cell_spec, cells, chosen_variants, traces_of
from .records import validate
from .variants import AR, Variant, passes_of

# pandas' types say that df[column] may be almost anything; in this module a table is just a table.
Table = Any
COMPONENTS = ("ar step", "draft forward", "verification", "repair", "round overhead")
LEVEL = 0.95
MOST_K = 8  # fitted, and so the largest k that is asked about
FEW_KS = (1, 2, 4, 8)
# Of the development families: in a quick look, and where acceptance is scripted (times do not depend on the text then).
FEW_FAMILIES = 2


def fitting_variants(study: Study) -> list[Variant]:
    """AR, the repair-free engine at k = 1 to 8, and the reference engine for what a repair costs.

    A captured mode has no repair to time. An eager run on random weights, which accept nothing by themselves, would
    take as many rounds as tokens: there all is accepted, at four values of k, and the repair is timed at k = 1.
    """
    p = study.profile
    many_rounds = p.scripted is not None and not p.captured
    engine = Variant(
        "repair-free", bonus=True, formulation="repair-free", rule="all" if many_rounds else "greedy"
    )
    ks = [k for k in (FEW_KS if many_rounds else range(1, MOST_K + 1)) if k < p.new_tokens]
    fitted = [AR, *(dataclasses.replace(engine, name=f"repair-free, k = {k}", k=k) for k in ks)]
    return fitted if p.captured else [*fitted, Variant("reference", k=1 if many_rounds else p.k)]


def costs_table(study: Study, say: Say = lambda line: None) -> pd.DataFrame:
    """Instrumented runs of the development families (schema "costs"); never a held-out one."""
    contexts = dict.fromkeys(context for context, _ in cells(study.profile))
    quick = study.profile.repeats < study.design.analysis.interval.min_repeats
    few = FEW_FAMILIES if quick or study.profile.scripted else None
    planned: list[Cell] = [(c, f) for c in contexts for f in study.design.measurement.development[:few]]
    assert study.profile.mechanisms
    repeats = study.profile.mechanisms.repeats_in("cost-model")
    variants = fitting_variants(study)
    by_name = {v.name: v for v in variants}
    rows = []

    def measured(cell: Cell) -> list[dict[str, Any]]:
        spec = cell_spec(
            together, "costs", "costs", cell, variants=[dataclasses.asdict(v) for v in variants],
            repeats=repeats,
        )  # fmt: skip
        return run_from_store(together, spec, cell[0])["rows"]

    with sharing(study) as together:
        found = where_it_fits(planned, measured, "costs", say)
    for cell, timed in found.items():
        shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1]}
        for row in timed:
            v = by_name[row["variant"]]
            plain = v.proposer == "none"
            settings = {"k": None if plain else v.k, "formulation": None if plain else v.formulation}
            rows.append(shared | settings | {"bonus": None if plain else v.bonus} | row)
    kept = [name for name in _COST_COLUMNS if name in rows[0]]
    return validate(pd.DataFrame(rows, columns=kept), "costs")


_COST_COLUMNS = (
    "profile", "design_hash", "context_tokens", "family", "variant", "k", "bonus", "formulation", "repeat",
    "new_tokens", "decode_s", "rounds_n", "proposed_tokens", "accepted_tokens", "rejections_n", "target_calls_n",
    "draft_calls_n", "block_rows_tokens", "draft_s", "verify_s", "accept_s", "repair_s", "other_s",
)  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Fitted parameters of one development family."""

    family: str
    ar: np.ndarray  # [2]
    draft: np.ndarray  # [2]
    verification: np.ndarray  # [4]
    repair: np.ndarray  # [2]
    overhead: float

    def ar_step(self, context: float) -> float:
        """Seconds of one AR step at this context."""
        return float(self.ar @ _line(context))

    def draft_forward(self, context: float) -> float:
        """Seconds of one draft forward."""
        return float(self.draft @ _line(context))

    def verify(self, rows: float, context: float) -> float:
        """Seconds of one target forward over a block of ``rows``."""
        return float(self.verification @ _plane(rows, context))

    def repair_forward(self, context: float) -> float:
        """Seconds of the target's forward over a replacement."""
        return float(self.repair @ _line(context))

    def spec_seconds(self, counts: Counts, context: float) -> float:
        """The time of a run with these counts."""
        return (
            counts.draft_forwards * self.draft_forward(context)
            + sum(n * self.verify(rows, context) for rows, n in counts.blocks.items())
            + counts.repairs * self.repair_forward(context)
            + counts.rounds * self.overhead
        )


def _line(context: float) -> np.ndarray:
    return np.array([1.0, context / 1024])


def _plane(rows: float, context: float) -> np.ndarray:
    return np.array([1.0, rows, context / 1024, rows * context / 1024])


def fit(costs: Table) -> list[Costs]:
    """Least squares per development family. ``costs``: schema "costs".

    A family that lacks a context of the others (its job found too little memory, say) would be drawn out to it: it is
    left out while there is one that has all.
    """
    parts = {str(family): part for family, part in costs.groupby("family", sort=False)}
    every = costs["context_tokens"].nunique()
    whole = {family: part for family, part in parts.items() if part["context_tokens"].nunique() == every}
    return [_fit_family(family, part) for family, part in (whole or parts).items()]


def _fit_family(family: str, runs: Any) -> Costs:
    # Medians over repeats, as R is measured: a run that something disturbed does not move the line.
    kinds = ["context_tokens", "variant", "formulation"]
    rows = runs.groupby(kinds, sort=False, dropna=False).median(numeric_only=True).reset_index()
    ar = rows[rows["variant"] == "ar"]
    free = rows[rows["formulation"] == "repair-free"]
    reference = rows[rows["formulation"] == "reference"]
    draft = _solve(free, _line_of, free["draft_s"] / free["draft_calls_n"])
    mean_rows = free["block_rows_tokens"] / free["target_calls_n"]
    design = [_plane(m, c) for m, c in zip(mean_rows, free["context_tokens"], strict=True)]
    verification = np.linalg.lstsq(np.array(design), free["verify_s"] / free["target_calls_n"], rcond=None)[0]
    # A reference round ends with a draft forward of its own (the catch-up), but not the last one.
    catch_ups = (reference["rounds_n"] - 1) * [float(draft @ _line(c)) for c in reference["context_tokens"]]
    repairs = reference["target_calls_n"] - reference["rounds_n"]
    repairing = reference[repairs > 0]
    per_repair = ((reference["repair_s"] - catch_ups) / repairs)[repairs > 0]
    return Costs(
        family,
        ar=_solve(ar, _line_of, ar["decode_s"] / (ar["new_tokens"] - 1)),
        draft=draft,
        verification=verification,
        repair=_solve(repairing, _line_of, per_repair) if len(repairing) else np.zeros(2),
        overhead=float(((free["accept_s"] + free["other_s"] + free["repair_s"]) / free["rounds_n"]).mean()),
    )


def _line_of(row: Any) -> np.ndarray:
    return _line(row["context_tokens"])


def _solve(rows: Any, design: Callable[[Any], np.ndarray], values: Any) -> np.ndarray:
    matrix = np.array([design(row) for row in rows.to_dict("records")])
    return np.linalg.lstsq(matrix, np.asarray(values, dtype=float), rcond=None)[0]


def fit_table(study: Study, costs: Table) -> pd.DataFrame:
    """Every component at every context, with its interval over development families (schema "cost-fit").

    In seconds and in AR steps. Verification per k, over the k + 1 rows of the repair-free formulation. Rows of a
    context beyond the development texts are marked ``extrapolated``.
    """
    fitted, rows = fit(costs), []
    for context in dict.fromkeys(context for context, _ in cells(study.profile)):
        for name, k, cost in _parts(context, int(costs["k"].max())):
            seconds = [cost(one) for one in fitted]
            steps = [cost(one) / one.ar_step(context) for one in fitted]
            (mean_s, low_s, high_s), (mean, low, high) = t_interval(seconds), t_interval(steps)
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


def _parts(context: int, most: int) -> list[tuple[str, int | None, Callable[[Costs], float]]]:
    return [
        ("ar step", None, lambda c: c.ar_step(context)),
        ("draft forward", None, lambda c: c.draft_forward(context)),
        *(("verification", k, lambda c, k=k: c.verify(k + 1, context)) for k in range(1, most + 1)),
        ("repair", None, lambda c: c.repair_forward(context)),
        ("round overhead", None, lambda c: c.overhead),
    ]


def t_interval(values: Iterable[float], level: float = LEVEL) -> tuple[float, float | None, float | None]:
    """Mean and Student's t interval; no interval from a single value."""
    found = np.asarray(list(values), dtype=float)
    if len(found) < 2:
        return float(found.mean()), None, None
    half = scipy_stats.t.ppf((1 + level) / 2, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found))
    return float(found.mean()), float(found.mean() - half), float(found.mean() + half)


def predictions_table(study: Study, costs: Table, phase: str = "cost-model") -> tuple[pd.DataFrame, str]:
    """R of every held-out cell and variant before it is measured (schema "predictions"), and the prediction's hash.

    It is written once, as an immutable file beside the jobs; a second call reads it, also when costs were measured anew
    meanwhile. Inputs: the fit on development families, and each cell's trace, which fixes the counts.
    """
    fitted, rows = fit(costs), []
    variants = [v for v in chosen_variants(study.profile, phase) if v.proposer != "none"]
    spec = study.spec(
        "predictions", f"predictions-{phase}", variants=[dataclasses.asdict(v) for v in variants],
        cells=[list(cell) for cell in cells(study.profile)], costs=sha256_text(costs.to_csv(index=False)),
    )  # fmt: skip
    path = study.folder / "jobs" / f"{spec['name']}.json"
    known = finished(path, spec, keep_engine=study.profile.committed)
    if known is None:
        longest = int(costs["context_tokens"].max())
        for cell, known_trace in traces_of(study).items():
            passes = known_trace["passes"]
            rows += [_predicted(study, fitted, cell, v, passes, longest) for v in variants]
        known = {"rows": rows}
        write_job(path, spec, known)
    digest = sha256_text(canonical_json(known["rows"]))
    return validate(
        pd.DataFrame([shared_columns(study) | row for row in known["rows"]]), "predictions"
    ), digest


def _predicted(
    study: Study, fitted: list[Costs], cell: Cell, v: Variant, passes: list[bool], longest: int
) -> dict[str, Any]:
    context, family = cell
    assert v.k
    bits = passes_of(v, passes, family, context)
    counts = counts_from_trace(bits, v.k, study.profile.new_tokens, v.formulation, v.bonus)
    if v.proposer == "free":
        counts = dataclasses.replace(counts, draft_forwards=0)
    logs, ar_s, spec_s = [], [], []
    for one in fitted:
        ar_s.append((study.profile.new_tokens - 1) * one.ar_step(context))
        spec_s.append(one.spec_seconds(counts, context))
        logs.append(math.log(ar_s[-1] / spec_s[-1]))
    mean, low, high = t_interval(logs)
    return {
        "context_tokens": context, "family": family, "variant": v.name, "label": v.label, "k": v.k,
        "bonus": v.bonus, "formulation": v.formulation, "pass_share": sum(bits) / len(bits),
        "rounds_n": counts.rounds, "draft_calls_n": counts.draft_forwards, "target_calls_n": counts.target_calls,
        "ar_predicted_s": float(np.mean(ar_s)), "spec_predicted_s": float(np.mean(spec_s)),
        "R_predicted": math.exp(mean),
        "R_predicted_low": None if low is None else math.exp(low),
        "R_predicted_high": None if high is None else math.exp(high),
        "extrapolated": context > longest,
    }  # fmt: skip


def residuals_table(predictions: Table, ratios: Table) -> pd.DataFrame:
    """Predicted and measured R side by side (schema "residuals"). ``residual`` = measured / predicted - 1."""
    keys = ["profile", "design_hash", "context_tokens", "family", "variant"]
    taken = [
        "R",
        "R_low",
        "R_high",
        "ar_median_s",
        "spec_median_s",
        "rounds_n",
        "disturbed",
        "others_cpu_share",
    ]
    measured = ratios[[*keys, *taken]].rename(columns={"R": "R_measured", "rounds_n": "rounds_measured_n"})
    joined = predictions.merge(measured, on=keys, validate="one_to_one")
    if len(joined) != len(predictions):
        raise InvalidSetting(
            f"{len(predictions) - len(joined)} predictions have no measurement.",
            expected="one measured variant per prediction",
            remedy="run the phase cost-model again",
        )
    joined["residual"] = joined["R_measured"] / joined["R_predicted"] - 1
    joined["ar_residual"] = joined["ar_median_s"] / joined["ar_predicted_s"] - 1
    joined["spec_residual"] = joined["spec_median_s"] / joined["spec_predicted_s"] - 1
    joined["same_rounds"] = joined["rounds_measured_n"] == joined["rounds_n"]
    return validate(joined, "residuals")


def in_sample_residuals(costs: Table) -> pd.Series:
    """Measured / fitted - 1 of R for the development runs themselves, from their own counts."""
    found = []
    for one in fit(costs):
        part: Any = costs[costs["family"] == one.family]
        for row in part[part["formulation"] == "repair-free"].to_dict("records"):
            context, calls = row["context_tokens"], row["target_calls_n"]
            ar = part[(part["variant"] == "ar") & (part["context_tokens"] == context)]["decode_s"].median()
            fitted = (
                row["draft_calls_n"] * one.draft_forward(context)
                + calls * one.verify(row["block_rows_tokens"] / calls, context)
                + row["rounds_n"] * one.overhead
            )
            fitted_R = (row["new_tokens"] - 1) * one.ar_step(context) / fitted
            found.append(ar / row["decode_s"] / fitted_R - 1)
    return pd.Series(found, name="residual")


def break_even_table(study: Study, costs: Table, traces: Table) -> pd.DataFrame:
    """Break-even alpha at the design's k, and the best k at the traces' mean alpha (schema "break-even")."""
    fitted, rows = fit(costs), []
    k, new = study.profile.k, study.profile.new_tokens
    alphas: Any = traces.groupby("context_tokens", sort=False)["pass_share"].mean()
    forms = (("reference", False), ("repair-free", True))
    for context, alpha in alphas.items():
        for formulation, bonus in forms[study.profile.captured :]:
            settings: dict[str, Any] = {
                "c": float(np.mean([c.draft_forward(context) / c.ar_step(context) for c in fitted])),
                "v": lambda m, x=context: float(np.mean([c.verify(m, x) / c.ar_step(x) for c in fitted])),
                "formulation": formulation, "bonus": bonus, "new_tokens": new,
                "repair": float(np.mean([c.repair_forward(context) / c.ar_step(context) for c in fitted])),
                "overhead": float(np.mean([c.overhead / c.ar_step(context) for c in fitted])),
            }  # fmt: skip
            chosen, best = best_k(alpha=float(alpha), ks=range(1, min(MOST_K, new - 1) + 1), **settings)
            rows.append(
                shared_columns(study)
                | {
                    "context_tokens": context, "formulation": formulation, "bonus": bonus, "k": k,
                    "c_steps": settings["c"], "v_steps": settings["v"](k + (formulation == "repair-free")),
                    "alpha": float(alpha), "break_even_alpha": break_even_alpha(k=k, **settings),
                    "best_k": chosen, "R_at_best_k": best,
                    "extrapolated": context > int(costs["context_tokens"].max()),
                }
            )  # fmt: skip
    return validate(pd.DataFrame(rows), "break-even")
