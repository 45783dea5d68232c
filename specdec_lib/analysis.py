"""From measured runs to derived tables. Every row carries the hash of the design and of the analysis plan.

``runs`` is a validated confirmatory (or aa) table of one profile; ``families`` is what
:func:`families_table` gives.
"""

from __future__ import annotations

from typing import Any, get_args

import pandas as pd

from specdec_lib.checks import Check, run_checks
from specdec_lib.design import Design, Method
from specdec_lib.errors import TableError
from specdec_lib.records import validate
from specdec_lib.stats import Estimate, alpha_from_acceptance, estimate

# pandas' types say that df[mask][column] may be almost anything; inside this module a table is just a table.
Table = Any

_SHARED = ("profile", "design_hash", "pair", "dtype", "device", "isolation")
_KEYS = ("profile", "design_hash", "analysis_hash")


def families_table(
    runs: pd.DataFrame, design: Design, device_kind: str | None = None, arms: tuple[str, str] = ("ar", "spec")
) -> pd.DataFrame:
    """One row per (context, family): medians, ratios, acceptance and the six checks (schema "families").

    ``device_kind`` "cpu" or "gpu" picks the limits; by default it follows the rows' device. ``arms`` names
    numerator and denominator of R; for A/A runs ("ar", "ar-again").

    Every prompt of a context has the same number of tokens, so an arm's prefill there is one time: the median of its
    readings. A family's own reading is single, and cold where it is the first of its process.

    Raises:
        TableError: no rows, or rows of several profiles, pairs, dtypes, devices or isolations.
        UnknownProfile: the rows' profile is not in the design.
    """
    shared = _shared(runs)
    prefill = prefills(runs).groupby(["context_tokens", "arm"])["whole_s"].median()
    rows = []
    for cell, checks in _cells(runs, design, device_kind):
        context = cell["context_tokens"].iloc[0]
        first, second = (cell[cell["arm"] == arm] for arm in arms)  # numerator and denominator
        k = design.profile(shared["profile"]).k
        proposed, rounds = int(second["proposed_tokens"].sum()), int(second["rounds_n"].sum())
        acceptance = second["accepted_tokens"].sum() / proposed if proposed else None
        first_prefill, second_prefill = (prefill.get((context, arm)) for arm in arms)
        failed = [name for name, check in checks.items() if check.passed is False]
        excluding = [name for name in failed if name in design.analysis.exclude_on]
        one_armed = first.empty or second.empty
        rows.append(
            shared
            | {
                "analysis_hash": design.analysis_hash(),
                "family": cell["family"].iloc[0],
                "context_tokens": context,
                "ar_runs_n": len(first),
                "spec_runs_n": len(second),
                "ar_median_s": first["decode_s"].median(),
                "spec_median_s": second["decode_s"].median(),
                "R": first["decode_s"].median() / second["decode_s"].median(),
                "ar_prefill_s": first_prefill,
                "spec_prefill_s": second_prefill,
                "R_with_prefill": None
                if one_armed
                else (first["decode_s"].median() + first_prefill)
                / (second["decode_s"].median() + second_prefill),
                "acceptance": acceptance,
                "alpha": None if acceptance is None else alpha_from_acceptance(acceptance, k),
                "tokens_per_round": second["new_tokens"].sum() / rounds if rounds else None,
                "rounds_n": second["rounds_n"].median(),
                "target_calls_n": second["target_calls_n"].median(),
                "identical": not one_armed and cell["tokens_sha256"].nunique() == 1,
                "first_divergence_tokens": second["first_divergence_tokens"].min(),
                "natural_end": bool(first["natural_end"].any()),
                "repeated_ngram_share": first["repeated_ngram_share"].median(),
                "peak_rss_bytes": cell["peak_rss_bytes"].max(),
                "others_cpu_share": cell["others_cpu_share"].max(),
                # A cell without both arms has no ratio, whatever the plan excludes on.
                "in_inference": not excluding and not one_armed,
                "excluded_by": ";".join(excluding or failed if one_armed else excluding),
            }
            | {f"{name}_passed": check.passed for name, check in checks.items()}
            | {f"{name}_value": check.value for name, check in checks.items()}
        )
    return validate(pd.DataFrame(rows), "families")


def prefills(runs: pd.DataFrame) -> pd.DataFrame:
    """Every reading of a prefill once: ``context_tokens, arm, family, whole_s``, in seconds, of all models of the arm.

    All repeats of a process carry its reading, and in isolation "block" all processes of a family carry one; two
    readings never agree to the last digit.
    """
    whole: Table = runs.assign(whole_s=runs["prefill_s"] + runs["draft_prefill_s"].fillna(0.0))
    return whole[["context_tokens", "arm", "family", "whole_s"]].drop_duplicates(ignore_index=True)


def exclusions_table(runs: pd.DataFrame, design: Design, device_kind: str | None = None) -> pd.DataFrame:
    """One row per failed check of a cell, with what the check saw (schema "exclusions"). May be empty."""
    shared = _shared(runs)
    rows = [
        {
            "profile": shared["profile"],
            "design_hash": shared["design_hash"],
            "analysis_hash": design.analysis_hash(),
            "context_tokens": cell["context_tokens"].iloc[0],
            "family": cell["family"].iloc[0],
            "check": check.name,
            "value": check.value,
            "limit": check.limit,
            "note": check.note,
        }
        for cell, checks in _cells(runs, design, device_kind)
        for check in checks.values()
        if check.passed is False
    ]
    columns = [*_KEYS, "context_tokens", "family", "check", "value", "limit", "note"]
    return validate(pd.DataFrame(rows, columns=columns), "exclusions")


