"""Where things are: the one module that turns names into folders."""

from __future__ import annotations

import os
from pathlib import Path

from specdec_lib.errors import InvalidDesign
from specdec_lib.files import sha256_file, sha256_text

DESIGN_FILE = "design.toml"
# Not part of the engine: they arrange and show what was measured, and cannot change a measured value.
_NOT_ENGINE = ("pipeline", "report")
# What a measured time or token depends on. A change elsewhere leaves finished jobs valid.
_MEASURING = (
    "acceptance", "bandwidth", "bench", "cache", "calibrate", "config", "decoding", "generation", "host", "load",
    "model", "naive", "numerics", "pairs", "prefilled", "projection", "prompts", "proposers", "protocol", "request",
    "timing", "tokenizer", "variants", "weights", "worker",
)  # fmt: skip
# And, where both arms replay captured graphs, also on these and on the kernels.
_CAPTURED = (
    "captured", "capture", "device_state", "fused", "graph_phase", "graphs", "modes", "per_position", "static",
)  # fmt: skip


def project_root(start: str | Path | None = None) -> Path:
    """The folder that holds ``design.toml``: ``$SPECDEC_ROOT`` if set, else the nearest one above ``start``
    (or here).

    Raises:
        InvalidDesign: there is none.
    """
    given = os.environ.get("SPECDEC_ROOT") if start is None else None
    here = Path(given or start or Path.cwd()).resolve()
    for folder in [here] if given else [here, *here.parents]:
        if (folder / DESIGN_FILE).is_file():
            return folder
    raise InvalidDesign(
        f"No {DESIGN_FILE} in the project root set by SPECDEC_ROOT."
        if given
        else f"No {DESIGN_FILE} here or above.",
        expected="to run inside a checkout of the study",
        remedy="change into the repository's root, or set SPECDEC_ROOT to it",
    )


def data_folder(profile: str, data_dir: str = "", root: str | Path | None = None) -> Path:
    """The folder a notebook writes to.

    ``data_dir`` is what the pipeline passes, relative to the project root. Empty (a notebook opened by hand)
    gives ``data/<profile>-lab``, so that trying things out never touches a profile's results.
    """
    base = Path(root) if root else project_root()
    return base / (data_dir or f"data/{profile}-lab")


def engine_hash(root: str | Path | None = None) -> str:
    """16 hex digits that name the sources that can change a measured or derived value (``specdec_lib``
    without ``pipeline`` and ``report``). Recorded with results; a page says when it differs today.
    """
    package = Path(root) / "specdec_lib" if root else Path(__file__).parent
    files = sorted(
        path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _NOT_ENGINE
    )
    return sha256_text("\n".join(f"{p.relative_to(package).as_posix()} {sha256_file(p)}" for p in files))[:16]


def measuring_hash(captured: bool = False) -> str:
    """16 hex digits that name the sources a measurement depends on; every job carries it. ``captured``: with those that
    only runs by captured graphs depend on."""
    package = Path(__file__).parent
    files = [package / f"{name}.py" for name in _MEASURING + _CAPTURED * captured]
    files += sorted((package / "kernels").glob("*.py")) * captured
    return sha256_text("\n".join(f"{path.stem} {sha256_file(path)}" for path in files))[:16]
