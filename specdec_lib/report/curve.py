"""R over an imposed alpha: the measured curve, the cost line's, and where each reaches 1."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from specdec_lib.costmodel import counts_from_trace
from specdec_lib.report import folders, text
from specdec_lib.report.costline import Line
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean
from specdec_lib.variants import passes_of, resolved

Table = folders.Table
PHASE = "dial"


def curve(cells: Table) -> Table:
    """Per context and imposed alpha: geometric mean and range of R over families, and the acceptance that it gave."""
    rows = []
    for (context, alpha), part in cells[cells["setting"].notna()].groupby(
        ["context_tokens", "setting"], sort=True
    ):
        first = part.iloc[0]
        rows.append(
            {"context_tokens": int(context), "alpha": float(alpha), "n": len(part), "k": int(first["k"]),
             "formulation": first["formulation"], "bonus": bool(first["bonus"]), "label": first["label"],
             "acceptance": float(part["acceptance"].mean()), "R_GM": geometric_mean(part["R"]),
             "R_min": float(part["R"].min()), "R_max": float(part["R"].max())}
        )  # fmt: skip
    return pd.DataFrame(rows)


def engine_of(frame: Table) -> str:
    """Which rounds the dial turns, from the rows themselves: "repair-free rounds with bonus"."""
    first = frame.iloc[0]
    return f"{first['formulation']} rounds {'with' if first['bonus'] else 'without'} bonus"


def predicted(row: dict[str, Any], line: Line, new_tokens: int, alpha: float | None = None) -> float:
    """R of the cost line at a row of :func:`curve`."""
    at = row["alpha"] if alpha is None else alpha
    return line.predicted_R(at, row["k"], row["formulation"], row["bonus"], new_tokens)


def by_bits(cells: Table, lines: dict[int, Line], new_tokens: int) -> dict[tuple[int, float], float]:
    """R of the cost line for the very bits that were drawn, geometric mean per (context, alpha)."""
    imposed = cells[cells["setting"].notna() & cells["context_tokens"].isin(lines)]
    found: dict[tuple[int, float], list[float]] = {}
    for row in imposed.to_dict("records"):
        variant = {v.name: v for v in resolved(PHASE, int(row["k"]), new_tokens)}[row["variant"]]
        bits = passes_of(variant, [False] * new_tokens, row["family"], row["context_tokens"])
        counts = counts_from_trace(bits, int(row["k"]), new_tokens, row["formulation"], bool(row["bonus"]))
        key = (int(row["context_tokens"]), float(row["setting"]))
        found.setdefault(key, []).append(lines[key[0]].R_of(counts))
    return {key: geometric_mean(values) for key, values in found.items()}


def bits_sentence(frame: Table, bits: dict[tuple[int, float], float]) -> str:
    """How far the line is from the measured R when it knows the bits: what is then left is cost, not luck."""
    pairs = [
        (row["R_GM"], bits[key])
        for row in frame.to_dict("records")
        if (key := (row["context_tokens"], row["alpha"])) in bits
    ]
    if not pairs:
        return ""
    off = [abs(measured / line - 1) for measured, line in pairs]
    return (
        "A few texts draw few bits, so part of the distance to the curve is luck. For the very bits that "
        f"were drawn the cost line is off by {text.percent(sum(off) / len(off))} in the mean and "
        f"{text.percent(max(off))} at most."
    )


def crossing(alphas: list[float], ratios: list[float]) -> float | None:
    """The alpha at which R reaches 1, on a straight line in log R between measured points.

    0 if R is at least 1 from the first alpha on; None if it never is.
    """
    points = sorted(zip(alphas, ratios, strict=True))
    if points and points[0][1] >= 1:
        return points[0][0]
    for (a, low), (b, high) in zip(points, points[1:], strict=False):
        if low < 1 <= high:
            return a + (b - a) * -math.log(low) / (math.log(high) - math.log(low))
    return None


def break_even(part: Table, line: Line, new_tokens: int) -> float | None:
    """The alpha at which the line reaches R = 1, for one context's rows of :func:`curve`."""
    first = part.to_dict("records")[0]
    return line.break_even(first["k"], first["formulation"], first["bonus"], new_tokens)


def told(alpha: float | None) -> str:
    """A break-even alpha in words."""
    return (
        "no alpha pays" if alpha is None else "every alpha pays" if alpha == 0 else f"alpha = {number(alpha)}"
    )


def over_contexts(found: dict[int, float | None]) -> str:
    """Break-even alphas by context in words: "alpha = 0.431 to 0.509 over 2K and 4K and no alpha pays at 8K"."""
    crossed = {context: alpha for context, alpha in found.items() if alpha}
    over = "over" if len(crossed) > 1 else "at"
    parts = [f"alpha = {text.span(crossed.values())} {over} {_named(crossed)}"] if crossed else []
    for extreme in (0.0, None):
        if rest := [context for context, alpha in found.items() if alpha == extreme]:
            parts.append(f"{told(extreme)} at {_named(rest)}")
    return text.listed(parts)


def _named(contexts: Iterable[int]) -> str:
    return text.listed(map(text.context_name, contexts))


def crossing_sentences(frame: Table, lines: dict[int, Line], new_tokens: int) -> list[str]:
    """Per context: where R crosses 1, measured and predicted; and how far the line is from the points."""
    sentences = []
    for context, part in frame.groupby("context_tokens", sort=True):
        line, over = lines.get(int(context)), text.families(part["n"].max())
        found = crossing(list(part["alpha"]), list(part["R_GM"]))
        words = (
            f"At {text.context_name(context)} {_where(found, part)} (synthetic, {engine_of(part)}, {over})."
        )
        if line:
            at = break_even(part, line, new_tokens)
            off = [abs(row["R_GM"] / predicted(row, line, new_tokens) - 1) for row in part.to_dict("records")]
            gap = f", {number(abs(at - found))} away" if at and found else ""
            words += (
                f" The cost line says: {told(at)}{gap}. Its R is off by "
                f"{text.percent(sum(off) / len(off))} in the mean over the imposed "
                f"alphas{' (extrapolated context)' if line.extrapolated else ''}."
            )
        sentences.append(words)
    return sentences


def _where(found: float | None, part: Table) -> str:
    if found is None:
        return f"R stays below 1 at every imposed alpha, up to {number(part['R_GM'].max())}"
    if found == part["alpha"].min():
        return f"R is at least 1 at every imposed alpha, from {number(part['R_GM'].iloc[0])} on"
    return f"R crosses 1 at alpha = {number(found)}, measured by imposed bits and interpolated between alphas"
