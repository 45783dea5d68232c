"""The cost line put to the test: R of held-out cells predicted from the fit, break-even alpha and best k."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .costfit import Costs, fit, t_interval
from .costmodel import Counts, best_k, break_even_alpha, counts_from_trace
from .costs import MOST_K, quick_look
from .errors import InvalidSetting
from .files import canonical_json, sha256_text
from .jobs import finished, write_job
from .mechanisms import Cell, cell_spec, cells, chosen_variants, traces_of
from .records import validate
from .study import Say, Study, run_from_store, shared_columns, sharing, where_it_fits
from .variants import Variant, passes_of

# pandas' types say that df[column] may be almost anything; in this module a table is just a table.
Table = Any


def predictions_table(
    study: Study, costs: Table, phase: str = "cost-model", say: Say = lambda line: None
) -> tuple[pd.DataFrame, str]:
    """R of every held-out cell and variant before it is measured (schema "predictions"), and the prediction's hash.

    It is written once, as an immutable file beside the jobs; a second call reads it, also when costs were measured anew
    meanwhile. Inputs: the fit on development families, and the counts of each run: of the cell's trace where acceptance
    is imposed, of an untimed run of the same engine where it is real (:func:`counted`).
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
        by_cell = counted(study, variants, say)
        for cell, known_trace in traces_of(study).items():
            passes, real = known_trace["passes"], by_cell.get(cell, {})
            rows += [_predicted(study, fitted, cell, v, passes, real, longest) for v in variants]
        known = {"rows": rows}
        write_job(path, spec, known)
    digest = sha256_text(canonical_json(known["rows"]))
    return validate(
        pd.DataFrame([shared_columns(study) | row for row in known["rows"]]), "predictions"
    ), digest


def counted(
    study: Study, variants: list[Variant], say: Say = lambda line: None
) -> dict[Cell, dict[str, Counts]]:
    """Counts of every variant that accepts by its own text, from one untimed run per cell.

    A trace fixes the counts of every k while the text is the target's; in BF16 blocks of another width flip near-ties,
    and from there on the text and its acceptance are others. The cost line is about time: its test takes the rounds as
    they come. A quick look spares itself the runs, and takes the trace.
    """
    real = [v for v in variants if v.proposer == "draft" and v.rule == "greedy"]
    if not real or quick_look(study):
        return {}

    def one(cell: Cell) -> dict[str, Counts]:
        spec = cell_spec(together, "rounds", "rounds", cell, variants=[dataclasses.asdict(v) for v in real])
        found = run_from_store(together, spec, cell[0])["counts"]
        return {name: _counts(row) for name, row in found.items()}

    with sharing(study) as together:
        return where_it_fits(cells(study.profile), one, "rounds", say)


def _counts(row: Mapping[str, Any]) -> Counts:
    blocks = {int(rows): n for rows, n in row["blocks"].items()}
    return Counts(
        row["new_tokens"], row["rounds_n"], row["proposed_tokens"], row["accepted_tokens"], row["rejections_n"],
        row["draft_calls_n"], row["target_calls_n"] - sum(blocks.values()), blocks,
    )  # fmt: skip


def _predicted(
    study: Study, fitted: list[Costs], cell: Cell, v: Variant, passes: list[bool], real: dict[str, Counts],
    longest: int,
) -> dict[str, Any]:  # fmt: skip
    context, family = cell
    assert v.k
    bits = passes_of(v, passes, family, context)
    by_trace = counts_from_trace(bits, v.k, study.profile.new_tokens, v.formulation, v.bonus)
    counts = real.get(v.name, by_trace)
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
        "counts_from": "run" if v.name in real else "trace", "rounds_by_trace_n": by_trace.rounds,
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


def break_even_table(study: Study, costs: Table, traces: Table) -> pd.DataFrame:
    """Break-even alpha at the design's k, and the best k at the traces' mean alpha (schema "break-even")."""
    fitted, rows = fit(costs), []
    k, new = study.profile.k, study.profile.new_tokens
    alphas: Any = traces.groupby("context_tokens", sort=False)["pass_share"].mean()
    forms = (("reference", False), ("repair-free", True))
    for context, alpha in alphas.items():
        for formulation, bonus in forms[study.profile.captured :]:
            settings: dict[str, Any] = {
                "c": float(np.mean([c.draft_forward(context, k) / c.ar_step(context) for c in fitted])),
                "v": lambda m, x=context: float(np.mean([c.verify(m, x) / c.ar_step(x) for c in fitted])),
                "formulation": formulation, "bonus": bonus, "new_tokens": new,
                "repair": float(np.mean([c.repair_forward(context) / c.ar_step(context) for c in fitted])),
                "overhead": float(np.mean([c.overhead(context, k) / c.ar_step(context) for c in fitted])),
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
