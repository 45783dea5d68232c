"""The same claims over every committed collection of the eager GPU folder: a single one is as noisy as its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.paths import project_root
from specdec_lib.report import audit, text
from specdec_lib.report.style import number
from specdec_lib.stats import t_half_width

FOLDER = "h200-shapes-eager"
COLLECTIONS = "h200-engine/eager-collections.csv"  # of benchmarks/eager_collections.py
NEAR_LAYERS = 0.15  # c within this share of the layer ratio, or of the bytes' share, counts as following it
NEAR_R = 0.10  # R of the reference formulation predicted within this share
LEVEL = 0.95
_FEWEST = 3  # collections that get an interval


def sentences(root: Path | None = None) -> list[str]:
    """Per claim: the mean over the collections at each context, its interval, the single ones, and the verdict."""
    file = _file(root)
    if not file.is_file():
        return []
    found: Any = pd.read_csv(file)
    layers = audit.ratios()["layers"]
    ways = {"by single steps in pairs": "c_paired", "by the stages": "c_staged", "by the fit": "c_fit"}
    each = [
        f"{way} ({_known_in(found, column)}) {_judged(found.assign(off=found[column] / layers - 1), NEAR_LAYERS)}"
        for way, column in ways.items()
        if found[column].notna().any()
    ]
    residual = "reference_residual"
    n = number(found["collection"].nunique())
    start = f"Of {n} committed collections of the eager shapes, re-analysed with the current code: "
    return [
        f"{start}c lies within {text.percent(NEAR_LAYERS, 0)} of the layer ratio {number(layers)}, "
        f"{'; '.join(each)}.",
        f"{start}R of the reference formulation is predicted within {text.percent(NEAR_R, 0)} "
        f"({_known_in(found, residual)}): {_judged(found.assign(off=found[residual]), NEAR_R)}.",
    ]


def _known_in(found: Any, column: str) -> str:
    """ "known in 4 of them": in how many collections; not every estimate was taken in each."""
    n, known = found["collection"].nunique(), found.dropna(subset=column)["collection"].nunique()
    return f"known in all {number(n)}" if known == n else f"known in {number(known)} of them"


def newest(root: Path | None = None) -> str:
    """ ", in its newest collection": what a verdict on one folder is of, where several collections are told."""
    return ", in its newest collection" if _file(root).is_file() else ""


def _file(root: Path | None) -> Path:
    return (root or project_root()) / "data" / COLLECTIONS


def _judged(found: Any, limit: float) -> str:
    """The verdict over all contexts, as a study's interval gives one, and what it rests on."""
    told, verdicts = [], set()
    for context, part in found.dropna(subset="off").groupby("context_tokens"):
        off = part["off"]
        mean, half = off.mean(), t_half_width(off, LEVEL) if len(off) >= _FEWEST else float("inf")
        verdicts.add(_verdict(mean, half, limit))
        interval = f" [{(mean - half) * 100:+.0f}, {(mean + half) * 100:+.0f}]" if len(off) >= _FEWEST else ""
        single = f"single ones {off.min() * 100:+.1f} to {off.max() * 100:+.1f}\u00a0%, "
        within = f"{int((off.abs() <= limit).sum())} of {len(off)} within"
        told.append(
            f"{mean * 100:+.1f}\u00a0%{interval} at {text.context_name(int(context))} "
            f"({single if len(off) > 1 else ''}{within})"
        )
    worst = next(verdict for verdict in ("no", "undecided", "yes") if verdict in verdicts)
    return f"**{worst}**: the mean is off by {text.listed(told)}"


def _verdict(mean: float, half: float, limit: float) -> str:
    """ "yes" if the whole interval lies within the limit, "no" if it lies outside, else "undecided"."""
    if abs(mean) + half <= limit:
        return "yes"
    return "no" if abs(mean) - half > limit else "undecided"
