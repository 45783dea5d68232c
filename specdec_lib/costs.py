"""Stage times for the cost line: instrumented runs of development families, at every context that is measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from .mechanisms import Cell, cell_spec, cells
from .records import validate
from .study import Say, Study, run_from_store, shared_columns, sharing, where_it_fits
from .variants import AR, Variant

MOST_K = 8  # fitted, and so the largest k that is asked about
FEW_KS = (1, 2, 4, 8)
# Of the development families: in a quick look, and where acceptance is scripted (times do not depend on the text then).
FEW_FAMILIES = 2


def fitting_variants(study: Study) -> list[Variant]:
    """AR, the repair-free engine at k = 1 to 8, and the reference engine for what a repair costs.

    A quick look fits four values of k. A captured mode has no repair to time. An eager run on random weights, which
    accept nothing by themselves, would take as many rounds as tokens: there all is accepted, at the four values of k,
    and the repair is timed at k = 1.
    """
    p = study.profile
    many_rounds = p.scripted is not None and not p.captured
    engine = Variant(
        "repair-free", bonus=True, formulation="repair-free", rule="all" if many_rounds else "greedy"
    )
    ks = [
        k for k in (FEW_KS if many_rounds or quick_look(study) else range(1, MOST_K + 1)) if k < p.new_tokens
    ]
    fitted = [AR, *(dataclasses.replace(engine, name=f"repair-free, k = {k}", k=k) for k in ks)]
    return fitted if p.captured else [*fitted, Variant("reference", k=1 if many_rounds else p.k)]


def quick_look(study: Study) -> bool:
    """Whether the profile has too few repeats for an interval: it then measures less, too."""
    return study.profile.repeats < study.design.analysis.interval.min_repeats


def costs_table(study: Study, say: Say = lambda line: None) -> pd.DataFrame:
    """Instrumented runs of the development families (schema "costs"); never a held-out one."""
    contexts = dict.fromkeys(context for context, _ in cells(study.profile))
    few = FEW_FAMILIES if quick_look(study) or study.profile.scripted else None
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
