"""Apply each patch of this folder to a copy of the repository and see that its test turns red.

``make faults`` runs all, ``make faults ARGS="<patch or trap> ..."`` some. A patch starts with
``# test: <pytest node id>`` and ``# trap: <number, or a word>``. Its test must pass without the patch and
fail with it: one that stays green under its fault guards nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

FAULTS = Path(__file__).parent
REPOSITORY = FAULTS.parent.parent
GUARDED = {str(trap) for trap in [*range(1, 11), *range(16, 32)]}  # each needs a fault
PATIENCE_S = 900
LANES = min(2, os.cpu_count() or 1)
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded anywhere
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch", "pandas", "scipy.stats", "hypothesis", "pytest"])


class Fault(NamedTuple):
    """A patch, the test it must turn red, and the trap it stands for."""

    patch: Path
    test: str
    trap: str

    @classmethod
    def read(cls, patch: Path) -> Fault:
        first, second, *_ = [*patch.read_text(encoding="utf-8").splitlines(), "", ""]
        if not first.startswith("# test: ") or not second.startswith("# trap: "):
            sys.exit(f"{patch.name}: its first two lines must be `# test: ...` and `# trap: ...`")
        return cls(patch, first.removeprefix("# test: ").strip(), second.removeprefix("# trap: ").strip())


def copy_repository(target: Path) -> Path:
    """The tracked files as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, copy = REPOSITORY / name, target / name
        if not source.is_file():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("data/") or "mathjax" in name:
            copy.symlink_to(source)  # large, and no fault is in them
        else:
            copy.write_bytes(source.read_bytes())
    return target


def run_tests(folder: Path, *nodes: str) -> tuple[int, str]:
    """pytest's status and what it said, from a process forked off one that has torch already."""
    output = folder.with_suffix(".txt")
    process = PROCESSES.Process(target=_pytest, args=(str(folder), str(output), nodes))
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():  # a fault may loop for ever
        process.kill()
        process.join()
    return process.exitcode or 0, output.read_text(encoding="utf-8")


def _pytest(folder: str, output: str, nodes: tuple[str, ...]) -> None:
    os.chdir(folder)
    os.environ["PYTHONPATH"] = folder
    sys.path.insert(0, folder)
    # No bytecode: a patch in the same second and of the same size would be taken for the source before it.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    import pytest

    sys.exit(int(pytest.main(["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=120", *nodes])))


def git_apply(patch: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "apply", "--unsafe-paths", *options, str(patch)]
    # The copy is no repository, and must not be taken for part of one.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def unseen(fault: Fault, folder: Path) -> str:
    """Empty when the fault turned its test red, else what went wrong."""
    applied = git_apply(fault.patch, folder)
    if applied.returncode:
        return f"does not apply: {applied.stderr.strip().splitlines()[:1]}"
    try:
        status, _ = run_tests(folder, "-x", fault.test)
    finally:
        git_apply(fault.patch, folder, "--reverse")
    if status == 1:
        return ""
    return "its test stays green" if status == 0 else f"pytest ended with {status}"


def main(chosen: list[str]) -> int:
    every = [Fault.read(path) for path in sorted(FAULTS.glob("*.patch"))]
    missing = sorted(GUARDED - {fault.trap for fault in every}, key=int)
    faults = [fault for fault in every if not chosen or {fault.patch.stem, fault.trap} & set(chosen)]
    if unknown := set(chosen) - {name for fault in every for name in (fault.patch.stem, fault.trap)}:
        print(f"No fault or trap is called {', '.join(sorted(unknown))}: give a patch's name without .patch.")
        return 2
    start, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="specdec-faults-") as temporary:
        folders: SimpleQueue[Path] = SimpleQueue()
        for lane in range(LANES):
            folders.put(copy_repository(Path(temporary) / str(lane)))
        first = folders.get()
        status, said = run_tests(first, *dict.fromkeys(fault.test for fault in faults))
        folders.put(first)
        if status:
            print(said, "\nThese tests must pass before a fault is planted.", sep="")
            return 1
        print(
            f"{'trap':<20} {'fault':<44} result  (tests pass without: {time.monotonic() - start:.0f} s)",
            flush=True,
        )

        def plant(fault: Fault) -> str:
            folder = folders.get()
            try:
                return unseen(fault, folder)
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(LANES) as lanes:
            for fault, wrong in zip(faults, lanes.map(plant, faults), strict=True):
                failed += bool(wrong)
                print(f"{fault.trap:<20} {fault.patch.stem:<44} {wrong or 'seen'}", flush=True)
    print(f"{len(faults) - failed} of {len(faults)} faults seen in {time.monotonic() - start:.0f} s")
    if missing:
        print(f"traps without a fault: {', '.join(missing)}")
    return 1 if failed or missing or not faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
