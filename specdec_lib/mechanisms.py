"""The mechanism phases: which cells, which jobs, and their results as tables. No torch on this side.

Every phase stores or reads the same prefills and the same trace per cell, so a phase also works when run alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from .design import Profile
from .errors import InvalidSetting, TableMissing
from .jobs import finished, write_job
from .measure import first_divergence, scripted_passes
from .plan import Run
from .prompts import get_family
from .records import read_table, validate
from .stats import alpha_from_acceptance
from .study import Say, Study, prefill_spec, run_from_store, shared_columns, sharing, where_it_fits
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
    """The cell's AR text, its trace, and what the draft proposed, by a job that all phases share.

    In a scripted profile: the text, as the profile's mode gives it, and the bits of ``script``.
    """
    if study.profile.scripted is None:
        return run_from_store(study, cell_spec(study, "trace", "trace", cell, k=study.profile.k), cell[0])
    context, family = cell
    once = Run(family=family, arm="ar", block="AB", repeat=1, position=0)
    spec = cell_spec(
        study, "decode", "text", cell, runs=[once.model_dump()], k=study.profile.k, bonus=study.profile.bonus,
        formulation=study.profile.formulation, warmup_repeats=study.profile.warmup_repeats,
    )  # fmt: skip
    text = run_from_store(study, spec, context)["tokens"][f"{family} ar"]
    return {"tokens": text, "passes": script(study, cell)}


def script(study: Study, cell: Cell) -> list[bool]:
    """The bits that a scripted profile imposes on a cell of the mechanism phases: the trace that ``traces_from``
    recorded there, or the confirmatory run's own. Kept beside the jobs, so that a cell has one script for good.
    """
    context, family = cell
    source = study.profile.traces_from
    spec = study.spec(
        "script", f"script-{context}-{family}", families=[family], context=context, source=source
    )
    known = finished(study.job_file(spec), spec, keep_engine=True)
    if known is None:
        passes = scripted_passes(study.profile, family, context)
        if source:
            table: Any = read_table(study.folder.parent / source / "traces.csv", "traces")
            chosen = table[(table["family"] == family) & (table["context_tokens"] == context)]["passes"]
            if len(chosen) != 1 or len(chosen.iloc[0]) < len(passes):
                raise TableMissing(
                    f"data/{source}/traces.csv has no trace of {family} at {context}.",
                    expected=f"one, of at least {len(passes)} tokens: profile {study.profile.name!r} replays it",
                    remedy=f"measure fewer cells in [profiles.{study.profile.name}.mechanisms], or drop traces_from",
                )
            passes = [bit == "1" for bit in chosen.iloc[0]][: len(passes)]
        known = {"passes": passes}
        write_job(study.job_file(spec), spec, known)
    return known["passes"]


def traces_of(study: Study, say: Say = lambda line: None) -> dict[Cell, dict[str, Any]]:
    """``trace`` of every cell that the phases measure."""
    with sharing(study) as together:
        return where_it_fits(cells(study.profile), lambda cell: trace(together, cell), "trace", say)


def chosen_variants(profile: Profile, phase: str) -> tuple[Variant, ...]:
    """AR and those of the phase's variants that the profile can run, in the form in which it runs them.

    - A captured mode replays repair-free rounds with bonus: what is real keeps its form or is left out; an oracle or a
      synthetic bound that has the bonus is taken in that form, since its point is the acceptance.
    - Scripted acceptance: in place of the real draft's acceptance stands the cell's script, and the label says so.
      Rules that look at the draft's own choices are left out: random weights give them nothing to see.

    - Where the design names variants of the phase, only those.

    Raises ``InvalidSetting`` for an unknown phase and for one that leaves nothing to compare.
    """
    found = []
    named = profile.mechanisms.variants_of.get(phase) if profile.mechanisms else None
    for v in resolved(phase, profile.k, profile.new_tokens):
        if named is not None and v.proposer != "none" and v.name not in named:
            continue
        if profile.captured and v.proposer != "none":
            if not v.bonus or v.rule not in ("greedy", "imposed"):
                continue
            if v.formulation != "repair-free":
                if v.proposer not in ("forced", "free"):
                    continue
                v = dataclasses.replace(v, formulation="repair-free")
        if profile.scripted is not None:
            if v.proposer == "naive" or v.rule == "relaxed":
                continue
            if v.proposer == "draft" and v.rule == "greedy":
                v = dataclasses.replace(
                    v, label="synthetic", proposer="forced", rule="imposed", trace="recorded"
                )
        found.append(v)
    if len(found) < 2:
        raise InvalidSetting(
            f"Profile {profile.name!r} can run no variant of phase {phase!r}.",
            expected="a phase with repair-free variants with bonus, or (scripted) with imposed acceptance",
            remedy=f"take {phase!r} out of the profile's phases",
        )
    return tuple(found)


def run_phase(
    study: Study, phase: str, say: Say = lambda line: None, *, quality: bool = False, prediction: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every variant of a phase on every cell: timed rows (schema "mechanism") and, on request, text quality.

    ``prediction`` is the hash of the prediction that was written before; it goes onto every row. A cell that found too
    little memory is said and left out; if all did, its error is raised. Raises ``InvalidSetting`` before anything is
    measured, and what jobs raise; finished jobs stay.
    """
    variants = chosen_variants(study.profile, phase)
    rows: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []

    def measured(cell: Cell) -> tuple[str, dict[str, Any]]:
        return _measured(together, phase, cell, variants, quality, prediction)

    with sharing(study) as together:
        found = where_it_fits(cells(study.profile), measured, phase, say)
    for cell, (job, result) in found.items():
        _gather(study, phase, cell, variants, job, result, rows, texts)
    columns = None if texts else ["phase", "variant"]
    quality_table = validate(pd.DataFrame(texts), "quality") if texts else pd.DataFrame(columns=columns)
    return validate(pd.DataFrame(rows), "mechanism"), quality_table


