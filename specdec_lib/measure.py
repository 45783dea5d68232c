"""From a profile and a context to validated rows: plans the jobs, runs the missing ones, gathers their results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from . import paths
from .design import Design, Job, Profile, load_design, plan
from .jobs import ENGINE, finished, run_job
from .pairs import pair_digest
from .prompts import prompts_digest
from .records import validate

Say = Callable[[str], None]
AA = {"ar": "ar", "spec": "ar-again"}


class Study(NamedTuple):
    """A profile on this machine: the design, its hash, where results go, what the calibration found."""

    design: Design
    profile: Profile
    design_hash: str
    folder: Path
    machine: dict[str, Any]

    @property
    def threads(self) -> int:
        return threads_of(self.profile)

    def spec(self, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        """A job's order: everything that decides what it measures, and nothing about where it runs."""
        p = self.profile
        return {
            "kind": kind, "name": name, "profile": p.name, "design_hash": self.design_hash,
            ENGINE: paths.measuring_hash(), "pair": p.pair, "device": self.machine["device"],
            "dtype": self.machine["dtype"], "new_tokens": p.new_tokens, "prefill_chunk": p.prefill_chunk, **fields,
        }  # fmt: skip

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The job's result: read if it is finished, else measured now."""
        path = self.folder / "jobs" / f"{spec['name']}.json"
        done = finished(path, spec, keep_engine=self.profile.committed)
        return done if done is not None else run_job(spec, path, self.threads)


def threads_of(profile: Profile) -> int:
    """The profile's thread count, or every core this process may use."""
    return profile.threads or len(
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )


def open_study(profile_name: str, folder: Path, design: Design | None = None) -> Study:
    """Validate the profile, settle the dtype once for all its jobs, and measure the bandwidth beside them."""
    design = design or load_design()
    profile = design.profile(profile_name)
    design_hash = design.measurement_hash(profile, prompts_digest(), pair_digest(profile.pair))
    blank = Study(design, profile, design_hash, folder, {"device": profile.device, "dtype": profile.dtype})
    return blank._replace(machine=blank.run(blank.spec("calibrate", "calibrate")))


def confirmatory(
    study: Study, context: int, say: Say = lambda line: None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and stages of one context: every planned job of the frozen design, each in its own process.

    A family's prefill is stored once and deleted after its last job. Raises what jobs raise; finished jobs stay.
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


def _collect(study: Study, jobs: list[Job], say: Say) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for number, (job, last) in enumerate(_with_last(jobs), start=1):
        # A process that has its cell alone makes its own prefill; what several decode from is made once and stored.
        shared = job.families if job.isolation != "cell" else ()
        given = {family: study.run(prefill_spec(study, family, job.context)) for family in shared}
        spec = study.spec(
            "decode", job.name, context=job.context, runs=[run.model_dump() for run in job.runs],
            prompt_sha256={family: result["prompt_sha256"] for family, result in given.items()},
            prefill_s={family: result["prefill_s"] for family, result in given.items()},
            k=study.profile.k, bonus=study.profile.bonus, formulation=study.profile.formulation,
            warmup_repeats=study.profile.warmup_repeats,
        )  # fmt: skip
        results[job.name] = run_from_store(study, spec, job.context)
        say(f"{number}/{len(jobs)} {job.name}")
        for family in last:
            for path in (study.folder / ".prefill").glob(f"{family}-{job.context}[-.]*"):
                path.unlink()
    return results


def _with_last(jobs: list[Job]) -> Iterator[tuple[Job, list[str]]]:
    """Each job with the families that no later job needs."""
    for i, job in enumerate(jobs):
        later = {family for other in jobs[i + 1 :] for family in other.families}
        yield job, [family for family in job.families if family not in later]


def prefill_spec(study: Study, family: str, context: int) -> dict[str, Any]:
    """The prompt's hash and the prefill's seconds stay in this job's file, its caches only while they are needed."""
    return study.spec("prefill", f"prefill-{context}-{family}", families=[family], context=context)


def run_from_store(study: Study, spec: dict[str, Any], context: int) -> dict[str, Any]:
    """The result of a job that decodes from stored prefills; missing ones are made again first."""
    path = study.folder / "jobs" / f"{spec['name']}.json"
    done = finished(path, spec, keep_engine=study.profile.committed)
    if done is not None:
        return done
    for family in spec["prefill_s"]:  # the caches may be gone, after an interruption say
        roles = [
            study.folder / ".prefill" / f"{family}-{context}-{role}.safetensors"
            for role in ("target", "draft")
        ]
        if not all(role.is_file() for role in roles):
            # not in jobs/: the result that stands there stays
            again = study.folder / ".prefill" / f"{family}-{context}.json"
            run_job(prefill_spec(study, family, context), again, study.threads)
            again.unlink()
    return run_job(spec, path, study.threads)


def _rows(study: Study, jobs: list[Job], results: dict[str, dict[str, Any]], schema: str) -> pd.DataFrame:
    rows = []
    for job in jobs:
        result = results[job.name]
        for row in result["rows"]:
            tokens = result["tokens"][f"{row['family']} {row['arm']}"]
            against = next(
                r["tokens"][f"{row['family']} ar"]
                for r in results.values()
                if f"{row['family']} ar" in r["tokens"]
            )
            rows.append(
                {
                    **shared_columns(study),
                    "context_tokens": job.context,
                    "job": job.name,
                    "isolation": job.isolation,
                    "mode": "eager",
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
        for row in results[job.name]["stages"]
    ]
    return validate(pd.DataFrame(rows), "stages")


def shared_columns(study: Study) -> dict[str, str]:
    return {"profile": study.profile.name, "design_hash": study.design_hash}


def first_divergence(tokens: list[int], against: list[int]) -> int | None:
    """Index of the first token that differs, or None for equal outputs."""
    pairs = enumerate(zip(tokens, against, strict=False))
    return next(
        (i for i, (a, b) in pairs if a != b),
        None if len(tokens) == len(against) else min(len(tokens), len(against)),
    )


def say_line(line: str) -> None:
    """One line to standard error."""
    print(line, file=sys.stderr, flush=True)
