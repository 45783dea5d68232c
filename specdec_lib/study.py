"""A profile on this machine: its design, its folder, and its jobs, each of which is measured once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from . import paths
from .design import Design, Profile, load_design
from .errors import CacheError, JobFailed, OutOfDeviceMemory
from .jobs import ENGINE, Served, finished, run_job
from .pairs import pair_digest
from .prompts import prompts_digest
from .provenance import record_machine
from .room import cores, require_cores, require_room

Say = Callable[[str], None]
Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")
FULL = "out_of_memory"  # what a job's result says when the GPU had too little memory
# What the cap is about: timed runs. An FP32 control beside the measured models is none; "graphs" has a cap of its own.
CAPPED = ("decode", "mechanism", "costs")
MANY_GRAPHS = ("mechanism", "costs")  # jobs that capture for several k


class Study(NamedTuple):
    """A profile on this machine: the design, its hash, where results go, what the calibration found.

    ``server``: the process that the jobs share, where they may share one (see :func:`sharing`). ``measured``: one list
    that every copy shares, of the jobs measured through this study: provenance must know whether there were any.
    """

    design: Design
    profile: Profile
    design_hash: str
    folder: Path
    machine: dict[str, Any]
    server: Served | None = None
    measured: tuple[list[str], ...] = ()

    @property
    def threads(self) -> int:
        return threads_of(self.profile)

    def spec(self, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        """A job's order: everything that decides what it measures, and nothing about where it runs."""
        p = self.profile
        how: dict[str, Any] = {"mode": p.mode} if p.captured else {}
        if p.memory_cap_gib and kind in CAPPED:
            how["memory_cap_bytes"] = int(p.memory_cap_gib * (1 << 30))
        return {
            "kind": kind, "name": name, "profile": p.name, "design_hash": self.design_hash,
            ENGINE: paths.measuring_hash(p.captured or kind == "graphs"), "pair": p.pair,
            "device": self.machine["device"], "dtype": self.machine["dtype"], "new_tokens": p.new_tokens,
            "prefill_chunk": p.prefill_chunk, **how,
            **fields,
        }  # fmt: skip

    def known(self, spec: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a finished job, or None. Raises ``OutOfDeviceMemory`` where that was its outcome."""
        return _whole(spec, finished(self.job_file(spec), spec, keep_engine=self.profile.committed))

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The job's result: read if it is finished, else measured now. Raises what ``known`` and ``measure`` raise."""
        done = self.known(spec)
        return done if done is not None else self.measure(spec, self.job_file(spec))

    def measure(self, spec: dict[str, Any], path: Path) -> dict[str, Any]:
        """Run the job, in a process of its own or in the shared one. Raises ``JobFailed``, and ``OutOfDeviceMemory``
        where the GPU had too little memory: an outcome that is stored like any other. ``InvalidSetting``, before
        anything runs, where the profile pins more threads than there are cores."""
        require_cores(self.profile)
        for jobs in self.measured:
            jobs.append(spec["name"])
        result = self.server.run(spec, path) if self.server else run_job(spec, path, self.threads)
        capped = self.profile.captured and self.profile.memory_cap_gib
        if self.server and capped and spec["kind"] in MANY_GRAPHS:
            self.server.close()  # every k had caches of its own: with them the next prefill may not fit
        whole = _whole(spec, result)
        assert whole is not None
        return whole

    def job_file(self, spec: dict[str, Any]) -> Path:
        """Where the job's result is, or will be."""
        return self.folder / "jobs" / f"{spec['name']}.json"


def _whole(spec: dict[str, Any], result: dict[str, Any] | None) -> dict[str, Any] | None:
    if result is not None and FULL in result:
        raise OutOfDeviceMemory(
            f"job {spec['name']}: {result[FULL]}",
            expected=f"room for {spec['pair']} on the GPU, or under the profile's cap",
            remedy="the outcome is recorded and the run goes on; delete the job's file to measure it again",
        )
    return result


@contextlib.contextmanager
def sharing(study: Study) -> Iterator[Study]:
    """The study with one process for all its jobs, where the design isolates no more than cells; else as it is.

    For phases, whose comparisons are inside a job. Nested, the outer process serves.
    """
    if study.server or study.profile.isolation == "block":
        yield study
        return
    server = Served(study.threads)
    try:
        yield study._replace(server=server)
    finally:
        server.close()


def threads_of(profile: Profile) -> int:
    """The profile's thread count, or every core this process may use."""
    return profile.threads or cores()


def open_study(profile_name: str, folder: Path, design: Design | None = None) -> Study:
    """Validate the profile, settle the dtype once for all its jobs, and measure the bandwidth beside them.

    Raises ``OutOfDeviceMemory`` before anything is measured on a GPU that is too small for the profile.
    """
    design = design or load_design()
    profile = design.profile(profile_name)
    if folder.name != profile_name:  # a reader's own measurement of it: old jobs are no committed results
        profile = profile.model_copy(update={"committed": False})
    design_hash = design.measurement_hash(profile, prompts_digest(), pair_digest(profile.pair))
    unsettled = {"device": profile.device, "dtype": profile.dtype}
    blank = Study(design, profile, design_hash, folder, unsettled, measured=([],))
    spec = blank.spec("calibrate", "calibrate")
    found = blank.known(spec)
    if found is None:
        require_room(design, profile)
        found = blank.measure(spec, blank.job_file(spec))
        if found["device"] != "cpu":  # its tables may be made on another machine
            record_machine(folder, threads_of(profile))
    return blank._replace(machine=found)


def where_it_fits(
    items: Iterable[Item], work: Callable[[Item], Result], what: str, say: Say = lambda line: None
) -> dict[Item, Result]:
    """``work`` on every item that finds enough GPU memory; the others' outcome is recorded and said.

    Raises ``OutOfDeviceMemory`` if none did.
    """
    planned = list(items)
    found: dict[Item, Result] = {}
    full: OutOfDeviceMemory | None = None
    for number, item in enumerate(planned, start=1):
        try:
            found[item] = work(item)
        except OutOfDeviceMemory as outcome:
            full = outcome
            say(str(outcome))
        name = "-".join(map(str, item)) if isinstance(item, tuple) else str(item)
        say(f"{number}/{len(planned)} {what}-{name}")
    if full and not found:
        raise full
    return found


def prefill_spec(study: Study, family: str, context: int) -> dict[str, Any]:
    """The prompt's hash and the prefill's seconds stay in this job's file, its caches only while they are needed."""
    return study.spec("prefill", f"prefill-{context}-{family}", families=[family], context=context)


def run_from_store(study: Study, spec: dict[str, Any], context: int) -> dict[str, Any]:
    """The result of a job that decodes from stored prefills; missing ones are made again first."""
    done = study.known(spec)
    if done is not None:
        return done
    families = list(spec["prefill_s"])
    _make_caches(study, families, context)
    try:
        return study.measure(spec, study.job_file(spec))
    except JobFailed as failed:
        if CacheError.__name__ not in str(failed):
            raise
    for path in _caches(study, families, context):  # damaged, or of an older format
        path.unlink(missing_ok=True)
    _make_caches(study, families, context)
    return study.measure(spec, study.job_file(spec))


def _caches(study: Study, families: list[str], context: int) -> list[Path]:
    names = [f"{family}-{context}-{role}" for family in families for role in ("target", "draft")]
    return [study.folder / ".prefill" / f"{name}.safetensors" for name in names]


def _make_caches(study: Study, families: list[str], context: int) -> None:
    """Make the stored prefills that are not there, after an interruption say."""
    for family in families:
        if not all(path.is_file() for path in _caches(study, [family], context)):
            # not in jobs/: the result that stands there stays
            again = study.folder / ".prefill" / f"{family}-{context}.json"
            study.measure(prefill_spec(study, family, context), again)
            again.unlink()


def shared_columns(study: Study) -> dict[str, str]:
    return {"profile": study.profile.name, "design_hash": study.design_hash}


def say_line(line: str) -> None:
    """One line to standard error."""
    print(line, file=sys.stderr, flush=True)
