"""The article's mechanism phases, to stand beside or below our variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import published, text
from specdec_lib.report.style import number
from specdec_lib.variants import PHASES

ARTICLE, CSV = published.HARDWARE, published.PHASES_CSV
# Published phases by the name they get in our tables: one of our variants, or a line of its own.
Published = Mapping[str, str]
_LABELS = {variant.name: variant.label for phase in PHASES.values() for variant in phase}


def own(name: str) -> str:
    """A published line by the name and the label that the variant of ours has, where it is one of ours."""
    return f"{name} ({_LABELS[name]})" if name in _LABELS else name


def published_value(phase: str, quantity: str, context: int | None, root: Path | None = None) -> float | None:
    """One published number: that of the context, else the one for all contexts, else None."""
    table: Any = published.phases(root)
    table = table[(table["phase"] == phase) & (table["quantity"] == quantity)]
    for chosen in (table[table["context_tokens"].eq(context)] if context else table[:0],
                   table[table["context_tokens"].isna()]):  # fmt: skip
        if len(chosen):
            return float(chosen["value"].item())
    return None


def published_phase(phase: str, root: Path | None = None) -> pd.DataFrame:
    """What the article says of a phase: context (missing: all), quantity, value, unit, note."""
    table: Any = published.phases(root)
    return table[table["phase"] == phase].drop(columns=["source", "phase"])


def published_frame(names: Published, root: Path | None = None) -> pd.DataFrame:
    """``variant, context, R, acceptance`` of published phases; ``variant`` is the name they get in our tables."""
    table: Any = published.phases(root)
    rows = []
    for name, phase in names.items():
        given = table[(table["phase"] == phase) & (table["quantity"] == "R")]
        for row in given.to_dict("records"):
            context = int(row["context_tokens"])
            accepted = published_value(phase, "acceptance", context, root)
            rows.append({"variant": name, "context": context, "R": row["value"], "acceptance": accepted})
    return pd.DataFrame(rows, columns=["variant", "context", "R", "acceptance"])


def published_table(given: pd.DataFrame, columns: Sequence[str] = ()) -> pd.DataFrame:
    """The published numbers alone; what the article does not give reads "not stated".

    ``columns``: those of a folder's table, where a variant of ours that the folder lacks reads "not run".
    """
    ours: Mapping[str, str] = _LABELS if columns else {}
    columns = list(columns) or ["context", "variant", "acceptance", "published R"]
    rows = []
    for row in given.to_dict("records"):
        name, accepted = row["variant"], row["acceptance"]
        shown = {
            "context": text.context_name(row["context"]),
            "variant": name,
            "published R": number(row["R"]),
        }
        if name in ours:
            rows.append(dict.fromkeys(columns, "not run") | shown | {"variant": own(name)})
            continue
        shown["acceptance"] = "not stated" if accepted != accepted else number(accepted)
        rows.append(dict.fromkeys(columns, "not stated") | shown)
    return pd.DataFrame(rows, columns=columns, dtype=object)
