"""The provenance tables: one column per folder of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specdec_lib.paths import engine_hash, project_root
from specdec_lib.report import style

_NOT_RESULTS = ("models", "prompts", "published")


def result_folders(root: Path) -> list[Path]:
    """Folders under ``data/`` with a provenance file, so that a reader's own machine joins without code."""
    found = sorted(path.parent for path in (root / "data").glob("*/provenance.json"))
    return [folder for folder in found if folder.name not in _NOT_RESULTS and not folder.name.startswith(".")]


def provenance(folder: Path) -> dict[str, Any]:
    """A folder's provenance, nested keys joined with a dot."""
    return _flat(json.loads((folder / "provenance.json").read_text(encoding="utf-8")))


def show_provenance() -> None:
    """One table of everything recorded, a column per folder; or how to get one."""
    import pandas as pd
    from IPython.display import Markdown, display

    root = project_root()
    columns = {folder.name: provenance(folder) for folder in result_folders(root)}
    if not columns:
        display(Markdown("**Not measured here.** Run `make book` to measure on this machine."))
        return
    keys = list(dict.fromkeys(key for values in columns.values() for key in values))
    frame = pd.DataFrame(
        {"": keys, **{name: [values.get(key) for key in keys] for name, values in columns.items()}}
    )
    style.table(frame.astype(object), caption="What was recorded with each folder of results.")
    today = engine_hash(root)
    for name, values in columns.items():
        recorded = values.get("engine_hash")
        if recorded and recorded != today:
            display(Markdown(f"The engine's sources have changed since `{name}` was measured."))


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result |= _flat(item, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = ", ".join(map(str, item)) if isinstance(item, list) else item
    return result
