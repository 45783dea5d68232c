"""The provenance tables: one column per folder of results."""

from __future__ import annotations

from typing import Any

from specdec_lib.paths import measuring_hash, project_root
from specdec_lib.report import folders, style, text


def show_provenance() -> None:
    """One table of everything recorded, a column per folder; or how to get one."""
    import pandas as pd

    root = project_root()
    columns = {one.label: _flat(one.provenance) for one in folders.all_folders(root)}
    if not columns:
        text.say(text.not_measured("a provenance file"))
        return
    keys = list(dict.fromkeys(key for values in columns.values() for key in values))
    frame = pd.DataFrame(
        {"": keys, **{name: [values.get(key) for key in keys] for name, values in columns.items()}}
    )
    style.table(frame.astype(object), caption="What was recorded with each folder of results.")
    today = measuring_hash()
    changed = [name for name, values in columns.items() if set(values.get("measured_by", {})) - {today}]
    if changed:
        text.say(f"The sources that measure have changed since these were measured: {text.listed(changed)}.")


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result |= _flat(item, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = ", ".join(map(str, item)) if isinstance(item, list) else item
    return result
