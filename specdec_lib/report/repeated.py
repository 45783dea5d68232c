"""The same claims over every committed collection of the eager GPU folder: a single one is as noisy as its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.paths import project_root
from specdec_lib.report import audit, text
from specdec_lib.report.style import number
from specdec_lib.stats import t_half_width

COLLECTIONS = "h200-engine/eager-collections.csv"  # of benchmarks/eager_collections.py
NEAR_LAYERS = 0.15  # c within this share of the layer ratio, or of the bytes' share, counts as following it
NEAR_R = 0.10  # R of the reference formulation predicted within this share
LEVEL = 0.95
_FEWEST = 3  # collections that get an interval
_MEAN = "by the mean"


def sentences(root: Path | None = None) -> list[str]:
    """Per claim: the mean over the collections at each context, its interval, the single ones, and the verdict."""
    file = (root or project_root()) / "data" / COLLECTIONS
    if not file.is_file():
        return []
    found, layers = pd.read_csv(file), audit.ratios()["layers"]
    staged = found.assign(off=found["c_staged"] / layers - 1)
    fitted = found.assign(off=found["c_fit"] / layers - 1)
    predicted = found.assign(off=found["reference_residual"])
    n = found["collection"].nunique()
    start = f"Over all {number(n)} collections of the eager shapes that were committed, each read by today's sources, "
    return [
        f"{start}c lies within {text.percent(NEAR_LAYERS, 0)} of the layer ratio {number(layers)}: by the stages "
        f"{_judged(staged, NEAR_LAYERS)}; by the fit {_judged(fitted, NEAR_LAYERS)}.",
        f"{start}R of the reference formulation is predicted within {text.percent(NEAR_R, 0)}: "
        f"{_judged(predicted, NEAR_R)}.",
    ]


def _judged(found: Any, limit: float) -> str:
    """ "yes", "by the mean" where an interval reaches beyond the limit, or "no"; with what it rests on."""
    told, verdicts = [], set()
    for context, part in found.dropna(subset="off").groupby("context_tokens"):
        off = part["off"]
        mean, half = off.mean(), t_half_width(off, LEVEL) if len(off) >= _FEWEST else None
        inside = half is not None and abs(mean) + half <= limit
        verdicts.add("**yes**" if inside else f"**yes**, {_MEAN}" if abs(mean) <= limit else "**no**")
        interval = f" [{(mean - half) * 100:+.0f}, {(mean + half) * 100:+.0f}]" if half is not None else ""
        told.append(
            f"{mean * 100:+.1f}\u00a0%{interval} at {text.context_name(int(context))} "
            f"(n = {len(off)}, single ones {off.min() * 100:+.1f} to {off.max() * 100:+.1f}\u00a0%)"
        )
    if not told:
        return "not measured"
    worst = "**no**" if "**no**" in verdicts else max(verdicts, key=len)
    beyond = ", though the intervals reach beyond it" if _MEAN in worst else ""
    return f"{worst}{beyond}: the mean is off by {text.listed(told)}"
