"""What every committed collection of one eager GPU folder says of the audit's two claims, read from the history.

    python benchmarks/eager_collections.py > data/h200-engine/eager-collections.csv

A collection is a version of the folder's tables in git. Each is read by today's sources, as the report reads the
newest: c by the stages of the confirmatory runs, by the fit, and by single steps in pairs where it has them; R of the
reference formulation measured against predicted. A version whose confirmatory runs are those of an earlier one has no
``c_staged`` of its own. Needs the whole history of the repository.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pandas as pd  # noqa: E402

from specdec_lib.report import carried, folders, regimes  # noqa: E402

FOLDER = "data/h200-shapes-eager"
COST_MODEL, RUNS = f"{FOLDER}/cost-model.csv", f"{FOLDER}/confirmatory-2048.csv"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def versions() -> list[str]:
    """The commits that changed the folder's cost model, oldest first."""
    return git("log", "--reverse", "--format=%H", "--", COST_MODEL).decode().split()


def rows_of(commit: str, seen: set[str]) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copy(ROOT / "design.toml", root)
        (root / "data").mkdir()
        for other in (ROOT / "data").iterdir():
            if other != ROOT / FOLDER:
                (root / "data" / other.name).symlink_to(other)
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, FOLDER))) as archive:
            archive.extractall(root, filter="data")
        (one,) = [one for one in folders.all_folders(root) if one.folder.name == Path(FOLDER).name]
        blob = git("rev-parse", f"{commit}:{RUNS}").decode()
        fresh = blob not in seen
        seen.add(blob)
        fitted = {point.context: point.c for point in regimes.folder_points(one) if point.line}
        residuals, pairs = carried.reference_residuals(one), regimes.paired(one)
        return [
            {
                "measured": one.provenance["measured"]
                if "measured" in one.provenance
                else one.provenance["started"],
                "commit": one.provenance["git"]["commit"][:12],
                "context_tokens": context,
                "c_staged": regimes.staged(one, context)["draft forward"] if fresh else None,
                "c_fit": fitted.get(context),
                "c_paired": pairs.get(context),
                "reference_residual": residuals.get(context),
            }
            for context in one.contexts
        ]


def main() -> int:
    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        print("eager_collections needs the whole history: git fetch --unshallow", file=sys.stderr)
        return 2
    seen: set[str] = set()
    found = [
        {"collection": number} | row
        for number, commit in enumerate(versions(), start=1)
        for row in rows_of(commit, seen)
    ]
    pd.DataFrame(found).to_csv(sys.stdout, index=False, float_format="%.6g", lineterminator="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
