"""Tables on disk: CSV that round-trips exactly, checked against one schema each, on writing and on reading.

The schemas are in :mod:`specdec_lib.schemas`. Floats are written with every digit, missing values as an empty
field, booleans as true / false. A file is written whole or not at all.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.errors
import pandera.pandas as pa

from specdec_lib.errors import InvalidSetting, MixedDesign, TableError, TableMissing
from specdec_lib.files import atomic_write
from specdec_lib.schemas import SCHEMAS

_UNITS = {"_s": "s", "_ms": "ms", "_bytes": "bytes", "_tokens": "tokens", "_mhz": "MHz", "_share": "share"}
TEXT = "string[python]"  # what pandera calls pandas' "str"; where pyarrow is installed it has another storage
_TYPES = {"int64": "integer", "Int64": "integer", "float64": "number", TEXT: "text"}
_MEASURE_AGAIN = "restore the file with git, or delete it and run its notebook again"


def schema(name: str) -> pa.DataFrameSchema:
    """The schema called ``name``.

    Raises:
        InvalidSetting: there is none; the error lists those there are.
    """
    if name not in SCHEMAS:
        raise InvalidSetting(f"No table schema {name!r}.", expected="one of " + ", ".join(SCHEMAS))
    return SCHEMAS[name]


def validate(table: pd.DataFrame, schema_name: str, source: str = "") -> pd.DataFrame:
    """``table`` with the schema's column order and dtypes, checked. ``source`` is the name that errors give.

    Raises:
        TableError: a missing or unknown column, a value of the wrong type or out of range.
    """
    rules = schema(schema_name)
    source = source or f"table {schema_name}"
    _require_columns(list(table.columns), rules, source)
    columns = {}
    for name in rules.columns:
        if name in table:
            columns[name] = _typed(list(table[name]), rules.columns[name], name, source)
    return _checked(pd.DataFrame(columns), rules, source)


def write_table(table: pd.DataFrame, path: str | Path, schema_name: str) -> Path:
    """Validate ``table`` and write it atomically as CSV.

    Raises:
        TableError: see :func:`validate`; nothing is written then.
    """
    path = Path(path)
    checked = validate(table, schema_name, path.name)
    _one_design(checked, None, path.name)
    columns = [[_to_text(value) for value in checked[name]] for name in checked.columns]
    return atomic_write(path, "".join(map(_csv_line, [checked.columns, *zip(*columns, strict=True)])))


def _csv_line(values: Iterable[str]) -> str:
    # The writer quotes only what is in its line end: with CR LF there, a lone CR or LF in a value is quoted too.
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow(values)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def read_table(path: str | Path, schema_name: str, design_hash: str | None = None) -> pd.DataFrame:
    """Read and check a table; with ``design_hash``, also that every row is of that design.

    Raises:
        TableMissing: there is no such file.
        TableError: it is truncated, has other columns, or a value out of range; the error names file, column
            and what is right.
        MixedDesign: its rows are of several designs, or not of ``design_hash``.
    """
    path = Path(path)
    rules = schema(schema_name)
    try:
        content = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise TableMissing(
            f"There is no table {path.parent.name}/{path.name}.",
            expected=f"a {schema_name} table: {rules.description}",
            remedy="run the step that makes it: make runs PROFILE=<profile>",
        ) from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path.name} is not UTF-8 text.", expected="CSV", remedy=_MEASURE_AGAIN) from error
    if not content:
        raise TableError(
            f"{path.name} is empty: it has 0 bytes.", expected="a whole file", remedy=_MEASURE_AGAIN
        )
    if not content.endswith("\n"):
        raise TableError(
            f"{path.name} is truncated: its last line has no end.",
            expected="a whole file",
            remedy=_MEASURE_AGAIN,
        )
    try:
        header, *rows = csv.reader(io.StringIO(content, newline=""), strict=True)
    except csv.Error as error:
        raise TableError(f"{path.name} is not valid CSV: {error}.", remedy=_MEASURE_AGAIN) from error
    _require_columns(header, rules, path.name)
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise TableError(
                f"{path.name}: row {number} has {len(row)} fields.",
                expected=f"{len(header)} fields, one per column",
                remedy=_MEASURE_AGAIN,
            )
    columns = {}
    for name, values in zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True):
        columns[name] = _typed([_from_text(value) for value in values], rules.columns[name], name, path.name)
    table = _checked(pd.DataFrame(columns), rules, path.name)
    _one_design(table, design_hash, path.name)
    return table


def data_dictionary() -> pd.DataFrame:
    """Every column of every table: table, column, type, unit, may be empty, allowed values, meaning."""
    rows = [
        {
            "table": name,
            "column": column_name,
            "type": _TYPES.get(_dtype(column), "true / false"),
            "unit": next((unit for end, unit in _UNITS.items() if column_name.endswith(end)), ""),
            "may be empty": bool(column.nullable),
            "allowed": "; ".join(_allowed(check) for check in column.checks or []),
            "meaning": column.description,
        }
        for name, table in SCHEMAS.items()
        for column_name, column in table.columns.items()
    ]
    return pd.DataFrame(rows)


def _allowed(check: pa.Check) -> str:
    values = check.statistics or {}
    if "allowed_values" in values:
        return ", ".join(map(str, values["allowed_values"]))
    if check.name == "str_length":
        return "not empty"
    if check.name == "in_range":
        return f"{values['min_value']} to {values['max_value']}"
    if check.name == "greater_than":
        return f"> {values['min_value']}"
    if check.name == "greater_than_or_equal_to":
        return f">= {values['min_value']}"
    return "hexadecimal"


def _require_columns(found: list[str], rules: pa.DataFrameSchema, source: str) -> None:
    required = [name for name, column in rules.columns.items() if column.required]
    faults = [f"missing {name}" for name in required if name not in found]
    faults += [f"unknown {name}" for name in found if name not in rules.columns]
    faults += [f"repeated {name}" for name in dict.fromkeys(found) if found.count(name) > 1]
    if faults:
        raise TableError(
            f"{source}: columns do not match the {rules.name} table: {'; '.join(faults)}.",
            expected=", ".join(required),
            remedy=_MEASURE_AGAIN,
        )


def _from_text(value: str) -> Any:
    return None if value == "" else value


def _to_text(value: Any) -> str:
    if _missing(value):
        return ""
    if isinstance(value, str):
        return value
    if value is True or value is False or type(value).__name__ == "bool":
        return "true" if value else "false"
    # float() sheds numpy's own repr; repr of a Python float has the digits that read back exactly.
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) or value == ""


def _flag(value: Any) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value]
    if value != bool(value):
        raise ValueError(value)
    return bool(value)


def _whole(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if int(value) != value:
        raise ValueError(value)
    return int(value)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _exact_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int64": ("whole numbers", _whole),
    "Int64": ("whole numbers or empty", _whole),
    "float64": ("finite numbers", _finite),
    "bool": ("true or false", _flag),
    "boolean": ("true, false or empty", _flag),
    TEXT: ("text", _exact_text),
}


def _dtype(column: pa.Column) -> str:
    name = str(column.dtype)
    return TEXT if name.startswith("string[") else name


def _typed(values: list[Any], column: pa.Column, name: str, source: str) -> pd.Series:
    """``values`` in the column's dtype; the first that does not fit is named with its row."""
    dtype = _dtype(column)
    kind, reader = _READERS[dtype]
    out: list[Any] = []
    for row, value in enumerate(values, start=1):
        empty = _missing(value)
        if empty and not column.nullable:
            raise _fault(source, name, row, "is empty", kind, column)
        try:
            out.append(None if empty else reader(value))
        except (ValueError, KeyError, TypeError) as error:
            raise _fault(source, name, row, f"is {value!r}", kind, column) from error
    if dtype == "float64":
        out = [math.nan if value is None else value for value in out]
    return pd.Series(out, dtype="str" if dtype == TEXT else dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _fault(source: str, name: str, row: int, what: str, kind: str, column: pa.Column) -> TableError:
    meaning = (column.description or "").rstrip(".")
    return TableError(
        f"{source}: column {name}, row {row} {what}.", expected=f"{kind} ({meaning})", remedy=_MEASURE_AGAIN
    )


def _checked(table: pd.DataFrame, rules: pa.DataFrameSchema, source: str) -> pd.DataFrame:
    try:
        return rules.validate(table, lazy=True)
    except pandera.errors.SchemaErrors as error:
        case = error.failure_cases.iloc[0]
        # else a rule over several columns, which lists every cell of a row
        one_column = case["schema_context"] == "Column"
        place = f"column {case['column']}" if one_column else "columns"
        row = "" if pd.isna(case["index"]) else f", row {int(case['index']) + 1}"
        more = len(error.failure_cases) - 1 if one_column else 0
        raise TableError(
            f"{source}: {place}{row} "
            + (f"is {str(case['failure_case'])!r}" if one_column else "break a rule")
            + (f" ({more} more like it)." if more else "."),
            expected=str(case["check"]),
            remedy=_MEASURE_AGAIN,
        ) from error


def _one_design(table: pd.DataFrame, design_hash: str | None, source: str) -> None:
    if "design_hash" not in table or table.empty:
        return
    found = sorted(table["design_hash"].unique())
    if len(found) > 1 or (design_hash is not None and found != [design_hash]):
        raise MixedDesign(
            f"{source}: rows are of measurement design {', '.join(found)}.",
            expected=f"only {design_hash}" if design_hash else "one design per table",
            remedy="measure again under the present design, or restore the design.toml of these rows",
        )
