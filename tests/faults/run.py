"""Apply each patch of this folder to a copy of the repository; its test must turn red: ``make faults``.

A patch starts with one line, ``# test: <pytest node id>``. ``python tests/faults/run.py name ...`` runs some.
A test that stays green under its fault guards nothing, so that is the failure here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FAULTS = Path(__file__).parent
REPOSITORY = FAULTS.parent.parent


def copy_repository(target: Path) -> None:
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


def git_apply(patch: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "apply", "--unsafe-paths", *options, str(patch)]
    # GIT_DIR nowhere: the copy is no repository, and must not be taken for part of one
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def seen(patch: Path, folder: Path) -> str:
    """Empty when the fault turned its test red, else what went wrong."""
    first = patch.read_text(encoding="utf-8").splitlines()[0]
    if not first.startswith("# test: "):
        return "its first line names no test"
    applied = git_apply(patch, folder)
    if applied.returncode:
        return f"does not apply: {applied.stderr.strip().splitlines()[:1]}"
    environment = os.environ | {"PYTHONPATH": str(folder)}
    node = first.removeprefix("# test: ").strip()
    test = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", node]
    try:
        done = subprocess.run(test, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    finally:
        git_apply(patch, folder, "--reverse")
    if done.returncode == 1:
        return ""
    return "its test stays green" if done.returncode == 0 else f"pytest ended with {done.returncode}"


def main(names: list[str]) -> int:
    patches = [path for path in sorted(FAULTS.glob("*.patch")) if not names or path.stem in names]
    unseen = 0
    with tempfile.TemporaryDirectory(prefix="specdec-faults-") as folder:
        copy_repository(Path(folder))
        for patch in patches:
            fault = seen(patch, Path(folder))
            unseen += bool(fault)
            print(f"{patch.stem}: {fault or 'seen'}", flush=True)
    print(f"{len(patches) - unseen} of {len(patches)} faults seen")
    return 1 if unseen or not patches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
