"""Notebooks as the runner sees them: one parameters cell of literals, and executed copies fit to publish."""

from __future__ import annotations

import ast
import getpass
import json
import math
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_lib.errors import (
    DerivedParameter,
    NotebookDamaged,
    NotebookTooLarge,
    ParameterType,
    UnknownParameter,
    UntaggedNotebook,
)
from specdec_lib.files import canonical_json, sha256_text

MAX_EXECUTED_BYTES = 300_000


def read_notebook(path: Path) -> dict[str, Any]:
    """The notebook's JSON.

    Raises:
        NotebookDamaged: missing or not a notebook of format 4.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotebookDamaged(
            f"There is no notebook notebooks/{path.name}.",
            expected="the notebook that specdec_lib/pipeline/table.py names",
            remedy=f"restore it: git checkout notebooks/{path.name}",
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        what = f"notebooks/{path.name} is not JSON: {error}."
        raise NotebookDamaged(what, remedy="restore it from git") from error
    of_format = isinstance(content, dict) and content.get("nbformat") == 4
    if not of_format or not isinstance(content.get("cells"), list):
        raise NotebookDamaged(
            f"notebooks/{path.name} is not a notebook of format 4.", remedy="restore it from git"
        )
    return content


def source(cell: Mapping[str, Any]) -> str:
    """A cell's text; the format allows one string or a list of lines."""
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def tags(cell: Mapping[str, Any]) -> list[str]:
    """A cell's tags."""
    return list(cell.get("metadata", {}).get("tags", []))


def content_hash(notebook: Mapping[str, Any]) -> str:
    """Names what the notebook does: its cells' kinds, texts and tags. Outputs and other metadata do not
    count."""
    cells = [[cell.get("cell_type"), source(cell), sorted(tags(cell))] for cell in notebook["cells"]]
    return sha256_text(canonical_json(cells))


