"""Runs the steps of a profile that are not up to date, one after the other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdec_lib.design import Design, Profile, load_design
from specdec_lib.errors import (
    CannotWrite,
    InvalidSetting,
    PromiseBroken,
    SpecDecError,
    StaleTable,
    TableMissing,
)
from specdec_lib.files import atomic_write
from specdec_lib.paths import DESIGN_FILE, engine_hash
from specdec_lib.pipeline import manifest, notebook, table
from specdec_lib.pipeline.execute import execute
from specdec_lib.pipeline.lock import data_lock, named_write_errors
from specdec_lib.pipeline.progress import Progress
from specdec_lib.room import require_cores, require_gpu
from specdec_lib.variants import PHASES

# The design hash that the rows of a profile's tables must carry; tests give one that needs no prompts or
# weights.
DesignHash = Callable[[Path, Design, Profile], str]
# Folders of a reader's own: git ignores them, no profile has such a name, and `-lab` is for trials.
_OWN = re.compile(r"my-[a-z0-9][a-z0-9-]{0,60}(?<!-lab)")  # file systems end at 255 bytes, suffixes included


@dataclass(frozen=True)
class Outcome:
    """What a run did: names of the steps executed and of those that were up to date."""

    executed: tuple[str, ...]
    kept: tuple[str, ...]


def run_profile(
    root: Path,
    profile_name: str,
    *,
    phases: tuple[table.Phase, ...] | None = None,
    design_hash: DesignHash | None = None,
    again: bool = False,
    named: str = "",
) -> Outcome:
    """Bring ``data/<profile>/`` up to date, or ``data/<named>/`` with the same profile measured on this machine.

    Every notebook and parameter is checked before anything runs. A step's old record is dropped before it
    starts and written after it ended well, so whatever interrupts it, the next run does it again; the jobs
    it finished are kept. What a committed profile has of today's design is kept, whatever sources made it.

    Args:
        again: run every step, up to date or not.
        named: a folder of the reader's own, ``my-...``: nothing in it counts as committed.

    Raises:
        InvalidSetting: ``named`` is no such name; or nothing is measured yet, and the profile pins more threads than
            this machine has cores.
        NoCudaDevice: nothing is measured yet, and the profile asks for a GPU that torch does not see.
        TableMissing: nothing is measured yet, and the profile replays traces that are not there.
        NotebookError: see the classes in errors.py; each names the notebook.
        RunInProgress, CannotWrite, InvalidDesign, UnknownProfile.
    """
    design = load_design(root / DESIGN_FILE)
    profile = design.profile(profile_name)
    if named and not _OWN.fullmatch(named):
        raise InvalidSetting(
            f"A folder of your own cannot be called {named!r}.",
            expected="my- and then at most 61 small letters, digits and hyphens, such as my-full",
            remedy="choose such a name; git ignores these folders",
        )
    plan = table.steps(profile, phases, named)
    notebooks = {step.notebook: notebook.read_notebook(_path(root, step)) for step in plan}
    for step in plan:
        known = notebook.defaults(notebooks[step.notebook], step.notebook)
        notebook.check_parameters(step.notebook, step.parameters, known)

    folder = root / "data" / (named or profile_name)
    # What another machine measured may be derived and shown here, whatever its cores were.
    if not (folder / "jobs" / "calibrate.json").is_file():
        require_cores(profile)
        require_gpu(profile)
        require_traces(root, profile)
    measurement = (design_hash or _design_hash)(root, design, profile)
    base = {"engine": engine_hash(root), "measurement": measurement, "analysis": design.analysis_hash()}

    def inputs(step: table.Step) -> str:
        needed = [p.path for other in plan if other.name in step.needs for p in other.promises]
        return manifest.inputs_hash(
            {
                **base,
                "notebook": notebook.content_hash(notebooks[step.notebook]),
                "parameters": dict(step.parameters),
                "promises": [[p.path, p.schema] for p in step.promises],
                "needs": manifest.hashes(folder, needed),
            }
        )

    def fresh(step: table.Step, records: dict[str, manifest.Record]) -> bool:
        record = records.get(step.name)
        # Committed results stay as they were measured and derived, whatever the sources are today.
        if profile.committed and not named and record is not None:
            return manifest.whole(record, folder, _outputs(step)) and _of_design(folder, step, measurement)
        return manifest.up_to_date(records.get(step.name), inputs(step), folder, _outputs(step))

    records = manifest.load(folder)
    if not again and all(fresh(step, records) for step in plan):
        return Outcome((), tuple(step.name for step in plan))

    with data_lock(folder, root):
        for left in folder.rglob(".*.tmp"):  # by a save that was killed: nobody else writes here now
            left.unlink(missing_ok=True)
        records = manifest.load(folder)  # another run may have ended since
        todo = [step for step in plan if again or not fresh(step, records)]
        progress = Progress(len(todo))
        _announce(progress, profile, len(todo), len(plan))
        executed: list[str] = []
        try:
            for step in plan:
                # What a step reads may have changed in this very run, so ask again.
                if not again and fresh(step, records):
                    continue
                progress.start(step.name)
                with named_write_errors(folder, root):
                    if records.pop(step.name, None):
                        manifest.save(folder, records)
                    # Taken before the run: what is edited while it runs makes the next run do it again.
                    taken = inputs(step)
                    _run_step(root, folder, step, measurement)
                    records[step.name] = manifest.Record(
                        taken, manifest.hashes(folder, [*_outputs(step), *_jobs(folder)])
                    )
                    manifest.save(folder, records)
                executed.append(step.name)
                progress.finish(step.name)
            # Stored prefills serve every phase, and are gigabytes: they go once all steps are done.
            shutil.rmtree(folder / ".prefill", ignore_errors=True)
        finally:
            progress.close()
    return Outcome(tuple(executed), tuple(step.name for step in plan if step.name not in executed))


def require_traces(root: Path, profile: Profile) -> None:
    """Refuse a profile whose mechanism phases replay traces that nothing has recorded here."""
    source, replays = profile.traces_from, set(profile.phases) & set(PHASES)
    if source and replays and not (root / "data" / source / "traces.csv").is_file():
        raise TableMissing(
            f"Profile {profile.name!r} replays the traces of data/{source}, which has no traces.csv.",
            expected="the table that the phase acceptance of that profile writes",
            remedy=f"make runs PROFILE={source}, or restore it from git; or drop traces_from in design.toml",
        )


def missing_results(
    root: Path, profile_name: str, phases: tuple[table.Phase, ...] | None = None
) -> list[str]:
    """Files, relative to ``data/<profile>/``, that the profile's steps promise and that are not there."""
    profile = load_design(root / DESIGN_FILE).profile(profile_name)
    files = [file for step in table.steps(profile, phases) for file in _outputs(step)]
    found = manifest.hashes(root / "data" / profile_name, files)
    return [name for name, digest in found.items() if not digest]


