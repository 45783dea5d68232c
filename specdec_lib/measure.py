"""The confirmatory run: every planned job of the frozen design, and their results as validated rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from .design import Profile
from .errors import OutOfDeviceMemory
from .plan import Job, plan
from .records import validate
from .study import Say, Study, prefill_spec, run_from_store, shared_columns
from .variants import Variant, passes_of

AA = {"ar": "ar", "spec": "ar-again"}


def confirmatory(
    study: Study, context: int, say: Say = lambda line: None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and stages of one context: every planned job of the frozen design, each in its own process.

    A family's prefill is stored once and deleted after its last job, where several processes decode from it. Raises
    what jobs raise; finished jobs stay. A job that found too little memory leaves no rows; if all did, its error.
    """
    jobs = plan(study.profile, context)
    results = _collect(study, jobs, say)
    return _rows(study, jobs, results, "confirmatory"), _stages(study, jobs, results)


def aa_runs(study: Study, context: int, say: Say = lambda line: None) -> pd.DataFrame:
    """The same plan with AR in both arms, on the development families: what noise makes of R (schema "aa")."""
    profile = study.profile.model_copy(update={"families": study.design.measurement.development})
    jobs = [
        job.model_copy(
            update={
                "name": job.name.replace("confirmatory", "aa"),
                "runs": tuple(run.model_copy(update={"arm": AA[run.arm]}) for run in job.runs),
            }
        )
        for job in plan(profile, context)
    ]
    return _rows(study, jobs, _collect(study, jobs, say), "aa")


def scripted_passes(profile: Profile, family: str, context: int) -> list[bool]:
    """The bits that a scripted profile imposes on a confirmatory cell: independent, with the context's alpha."""
    assert profile.scripted
    variant = Variant("scripted", trace="iid", setting=profile.scripted[context])
    return passes_of(variant, [False] * profile.new_tokens, family, context)


def _collect(study: Study, jobs: list[Job], say: Say) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    full: OutOfDeviceMemory | None = None
    for number, (job, last) in enumerate(_with_last(jobs), start=1):
        try:
            results[job.name] = study_job(study, job)
        except OutOfDeviceMemory as outcome:
            full = outcome
            say(str(outcome))
        say(f"{number}/{len(jobs)} {job.name}")
        for family in last:
            for path in (study.folder / ".prefill").glob(f"{family}-{job.context}[-.]*"):
                path.unlink()
    if full and not results:
        raise full
    return results


def study_job(study: Study, job: Job) -> dict[str, Any]:
    """The result of one planned process."""
    p = study.profile
    # A process that has its cells alone makes its own prefills; what several decode from is made once and stored.
    shared = job.families if job.isolation == "block" else ()
    given = {family: study.run(prefill_spec(study, family, job.context)) for family in shared}
    more: dict[str, Any] = {}
    if p.scripted and any(run.arm == "spec" for run in job.runs):
        more["passes"] = {family: scripted_passes(p, family, job.context) for family in job.families}
    if p.repeat_disturbed:
        limit = study.design.analysis.thresholds(study.machine["device"]).undisturbed
        more["repeat_disturbed"] = {"times": p.repeat_disturbed, "limit": limit}
    spec = study.spec(
        "decode", job.name, context=job.context, runs=[run.model_dump() for run in job.runs],
        prompt_sha256={family: result["prompt_sha256"] for family, result in given.items()},
        prefill_s={family: result["prefill_s"] for family, result in given.items()},
        k=p.k, bonus=p.bonus, formulation=p.formulation, warmup_repeats=p.warmup_repeats, **more,
    )  # fmt: skip
    return run_from_store(study, spec, job.context)


def _with_last(jobs: list[Job]) -> Iterator[tuple[Job, list[str]]]:
    """Each job with the families that no later job needs."""
    for i, job in enumerate(jobs):
        later = {family for other in jobs[i + 1 :] for family in other.families}
        yield job, [family for family in job.families if family not in later]


def _rows(study: Study, jobs: list[Job], results: dict[str, dict[str, Any]], schema: str) -> pd.DataFrame:
    rows = []
    for job in jobs:
        if job.name not in results:
            continue
        result = results[job.name]
        for row in result["rows"]:
            tokens = result["tokens"][f"{row['family']} {row['arm']}"]
            plain = f"{row['family']} ar"  # its own tokens where AR's job has none: nothing to differ from
            against = next((r["tokens"][plain] for r in results.values() if plain in r["tokens"]), tokens)
            rows.append(
                {
                    **shared_columns(study),
                    "context_tokens": job.context,
                    "job": job.name,
                    "isolation": job.isolation,
                    "mode": study.profile.mode,
                    "pair": study.profile.pair,
                    "device": study.machine["device"],
                    "dtype": study.machine["dtype"],
                    "threads": result["machine"]["threads"],
                    "peak_rss_bytes": result["machine"]["peak_rss_bytes"],
                    "first_divergence_tokens": first_divergence(tokens, against),
                    **row,
                }
            )
    return validate(pd.DataFrame(rows), schema)


def _stages(study: Study, jobs: list[Job], results: dict[str, dict[str, Any]]) -> pd.DataFrame:
    rows = [
        {**shared_columns(study), "context_tokens": job.context, **row}
        for job in jobs
        if job.name in results
        for row in results[job.name]["stages"]
    ]
    return validate(pd.DataFrame(rows), "stages")


def first_divergence(tokens: list[int], against: list[int]) -> int | None:
    """Index of the first token that differs, or None for equal outputs."""
    pairs = enumerate(zip(tokens, against, strict=False))
    return next(
        (i for i, (a, b) in pairs if a != b),
        None if len(tokens) == len(against) else min(len(tokens), len(against)),
    )
