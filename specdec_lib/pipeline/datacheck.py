"""Every table of every folder that joins the report, read before the pages are: an error then names the table, and
not the page that met it first."""

from __future__ import annotations

import json
from pathlib import Path

from specdec_lib.errors import MixedDesign, TableError, TableMissing
from specdec_lib.pipeline import manifest
from specdec_lib.pipeline.table import promise_of
from specdec_lib.records import read_table
from specdec_lib.report import folders

_WHOLE, _RESTORE = "a whole file", "restore the file"  # of what, and how, says the folder it is in


def check_tables(root: Path) -> None:
    """Read the tables that the phases write; a reader's own copies beside them are no results.

    Raises:
        TableError, MixedDesign: the table's own error, with ``data/<folder>/<file>`` and what restores it.
        TableMissing: one that a finished step wrote is gone; or see :func:`specdec_lib.report.folders.all_folders`.
    """
    for one in folders.joining(root):
        for path in sorted(one.folder.iterdir()):
            if promise := promise_of(path.name):
                _check(one, path, promise.schema)
        written = {file for record in manifest.load(one.folder).values() for file in record.outputs}
        for file in sorted(written):
            if promise_of(file) and not (one.folder / file).exists():
                raise TableMissing(
                    f"data/{one.name}/{file} is gone.",
                    expected="every table that the finished steps wrote",
                    remedy=_remedy(one, file, False),
                )


def _check(one: folders.Results, path: Path, schema: str | None) -> None:
    try:
        if not path.is_file():
            raise TableError(f"{path.name} is no file.", expected=_WHOLE, remedy=_RESTORE)
        if schema:
            if read_table(path, schema, one.provenance["design_hash"]).empty:
                raise TableError(f"{path.name} has no row.", expected=_WHOLE, remedy=_RESTORE)
        elif path.stat().st_size == 0:
            raise TableError(f"{path.name} is empty: it has 0 bytes.", expected=_WHOLE, remedy=_RESTORE)
        elif path.suffix == ".json":
            _require_json(path)
    except TableError as error:  # every one of them begins with the file's name
        raise type(error)(
            f"data/{one.name}/{error.what}",
            expected=error.expected,
            remedy=_remedy(one, path.name, isinstance(error, MixedDesign)),
        ) from error


def _require_json(path: Path) -> None:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path.name} is not JSON: {error}.", expected=_WHOLE, remedy=_RESTORE) from error


def _remedy(one: folders.Results, file: str, of_another_design: bool) -> str:
    if one.committed:
        return f"restore it: git checkout data/{one.name}/{file}"
    if not one.command:
        return f"copy it again from where data/{one.name} was measured, or move data/{one.name} away"
    again = f"delete it and run again (finished jobs are kept): {one.command}"
    if of_another_design:
        return f"{again}; or, if design.toml, a prompt or a model changed since, move data/{one.name} away"
    return again
