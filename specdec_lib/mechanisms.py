"""The mechanism phases: which cells, which jobs, and their results as tables. No torch on this side.

Every phase stores or reads the same prefills and the same trace per cell, so a phase also works when run alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from .design import Profile
from .errors import InvalidSetting
from .measure import Say, Study, first_divergence, prefill_spec, run_from_store, shared_columns
from .prompts import get_family
from .records import validate
from .stats import alpha_from_acceptance
from .variants import Variant, resolved

Cell = tuple[int, str]  # context, family


def cells(profile: Profile) -> list[Cell]:
    """The cells the phases measure: the first n held-out families at each context."""
    if profile.mechanisms is None:
        raise InvalidSetting(
            f"Profile {profile.name!r} measures no mechanism phases.",
            expected="a [profiles.<name>.mechanisms] section in design.toml",
            remedy="add one, or choose another profile",
        )
    return [(c, f) for c, n in profile.mechanisms.families.items() for f in profile.families[:n]]


def cell_spec(study: Study, kind: str, name: str, cell: Cell, **fields: Any) -> dict[str, Any]:
    """A job on one cell; its prefill is made first if there is none."""
    context, family = cell
    given = study.run(prefill_spec(study, family, context))
    return study.spec(
        kind, f"{name}-{context}-{family}", families=[family], context=context,
        prompt_sha256={family: given["prompt_sha256"]}, prefill_s={family: given["prefill_s"]}, **fields,
    )  # fmt: skip


def trace(study: Study, cell: Cell) -> dict[str, Any]:
    """The cell's AR text, its trace, and what the draft proposed, by a job that all phases share."""
    return run_from_store(study, cell_spec(study, "trace", "trace", cell, k=study.profile.k), cell[0])


def run_phase(
    study: Study, phase: str, say: Say = lambda line: None, *, quality: bool = False, prediction: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every variant of a phase on every cell: timed rows (schema "mechanism") and, on request, text quality.

    ``prediction`` is the hash of the prediction that was written before; it goes onto every row. Raises
    ``InvalidSetting`` before anything is measured, and what jobs raise; finished jobs stay.
    """
    profile = study.profile
    variants = resolved(phase, profile.k, profile.new_tokens)
    planned = cells(profile)
    assert profile.mechanisms
    rows: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    for number, cell in enumerate(planned, start=1):
        context, family = cell
        known = trace(study, cell)
        spec = cell_spec(
            study, "mechanism", phase, cell, variants=[dataclasses.asdict(v) for v in variants],
            repeats=profile.mechanisms.repeats, tokens=known["tokens"], passes=known["passes"], quality=quality,
            format=get_family(family).checkable, prediction=prediction,
        )  # fmt: skip
        result = run_from_store(study, spec, context)
        by_name = {v.name: v for v in variants}
        shared = shared_columns(study) | {"context_tokens": context, "family": family, "phase": phase}
        for row in result["rows"]:
            v = by_name[row["variant"]]
            rows.append(
                shared
                | _machine(study, result["machine"])
                | _settings(v)
                | {
                    "job": spec["name"],
                    "prediction_sha256": result["prediction"] or None,
                    **_against(result["tokens"][v.name], result["tokens"]["ar"]),
                    **row,
                }
            )
        for row in result["quality"]:
            against = _against(result["tokens"][row["variant"]], result["tokens"]["ar"])
            texts.append(shared | _settings(by_name[row["variant"]]) | against | row)
        say(f"{number}/{len(planned)} {spec['name']}")
    columns = None if texts else ["phase", "variant"]
    quality_table = validate(pd.DataFrame(texts), "quality") if texts else pd.DataFrame(columns=columns)
    return validate(pd.DataFrame(rows), "mechanism"), quality_table


def proposals_tables(study: Study, say: Say = lambda line: None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The acceptance phase: one row per proposed token (schema "proposals"), one per trace (schema "traces")."""
    from .costmodel import counts_from_trace

    rows, traces = [], []
    planned = cells(study.profile)
    for number, cell in enumerate(planned, start=1):
        known = trace(study, cell)
        shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1]}
        for proposal in known["proposals"]:
            renamed = {
                "round": "round_n",
                "token": "token_id",
                "position": "position_tokens",
                "gap": "gap_logits",
            }
            rows.append(shared | {renamed.get(key, key): value for key, value in proposal.items()})
        passes = known["passes"]
        expected = counts_from_trace(passes, study.profile.k, study.profile.new_tokens)
        traces.append(
            shared
            | {
                "passes": "".join("01"[bit] for bit in passes),
                "pass_share": sum(passes) / len(passes),
                "rounds_n": known["rounds_n"],
                "rounds_by_trace_n": expected.rounds,
                "acceptance": expected.accepted / expected.proposed,
                "alpha": alpha_from_acceptance(expected.accepted / expected.proposed, study.profile.k),
                "identical": known["identical"],
            }
        )
        say(f"{number}/{len(planned)} trace-{cell[0]}-{cell[1]}")
    return validate(pd.DataFrame(rows), "proposals"), validate(pd.DataFrame(traces), "traces")