def defaults(notebook: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Parameters and their default values, from the one cell tagged ``parameters``.

    papermill only warns when that cell is missing and then runs with the defaults; and a value derived there
    from another parameter keeps what the default gave. Both are refused.

    Raises:
        UntaggedNotebook: not exactly one such cell.
        DerivedParameter: something other than ``name = literal`` in it.
    """
    where = f"notebooks/{name}.ipynb"
    tagged = [cell for cell in notebook["cells"] if "parameters" in tags(cell)]
    if len(tagged) != 1 or tagged[0].get("cell_type") != "code":
        raise UntaggedNotebook(
            f"{where} has {len(tagged)} cells tagged `parameters`.",
            expected="exactly one code cell with that tag",
            remedy="add the tag in Jupyter's property inspector to the cell that holds the parameters",
        )
    if any("injected-parameters" in tags(cell) for cell in notebook["cells"]):
        raise UntaggedNotebook(
            f"{where} holds parameters injected by an earlier run.",
            expected="a source notebook, not an executed copy",
            remedy="delete the cell tagged `injected-parameters`",
        )
    try:
        statements = ast.parse(source(tagged[0])).body
    except SyntaxError as error:
        raise DerivedParameter(
            f"{where}: the parameters cell is not Python: {error}.",
            expected="lines of `name = literal`",
            remedy="correct that line of the cell tagged `parameters` (`make lab` opens the notebook)",
        ) from error
    values: dict[str, Any] = {}
    for statement in statements:
        key, value = _assignment(statement)
        try:
            parsed = ast.literal_eval(value) if value is not None else _NotPlain
        except (ValueError, TypeError, SyntaxError):
            parsed = _NotPlain
        if key is None or not _plain(parsed):
            raise DerivedParameter(
                f"{where}: `{ast.unparse(statement)}` in the parameters cell is not `name = literal`.",
                expected="numbers, strings, booleans, None, lists of them (a tuple would arrive as a string)",
                remedy="move derived values to the next cell: here they keep the value that the default gave",
            )
        values[key] = parsed
    return values


class _NotPlain:
    """Stands for a value that is no literal."""


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign):
        target, value = statement.target, statement.value
    else:
        return None, None
    return (target.id if isinstance(target, ast.Name) else None), value


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def check_parameters(name: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a parameter the notebook does not have (papermill only warns) and one of another type.

    Raises:
        UnknownParameter: with the names there are.
        ParameterType: types are those of the defaults; an int may stand for a float, a bool never for an int.
    """
    where = f"notebooks/{name}.ipynb"
    for key, value in given.items():
        if key not in known:
            raise UnknownParameter(
                f"{where} has no parameter {key!r}.",
                expected="one of " + ", ".join(known),
                remedy="correct the name in specdec_lib/pipeline/table.py or in the notebook",
            )
        default = known[key]
        same = (
            type(value) is type(default) or default is None or (type(default) is float and type(value) is int)
        )
        if not same or not _plain(value):
            raise ParameterType(
                f"{where}: parameter {key} = {value!r} is a {type(value).__name__}.",
                expected=f"a {type(default).__name__}, as its default {default!r}",
                remedy="correct the value in specdec_lib/pipeline/table.py",
            )


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Bounded repeats: a long text without a blank (a picture) must not take quadratic time.
_KERNEL_FILE = re.compile(r"(?:/[^\s/\"'<>]{1,64}){0,12}/ipykernel_\d+/\d+\.py")
_KEPT_METADATA = {"tags", "jupyter"}


def plain_text(text: str, root: Path) -> str:
    """``text`` without colours, absolute paths, user or host: what may be printed in a page or kept in
    ``data/``.
    """
    text = _KERNEL_FILE.sub("<cell>", _ANSI.sub("", text))
    for secret, replacement in private_strings(root):
        text = text.replace(secret, replacement)
    return text


def private_strings(root: Path) -> list[tuple[str, str]]:
    """Strings that tell whose machine this was, each with what to write instead; longest first."""
    home, temporary = str(Path.home()), tempfile.gettempdir()
    pairs = {spelled: "<tmp>" for spelled, _ in spellings(temporary)}
    for spelled, separator in spellings(str(root.resolve())):
        pairs |= {f"{spelled}{separator}": "", spelled: "."}
    if home != "/":
        pairs |= {f"{spelled}{separator}": "~/" for spelled, separator in spellings(home)}
    host = socket.gethostname()
    if len(host) > 6:  # a short one ("linux") would hit words of the text
        pairs[host] = "<host>"
    user = _user()
    if user:
        pairs |= {f"/home/{user}": "~", f"/Users/{user}": "~"}
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


def spellings(place: str) -> list[tuple[str, str]]:
    """A path as texts hold it, each with its separator: as it is; on Windows also escaped, and with slashes."""
    if "\\" not in place:
        return [(place, "/")]
    return [(place, "\\"), (place.replace("\\", "\\\\"), "\\\\"), (place.replace("\\", "/"), "/")]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry for this uid, as in some containers
        return ""


def publishable(notebook: Mapping[str, Any], root: Path, name: str) -> str:
    """The executed notebook as text to keep: no paths, no papermill or timing metadata, no widget state.

    Raises:
        NotebookTooLarge: over 300 kB.
    """
    cells = []
    for cell in notebook["cells"]:
        kept = {key: value for key, value in cell.items() if key != "metadata"}
        kept["metadata"] = {k: v for k, v in cell.get("metadata", {}).items() if k in _KEPT_METADATA}
        if "injected-parameters" in tags(cell):
            kept["id"] = "injected-parameters"  # papermill draws one at random
        if "outputs" in cell:
            kept["outputs"] = [_strip_widget(output) for output in cell["outputs"]]
        cells.append(kept)
    language = {"name": "python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": _clean(cells, root),
        "metadata": {"kernelspec": kernel, "language_info": language},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if len(text.encode()) > MAX_EXECUTED_BYTES:
        raise NotebookTooLarge(
            f"notebooks/{name}.ipynb leaves an executed copy of {len(text.encode()) // 1000} kB.",
            expected=f"at most {MAX_EXECUTED_BYTES // 1000} kB",
            remedy="print less, or save figures with fewer points",
        )
    return text


def _strip_widget(output: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in output.items() if key != "transient"}
    if isinstance(kept.get("data"), dict):
        kept["data"] = {kind: value for kind, value in kept["data"].items() if "widget" not in kind}
    return kept


def _clean(value: Any, root: Path) -> Any:
    if isinstance(value, str):
        return plain_text(value, root)
    if isinstance(value, list):
        return [_clean(item, root) for item in value]
    if isinstance(value, Mapping):
        return {key: _clean(item, root) for key, item in value.items()}
    return value