def _measured(
    study: Study, phase: str, cell: Cell, variants: tuple[Variant, ...], quality: bool, prediction: str
) -> tuple[str, dict[str, Any]]:
    """Name and result of the phase's job on one cell."""
    context, family = cell
    known = trace(study, cell)
    assert study.profile.mechanisms
    spec = cell_spec(
        study, "mechanism", phase, cell, variants=[dataclasses.asdict(v) for v in variants],
        repeats=study.profile.mechanisms.repeats_in(phase), tokens=known["tokens"], passes=known["passes"],
        quality=quality, format=get_family(family).checkable, prediction=prediction,
    )  # fmt: skip
    return spec["name"], run_from_store(study, spec, context)


def _gather(
    study: Study,
    phase: str,
    cell: Cell,
    variants: tuple[Variant, ...],
    job: str,
    result: dict[str, Any],
    rows: list[dict[str, Any]],
    texts: list[dict[str, Any]],
) -> None:
    """Append the job's rows and, where it judged them, its texts."""
    by_name = {v.name: v for v in variants}
    shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1], "phase": phase}
    for row in result["rows"]:
        v = by_name[row["variant"]]
        rows.append(
            shared
            | _machine(study, result["machine"])
            | _settings(v)
            | {
                "job": job,
                "prediction_sha256": result["prediction"] or None,
                **_against(result["tokens"][v.name], result["tokens"]["ar"]),
                **row,
            }
        )
    for row in result["quality"]:
        against = _against(result["tokens"][row["variant"]], result["tokens"]["ar"])
        texts.append(shared | _settings(by_name[row["variant"]]) | against | row)


def proposals_tables(study: Study, say: Say = lambda line: None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The acceptance phase: one row per proposed token (schema "proposals"), one per trace (schema "traces").

    In a scripted profile nothing is proposed by the draft: no proposals, and the scripts as traces.
    """
    rows, traces = [], []
    for cell, known in traces_of(study, say).items():
        shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1]}
        for proposal in known.get("proposals", ()):
            renamed = {
                "round": "round_n",
                "token": "token_id",
                "position": "position_tokens",
                "gap": "gap_logits",
            }
            rows.append(shared | {renamed.get(key, key): value for key, value in proposal.items()})
        traces.append(shared | _trace_row(study, known))
    proposals = validate(pd.DataFrame(rows), "proposals") if rows else pd.DataFrame()
    return proposals, validate(pd.DataFrame(traces), "traces")


def _trace_row(study: Study, known: dict[str, Any]) -> dict[str, Any]:
    from .costmodel import counts_from_trace

    passes, k = known["passes"], study.profile.k
    form = ("repair-free", True) if study.profile.captured else ("reference", False)  # as bench.trace ran it
    expected = counts_from_trace(passes, k, study.profile.new_tokens, *form)
    return {
        "passes": "".join("01"[bit] for bit in passes),
        "pass_share": sum(passes) / len(passes),
        "rounds_n": known.get("rounds_n"),
        "rounds_by_trace_n": expected.rounds,
        "acceptance": expected.accepted / expected.proposed,
        "alpha": alpha_from_acceptance(expected.accepted / expected.proposed, k),
        "identical": known.get("identical"),
    }


def numerics_table(study: Study, say: Say = lambda line: None) -> pd.DataFrame:
    """Widths against the plain step (schema "numerics"), on the first half of each context's cells."""
    planned: list[Cell] = []
    for context in dict.fromkeys(context for context, _ in cells(study.profile)):
        here = [cell for cell in cells(study.profile) if cell[0] == context]
        planned += here[: (len(here) + 1) // 2]

    def measured(cell: Cell) -> list[dict[str, Any]]:
        tokens = trace(together, cell)["tokens"]
        spec = cell_spec(together, "numerics", "numerics", cell, tokens=tokens)
        return run_from_store(together, spec, cell[0])["rows"]

    rows = []
    with sharing(study) as together:
        found = where_it_fits(planned, measured, "numerics", say)
    for cell, compared in found.items():
        shared = shared_columns(study) | {"context_tokens": cell[0], "family": cell[1]}
        rows += [shared | row for row in compared]
    return validate(pd.DataFrame(rows), "numerics")


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
        "mode": study.profile.mode,
        "threads": machine["threads"],
        "peak_rss_bytes": machine["peak_rss_bytes"],
    }


def _against(tokens: list[int], ar: list[int]) -> dict[str, Any]:
    same = sum(a == b for a, b in zip(tokens, ar, strict=True))
    return {"first_divergence_tokens": first_divergence(tokens, ar), "equal_share": same / len(ar)}
