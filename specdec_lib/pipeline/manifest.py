"""Which steps are up to date, decided by content alone: no times, no absolute paths.

``data/<profile>/manifest.json`` holds, for each finished step, the hash of everything that went in and the
SHA-256 of every file that came out. A clone, ``touch`` or a wrong clock changes neither; an edited table
changes the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_lib.files import atomic_write, canonical_json, sha256_file, sha256_text

MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class Record:
    """A finished step: the hash of its inputs and {file relative to the data folder: SHA-256}."""

    inputs: str
    outputs: Mapping[str, str]


def load(folder: Path) -> dict[str, Record]:
    """What has finished; nothing when the file is missing or unreadable, so that the steps run again."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            return {}
        return {name: Record(entry["inputs"], entry["outputs"]) for name, entry in content["steps"].items()}
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        return {}


def save(folder: Path, records: Mapping[str, Record]) -> None:
    """Write the manifest, whole."""
    entries = {name: {"inputs": r.inputs, "outputs": dict(r.outputs)} for name, r in records.items()}
    document = {"format": _FORMAT, "steps": entries}
    atomic_write(folder / MANIFEST, json.dumps(document, indent=1, sort_keys=True) + "\n")


def inputs_hash(parts: Mapping[str, Any]) -> str:
    """One hash for everything a step depends on."""
    return sha256_text(canonical_json(parts))


def hashes(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """{file: SHA-256, or "" when it is missing}."""
    return {name: sha256_file(folder / name) if (folder / name).is_file() else "" for name in files}


def up_to_date(record: Record | None, inputs: str, folder: Path, promised: Iterable[str]) -> bool:
    """Whether a step need not run: same inputs, and every file still as it left it."""
    return record is not None and record.inputs == inputs and whole(record, folder, promised)


def whole(record: Record, folder: Path, promised: Iterable[str]) -> bool:
    """Whether every file of a finished step is still as it left it."""
    return set(promised) <= set(record.outputs) and hashes(folder, record.outputs) == dict(record.outputs)
