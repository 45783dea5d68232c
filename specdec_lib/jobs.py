"""Jobs: one immutable result file each, never run again once finished. No torch on this side.

A job file holds what was asked (``spec``), what came out (``result``) and a checksum over both. A job has a process of
its own (``run_job``), or shares one where the design's isolation allows it (``Served``).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .errors import JobDamaged, JobFailed, MixedDesign, SpecDecError
from .files import atomic_write, canonical_json, sha256_text

ENGINE = "engine_hash"
DONE = "\x04done"  # what the measuring process says after each job
# Handed on by earlier jobs: measured, so it may differ when they are measured anew.
MEASURED = ("prefill_s", "tokens", "passes", "costs", "prediction")
_ERROR_LINES = 12
_ROOT = Path(__file__).resolve().parent.parent


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


def outcomes(folder: Path, name: str) -> dict[str, Any]:
    """The jobs of a data folder whose result says ``name``, and what it says; such as "out_of_memory"."""
    results = ((path.stem, read_job(path)["result"]) for path in sorted((folder / "jobs").glob("*.json")))
    return {job: result[name] for job, result in results if name in result}


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
    path.parent.mkdir(parents=True, exist_ok=True)
    process = _start(threads)
    try:
        said, _ = process.communicate(_order(spec, path, threads))
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0 or not path.is_file():
        raise _failed(spec, process.returncode, said)
    return read_job(path)["result"]


class Served:
    """One process that works off jobs one after the other: what it loaded, compiled and captured is kept between them.

    Started by the first job; ``close`` ends it. Each job is stored when it is done, as by ``run_job``.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.process: subprocess.Popen[str] | None = None

    def run(self, spec: dict[str, Any], path: Path) -> dict[str, Any]:
        """As ``run_job``. Raises ``JobFailed`` when the process dies; the next job then gets a new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        process = self.process = self.process or _start(self.threads)
        assert process.stdin and process.stdout
        said: list[str] = []
        try:
            with contextlib.suppress(BrokenPipeError):  # it has died: its end is read below
                process.stdin.write(_order(spec, path, self.threads))
                process.stdin.flush()
            for line in process.stdout:
                if line.rstrip("\n").endswith(DONE):
                    return read_job(path)["result"]
                said.append(line)
        except BaseException:
            self._end(kill=True)
            raise
        raise _failed(spec, self._end(kill=False), "".join(said))

    def close(self) -> None:
        """End the process: it has no more orders to read."""
        if self.process:
            self._end(kill=False)

    def _end(self, kill: bool) -> int:
        process, self.process = self.process, None
        assert process and process.stdin and process.stdout
        if kill:
            process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _start(threads: int) -> subprocess.Popen[str]:
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    environment = {**os.environ, **pinned, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(_ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "specdec_lib.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip


def _order(spec: dict[str, Any], path: Path, threads: int) -> str:
    order = {"spec": spec, "path": str(path), "threads": threads, "parent": os.getpid()}
    return json.dumps(order) + "\n"


def _failed(spec: dict[str, Any], status: int, said: str) -> JobFailed:
    # An error of the study's own names its remedy; a traceback and a second remedy would only hide it.
    said = said.replace(str(_ROOT), ".").strip()
    _, known, own = said.rpartition(f"\n{SpecDecError.__module__}.")
    if known:
        return JobFailed(f"job {spec['name']} stopped. {own}")
    tail = "\n    ".join(said.splitlines()[-_ERROR_LINES:])
    return JobFailed(
        f"job {spec['name']} ended with status {status} and no result:\n    {tail}",
        expected="a job that runs to its end",
        remedy="status -9 is often memory (see `make doctor`); finished jobs are kept, run again to go on",
    )


def _shown(path: Path) -> str:
    return f"data/{path.parent.parent.name}/jobs/{path.name}"