def summary_table(families: pd.DataFrame, design: Design) -> pd.DataFrame:
    """One row per context: the result, with its interval and verdict (schema "summary").

    Inference uses the families that passed; medians and counts are descriptive and use all that were
    measured.
    """
    rows = []
    for context, cells in _contexts(families):
        kept, both = cells[cells["in_inference"]], cells[cells["R"].notna()]
        if both.empty:
            raise TableError(
                f"families: no family has both arms at context {context}.",
                expected="runs of both arms",
                remedy="run the missing jobs: make runs PROFILE=<profile>",
            )
        result = _estimate(kept["R"], cells, design)
        with_prefill = _estimate(kept["R_with_prefill"], cells, design)
        rows.append(
            {name: cells[name].iloc[0] for name in (*_KEYS, "pair", "dtype", "device", "context_tokens")}
            | {"n": len(cells), "n_in_inference": len(kept)}
            | _columns(result)
            | {
                "method": result.method,
                "R_GM_all": _estimate(both["R"], cells, design).R_GM,
                "R_GM_with_prefill": with_prefill.R_GM,
                "R_GM_all_with_prefill": _estimate(both["R_with_prefill"], cells, design).R_GM,
                "ar_median_s": both["ar_median_s"].median(),
                "spec_median_s": both["spec_median_s"].median(),
                "acceptance_median": both["acceptance"].median(),
                "alpha_median": both["alpha"].median(),
                "tokens_per_round_median": both["tokens_per_round"].median(),
                "rounds_median": both["rounds_n"].median(),
                "target_calls_median": both["target_calls_n"].median(),
                "identical_families_n": int(cells["identical"].sum()),
                "slower_families_n": int((both["R"] < 1).sum()),
                "peak_rss_bytes": cells["peak_rss_bytes"].max(),
            }
        )
    return validate(pd.DataFrame(rows), "summary")


def sensitivity_table(families: pd.DataFrame, design: Design) -> pd.DataFrame:
    """What the result hangs on, per context (schema "sensitivity").

    R_GM as in the inference, with the excluded cells too, by each interval method, and without each family
    in turn.
    """
    rows = []
    for _, cells in _contexts(families):
        kept, both = cells[cells["in_inference"]], cells[cells["R"].notna()]
        variants = {
            "inference": _estimate(kept["R"], cells, design),
            "all cells": _estimate(both["R"], cells, design),
        }
        for method in get_args(Method):
            variants[f"{method} interval"] = _estimate(kept["R"], cells, design, method)
        for name in kept["family"]:
            variants[f"without {name}"] = _estimate(kept["R"][kept["family"] != name], cells, design)
        for variant, result in variants.items():
            rows.append(
                {name: cells[name].iloc[0] for name in (*_KEYS, "context_tokens")}
                | {"variant": variant, "n": result.n}
                | _columns(result)
            )
    return validate(pd.DataFrame(rows), "sensitivity")


def equality_table(families: pd.DataFrame) -> pd.DataFrame:
    """Per context: how many families emit the same tokens in both arms, and where the others first differ."""
    rows = []
    for _, cells in _contexts(families):
        divergence = cells["first_divergence_tokens"].dropna().astype("float64")
        rows.append(
            {name: cells[name].iloc[0] for name in (*_KEYS, "context_tokens")}
            | {
                "n": len(cells),
                "identical_n": int(cells["identical"].sum()),
                "deterministic_n": int(cells["deterministic_passed"].fillna(False).sum()),
                "first_divergence_min_tokens": divergence.min(),
                "first_divergence_median_tokens": divergence.median(),
            }
        )
    return validate(pd.DataFrame(rows), "equality")


def _cells(
    runs: pd.DataFrame, design: Design, device_kind: str | None
) -> list[tuple[Table, dict[str, Check]]]:
    """Every (context, family) cell with its checks; families in the profile's order, so that tables keep
    it."""
    shared = _shared(runs)
    profile = design.profile(shared["profile"])
    limits = design.analysis.thresholds(
        device_kind or ("gpu" if shared["device"].startswith("cuda") else "cpu")
    )
    place = {family: index for index, family in enumerate(profile.families)}
    found: list[Table] = [cell for _, cell in runs.groupby(["context_tokens", "family"], sort=False)]
    found.sort(key=lambda c: (c["context_tokens"].iloc[0], place.get(c["family"].iloc[0], len(place))))
    return [(cell, run_checks(cell, limits, profile)) for cell in found]


def _contexts(families: pd.DataFrame) -> list[tuple[Any, Table]]:
    return list(families.groupby("context_tokens", sort=True))


def _shared(runs: Table) -> dict[str, Any]:
    """What all rows must have in common; mixing machines or designs in one estimate is never meant."""
    if runs.empty:
        raise TableError(
            "runs: the table has no rows.", expected="measured runs", remedy="run the profile's jobs"
        )
    for name in _SHARED:
        if (found := runs[name].unique()).size > 1:
            raise TableError(
                f"runs: column {name} has several values: {', '.join(map(str, found))}.",
                expected="one profile on one machine per table",
                remedy="analyse them apart",
            )
    return {name: runs[name].iloc[0] for name in _SHARED}


def _estimate(ratios: Table, cells: Table, design: Design, method: Method | None = None) -> Estimate:
    """Estimate over ``ratios``; the repeats that it rests on are those of the context's cells."""
    repeats = int(cells[["ar_runs_n", "spec_runs_n"]].to_numpy().max())
    interval = design.analysis.interval
    if method:
        interval = interval.model_copy(update={"method": method})
    return estimate(ratios.to_numpy(dtype="float64"), interval, repeats)


def _columns(result: Estimate) -> dict[str, Any]:
    return {"R_GM": result.R_GM, "low": result.low, "high": result.high, "verdict": result.verdict}
