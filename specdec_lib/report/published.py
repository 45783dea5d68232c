"""The article's numbers, in the same shape as ours, so that they stand in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.paths import project_root
from specdec_lib.records import read_table
from specdec_lib.stats import alpha_from_acceptance, expected_tokens_per_round, verdict

LABEL = "published"
DTYPE = "BF16"
HARDWARE = f"RTX 4060 Laptop 8 GB, {DTYPE}, Qwen2.5-1.5B with Qwen2.5-0.5B"
SETUP = "reference, k = 4"
CSV = "published/confirmatory.csv"
PHASES_CSV = "published/phases.csv"


def confirmatory(root: Path | None = None) -> pd.DataFrame:
    """The published confirmatory table."""
    return read_table((root or project_root()) / "data" / CSV, "published-confirmatory")


def phases(root: Path | None = None) -> pd.DataFrame:
    """The published mechanism phases, one number per row."""
    return read_table((root or project_root()) / "data" / PHASES_CSV, "published-phases")


def phase_value(table: pd.DataFrame, phase: str, quantity: str, context: int | None = None) -> float:
    """One number of the phases table; ``context`` None picks the one that is for all or not stated."""
    chosen: Any = table[(table["phase"] == phase) & (table["quantity"] == quantity)]
    at = chosen["context_tokens"]
    return float(chosen[at.isna() if context is None else at.eq(context)]["value"].item())


def summary(root: Path | None = None, k: int = 4) -> pd.DataFrame:
    """The published table with our summary's columns: verdict by our rule, alpha and its yield by theory.

    Rounds and target calls were published as ranges over all contexts; the middle of each range stands here.
    """
    table, detail = confirmatory(root), phases(root)
    middle, rows = {}, []
    for name in ("rounds", "target_calls"):
        ends = [phase_value(detail, "confirmatory", f"{name}_{end}") for end in ("min", "max")]
        middle[f"{name}_median"] = sum(ends) / 2
    for row in table.to_dict("records"):
        alpha = alpha_from_acceptance(row["acceptance_median"], k)
        rows.append(
            row
            | {
                "verdict": verdict(row["low"], row["high"]),
                "alpha_median": alpha,
                "tokens_per_round_median": expected_tokens_per_round(alpha, k),
            }
            | middle
        )
    return pd.DataFrame(rows)