def numerics_table(study: Study, say: Say = lambda line: None) -> pd.DataFrame:
    """Widths against the plain step (schema "numerics"), on the first half of each context's cells."""
    planned: list[Cell] = []
    for context in dict.fromkeys(context for context, _ in cells(study.profile)):
        here = [cell for cell in cells(study.profile) if cell[0] == context]
        planned += here[: (len(here) + 1) // 2]
    rows = []
    for number, cell in enumerate(planned, start=1):
        tokens = trace(study, cell)["tokens"]
        spec = cell_spec(study, "numerics", "numerics", cell, tokens=tokens)
        shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1]}
        rows += [shared | row for row in run_from_store(study, spec, cell[0])["rows"]]
        say(f"{number}/{len(planned)} {spec['name']}")
    return validate(pd.DataFrame(rows), "numerics")


def ratios(runs: Any) -> pd.DataFrame:
    """One row per (context, family, variant): medians over repeats and R = AR / variant (schema "ratios")."""
    rows = []
    keys = ["profile", "design_hash", "phase", "pair", "dtype", "device", "context_tokens", "family"]
    for cell, part in runs.groupby(keys, sort=False):
        ar = part.loc[part["variant"] == "ar", "decode_s"].median()
        for name, group in part[part["variant"] != "ar"].groupby("variant", sort=False):
            first = group.iloc[0]
            proposed, rounds = int(first["proposed_tokens"]), int(first["rounds_n"])
            rows.append(
                dict(zip(keys, cell, strict=True))
                | {column: first[column] for column in ("label", "k", "bonus", "formulation", "setting")}
                | {
                    "variant": name,
                    "repeats_n": len(group),
                    "ar_median_s": ar,
                    "spec_median_s": group["decode_s"].median(),
                    "R": ar / group["decode_s"].median(),
                    "R_low": ar / group["decode_s"].max(),
                    "R_high": ar / group["decode_s"].min(),
                    "acceptance": first["accepted_tokens"] / proposed if proposed else None,
                    "tokens_per_round": first["new_tokens"] / rounds if rounds else None,
                    "equal_share": first["equal_share"],
                    "first_divergence_tokens": first["first_divergence_tokens"],
                    **{
                        name: first[name]
                        for name in ("rounds_n", "target_calls_n", "draft_calls_n", "host_reads_n")
                    },
                    "reads_per_round": first["host_reads_n"] / rounds if rounds else None,
                    "copies_per_round": first["host_copies_n"] / rounds if rounds else None,
                    "bytes_per_round": first["host_bytes"] / rounds if rounds else None,
                }
            )
    return validate(pd.DataFrame(rows), "ratios")


def _settings(v: Variant) -> dict[str, Any]:
    plain = v.proposer == "none"
    return {
        "variant": v.name,
        "label": v.label,
        "k": None if plain else v.k,
        "bonus": None if plain else v.bonus,
        "formulation": None if plain else v.formulation,
        "setting": v.setting,
    }


def _machine(study: Study, machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "pair": study.profile.pair,
        "dtype": study.machine["dtype"],
        "device": study.machine["device"],
        "mode": "eager",
        "threads": machine["threads"],
        "peak_rss_bytes": machine["peak_rss_bytes"],
    }


def _against(tokens: list[int], ar: list[int]) -> dict[str, Any]:
    same = sum(a == b for a, b in zip(tokens, ar, strict=True))
    return {"first_divergence_tokens": first_divergence(tokens, ar), "equal_share": same / len(ar)}
