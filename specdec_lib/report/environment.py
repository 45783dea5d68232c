"""The provenance tables: one column per folder of results."""

from __future__ import annotations

from typing import Any

from specdec_lib.paths import engine_hash, project_root
from specdec_lib.report import folders, style


def show_provenance() -> None:
    """One table of everything recorded, a column per folder; or how to get one."""
    import pandas as pd
    from IPython.display import Markdown, display

    root = project_root()
    columns = {one.label: _flat(one.provenance) for one in folders.all_folders(root)}
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
            display(
                Markdown(
                    f"The sources have changed since **{name}** was measured; its numbers are as they were."
                )
            )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result |= _flat(item, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = ", ".join(map(str, item)) if isinstance(item, list) else item
    return result
