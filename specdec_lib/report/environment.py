"""The provenance tables: one column per folder of results."""

from __future__ import annotations

from typing import Any

from specdec_lib.paths import measuring_hash, project_root
from specdec_lib.report import completeness, folders, style, text


def show_provenance() -> None:
    """One table of everything recorded, a column per folder, and what a folder lacks; or how to get one."""
    import pandas as pd

    root = project_root()
    columns = {one.label: _flat(one.provenance) for one in folders.all_folders(root)}
    if not columns:
        text.say(text.not_measured("a provenance file"))
        return
    keys = list(dict.fromkeys(key for values in columns.values() for key in values))
    recorded = {name: [values.get(key) for key in keys] for name, values in columns.items()}
    frame = pd.DataFrame({"": keys, **recorded})
    style.table(frame.astype(object), caption="What was recorded with each folder of results.")
    text.say(*completeness.sentences(root))
    text.say(
        "`measured_by` counts the jobs by the version of the sources that a measurement depends on. `engine_hash` "
        "names more: those and all that derives tables, as they were when the folder's tables were last made. So it "
        "never equals a hash of `measured_by`."
    )
    for one in folders.all_folders(root):
        today = measuring_hash(one.profile.captured)
        text.say(versions(one.label, one.provenance.get("measured_by", {}), today))


def versions(label: str, by: dict[str, int], today: str) -> str:
    """How many jobs each version of the measuring sources made, and whether today's is one of them; "" if unknown."""
    if not by:
        return ""
    each = text.listed(text.counted(n, "job") for n in sorted(by.values(), reverse=True))
    made = (
        f"{each} by {'one version' if len(by) == 1 else f'{len(by)} versions, in this order,'} of the sources"
    )
    now = "another" if today not in by else "the same" if len(by) == 1 else "one of them"
    return f"{label}: {made}; today's is {now}."


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result |= _flat(item, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = ", ".join(map(str, item)) if isinstance(item, list) else item
    return result