def _path(root: Path, step: table.Step) -> Path:
    return root / "notebooks" / f"{step.notebook}.ipynb"


def _executed_copy(step: table.Step) -> str:
    return f"notebooks/{step.name}.ipynb"


def _outputs(step: table.Step) -> list[str]:
    return [_executed_copy(step), *(promise.path for promise in step.promises)]


def _jobs(folder: Path) -> list[str]:
    """Raw results so far: a step whose job was damaged or deleted since must look at it again."""
    return [path.relative_to(folder).as_posix() for path in sorted((folder / "jobs").glob("*.json"))]


def _design_hash(root: Path, design: Design, profile: Profile) -> str:
    from specdec_lib.pairs import pair_digest
    from specdec_lib.prompts import get_family, prompts_digest

    for family in (*profile.families, *design.measurement.development):
        get_family(family, root / "data" / "prompts")  # a misspelt name is refused before any step

    prompts = prompts_digest(root / "data" / "prompts")
    return design.measurement_hash(profile, prompts, pair_digest(profile.pair))


def _announce(progress: Progress, profile: Profile, todo: int, total: int) -> None:
    progress.say(f"Profile {profile.name}: {profile.title}")
    estimate = ", ".join(f"{phase} {minutes:g}" for phase, minutes in profile.minutes.items())
    progress.say(
        f"Estimated minutes when nothing is done yet: {estimate} (together {profile.total_minutes:g})."
    )
    progress.say(f"{todo} of {total} steps to run.")


def _run_step(root: Path, folder: Path, step: table.Step, design_hash: str) -> None:
    before = {promise.path: _signature(folder / promise.path) for promise in step.promises}
    executed = execute(root, _path(root, step), step.parameters)
    where = f"notebooks/{step.notebook}.ipynb (step {step.name})"
    for promise in step.promises:
        after = _signature(folder / promise.path)
        if after is None or after == before[promise.path]:
            verb = "writing" if after is None else "renewing"
            raise PromiseBroken(
                f"{where} ended without {verb} {_data(folder, promise.path)}.",
                expected="every file that specdec_lib/pipeline/table.py promises, written by this run",
                remedy="write it in the notebook, or correct the promise",
            )
        _check_content(folder, promise, design_hash, where)
    atomic_write(folder / _executed_copy(step), notebook.publishable(executed, root, step.notebook))


def _of_design(folder: Path, step: table.Step, design_hash: str) -> bool:
    try:
        for promise in step.promises:
            _check_content(folder, promise, design_hash, step.name)
    except StaleTable:
        return False
    return True


def _check_content(folder: Path, promise: table.Promise, design_hash: str, where: str) -> None:
    path = folder / promise.path
    try:
        if promise.schema:
            from specdec_lib.records import read_table

            read_table(path, promise.schema, design_hash=design_hash)
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
    except CannotWrite:
        raise
    except (SpecDecError, ValueError) as error:
        raise StaleTable(
            f"{where} wrote {_data(folder, promise.path)}, which does not fit this design:\n  {error}",
            expected=f"rows of design {design_hash}",
            remedy=f"correct the notebook, or delete {_data(folder, promise.path)} and run again",
        ) from error


def _data(folder: Path, name: str) -> str:
    return f"data/{folder.name}/{name}"


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file is written anew, even with the same bytes."""
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
