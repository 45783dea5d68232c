"""Jobs: one process, one immutable result file. A finished job is never run again. No torch on this side.

A job file holds what was asked (``spec``), what came out (``result``) and a checksum over both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .errors import JobDamaged, JobFailed, MixedDesign
from .files import atomic_write, canonical_json, sha256_text

ENGINE = "engine_hash"
DONE = "\x04done"  # what the measuring process says after each job
# Handed on by earlier jobs: measured, so it may differ when they are measured anew.
MEASURED = ("prefill_s", "tokens", "passes", "costs", "prediction")
_ERROR_LINES = 12


def write_job(path: Path, spec: dict[str, Any], result: dict[str, Any]) -> None:
    """Store a finished job, whole or not at all."""
    body = {"spec": spec, "result": result}
    document = {"checksum": sha256_text(canonical_json(body)), **body}
    atomic_write(path, json.dumps(document) + "\n")


def read_job(path: Path) -> dict[str, Any]:
    """``{"spec", "result"}`` of a job file. Raises ``JobDamaged`` when it is not as it was written."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        body = {"spec": document["spec"], "result": document["result"]}
        whole = document["checksum"] == sha256_text(canonical_json(body))
    except (ValueError, KeyError, TypeError):
        whole, body = False, {}
    if not whole:
        raise JobDamaged(
            f"{_shown(path)} is truncated or was edited: its checksum does not fit",
            expected="a job file as the measuring process wrote it",
            remedy="restore it with git, or delete it and run again: only this job is measured anew",
        )
    return body


def engines(folder: Path) -> dict[str, int]:
    """Which sources measured the jobs of a data folder: measuring hash -> number of jobs."""
    found = Counter(
        read_job(path)["spec"].get(ENGINE, "unknown") for path in sorted((folder / "jobs").glob("*.json"))
    )
    return dict(sorted(found.items()))


def finished(path: Path, spec: dict[str, Any], keep_engine: bool) -> dict[str, Any] | None:
    """The result of a job that need not run again, or None.

    A job of another design is refused (``MixedDesign``): it would mix with the new ones. One measured by other engine
    sources counts as not done, unless ``keep_engine`` (a committed profile, whose pages say when the engine changed).
    """
    if not path.is_file():
        return None
    body = read_job(path)
    ours, theirs = (
        {k: v for k, v in s.items() if k not in (ENGINE, *MEASURED)} for s in (spec, body["spec"])
    )
    if ours != theirs:
        changed = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        raise MixedDesign(
            f"{_shown(path)} was measured under another design: {', '.join(changed)} differ",
            expected=f"design {spec.get('design_hash')}",
            remedy=f"move data/{path.parent.parent.name} away (or delete its jobs folder), then run again",
        )
    return body["result"] if keep_engine or body["spec"].get(ENGINE) == spec.get(ENGINE) else None


def run_job(spec: dict[str, Any], path: Path, threads: int) -> dict[str, Any]:
    """Run ``spec`` in a process of its own and return its result, which is also stored at ``path``.

    ``threads`` are pinned before torch starts. An interruption ends the process and stores nothing.
    Raises ``JobFailed`` with the end of what the process said.
    """
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, **pinned, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": root}
    path.parent.mkdir(parents=True, exist_ok=True)
    order = json.dumps({"spec": spec, "path": str(path), "threads": threads, "parent": os.getpid()})
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec_lib.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    try:
        said, _ = process.communicate(order + "\n")
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0 or not path.is_file():
        tail = "\n    ".join(said.replace(root, ".").strip().splitlines()[-_ERROR_LINES:])
        raise JobFailed(
            f"job {spec['name']} ended with status {process.returncode} and no result:\n    {tail}",
            expected="a job that runs to its end",
            remedy="status -9 is often memory (see `make doctor`); finished jobs are kept, run again to go on",
        )
    return read_job(path)["result"]


def _shown(path: Path) -> str:
    return f"data/{path.parent.parent.name}/jobs/{path.name}"
