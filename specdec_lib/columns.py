"""The vocabulary of the table schemas: one builder per kind of column, and the columns that many tables share."""

from __future__ import annotations

from typing import Any

import pandera.pandas as pa


def column(
    dtype: str, description: str, *checks: pa.Check, null: bool = False, optional: bool = False
) -> pa.Column:
    return pa.Column(dtype, list(checks), nullable=null, required=not optional, description=description)


def text(description: str, *allowed: str, null: bool = False, optional: bool = False) -> pa.Column:
    check = pa.Check.isin(allowed) if allowed else pa.Check.str_length(min_value=1)
    return column("str", description, check, null=null, optional=optional)


def hexadecimal(description: str, shortest: int, longest: int, null: bool = False) -> pa.Column:
    check = pa.Check.str_matches(rf"^[0-9a-f]{{{shortest},{longest}}}$")
    return column("str", description, check, null=null)


def count(description: str, least: int = 0, null: bool = False, optional: bool = False) -> pa.Column:
    return column("Int64" if null else "int64", description, pa.Check.ge(least), null=null, optional=optional)


def flag(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return column("boolean" if null else "bool", description, null=null, optional=optional)


def real(description: str, *checks: pa.Check, null: bool = False, optional: bool = False) -> pa.Column:
    return column("float64", description, *checks, null=null, optional=optional)


def positive(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return real(description, pa.Check.gt(0), null=null, optional=optional)


def share(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return real(description, pa.Check.in_range(0, 1), null=null, optional=optional)


def rule(fault: str, rows_ok: Any) -> pa.Check:
    """A rule over several columns; ``fault`` is what the error says."""
    return pa.Check(rows_ok, error=fault)


def table(
    name: str, description: str, columns: dict[str, pa.Column], rules: list[pa.Check] | None = None
) -> Any:
    return pa.DataFrameSchema(columns, name=name, description=description, checks=rules or [], strict=True)


PROFILE = {
    "profile": text("Profile of design.toml that the row belongs to."),
    "design_hash": hexadecimal(
        "Measurement hash: names the frozen design the row was measured under.", 16, 16
    ),
}
DERIVED = PROFILE | {
    "analysis_hash": hexadecimal(
        "Analysis hash: names the analysis plan (thresholds, interval) of the row.", 16, 16
    ),
}
MACHINE = {
    "pair": text("Model pair: target and draft."),
    "dtype": text("Precision of weights and KV cache that ran.", "bf16", "fp32"),
    "device": text("Device that ran, such as cpu or cuda."),
}
CONTEXT = {"context_tokens": count("Prompt plus new tokens.", 1)}
CELL = {"family": text("Prompt family.")} | CONTEXT
# Read right after a timed run; a table measured on a CPU does not have them.
ON_A_GPU = {
    "device_event_s": positive("Decode time by device events; null on a CPU.", null=True, optional=True),
    "throttled": flag("The GPU reported a throttle reason; null on a CPU.", null=True, optional=True),
    "other_gpu_processes_n": count("Other processes on the GPU; null on a CPU.", null=True, optional=True),
    "gpu_mhz": positive("The GPU's clock; null where unknown.", null=True, optional=True),
    "gpu_power_w": positive("The GPU's power draw; null where unknown.", null=True, optional=True),
    "gpu_peak_bytes": count(
        "Most GPU memory that the process's tensors took so far; null on a CPU.", null=True, optional=True
    ),
}
