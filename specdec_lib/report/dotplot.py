"""The figure of a mechanism phase: R of every variant, family by family, with its geometric mean."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, style, text
from specdec_lib.report.phases import own, published_frame

# Ticks of a wide axis: the usual ones would touch.
_BESIDE = 0.45  # of the distance between two contexts
_WIDE, _FEW_TICKS = 5.0, (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)


def labelled(variant: str, label: str) -> str:
    """A variant's name with what a reader must know before quoting its number."""
    return f"{variant} ({label})"


def dots(cells: folders.Table, frame: folders.Table, given: pd.DataFrame | None = None) -> figures.Figure:
    """Variants on y, R on a log x axis: families faint, R_GM filled with its interval, published R as a cross."""
    from matplotlib.ticker import FixedLocator

    others: Any = published_frame({}) if given is None else given
    labels = {row["variant"]: labelled(row["variant"], row["label"]) for row in frame.to_dict("records")}
    lengths = sorted({int(context) for context in frame["context"]})
    others = others[others["context"].isin(lengths)]
    labels |= {name: own(name) for name in others["variant"] if name not in labels}
    names, step = list(labels), 0.8 / len(lengths)
    fig, ax = figures.axes(1.5 + len(names) * (0.14 + (0.24 if len(others) else 0.17) * len(lengths)))
    values: list[float] = []
    for index, context in enumerate(lengths):
        look, shift = style.SERIES[index % len(style.SERIES)], (index - (len(lengths) - 1) / 2) * step
        part = cells[cells["context_tokens"] == context]
        at = [names.index(name) + shift for name in part["variant"]]
        ax.plot(part["R"], at, look.marker, color=look.colour, alpha=0.3, markersize=4.5, linestyle="none")
        values += list(part["R"])
        for row in frame[frame["context"] == context].to_dict("records"):
            y = names.index(row["variant"]) + shift
            if row["low"] is not None and row["low"] == row["low"]:
                ax.plot([row["low"], row["high"]], [y, y], color=look.colour, linestyle="-", marker="|")
                values += [row["low"], row["high"]]
            ax.plot(row["R_GM"], y, look.marker, color=look.colour, markersize=8, markeredgecolor="white")
        told = f"{text.context_name(context)} tokens"
        ax.plot([], [], look.marker, color=look.colour, markersize=8, linestyle="none", label=told)
        other = others[others["context"] == context]
        # Beside our mark, not on it: an equal R must not hide it.
        crosses = [names.index(name) + shift - _BESIDE * step for name in other["variant"]]
        cross: dict[str, Any] = {"markersize": 7, "markeredgewidth": 2, "linestyle": "none"}
        ax.plot(other["R"], crosses, "x", color=look.colour, **cross)
        if len(others) and context == lengths[-1]:
            ax.plot([], [], "x", color=style.INK, label="published", **cross)
        values += list(other["R"])
    figures.ratio_axis(ax, [float(value) for value in values])
    if max(values) / min(values) > _WIDE:
        low, high = ax.get_xlim()
        ax.xaxis.set_major_locator(FixedLocator([tick for tick in _FEW_TICKS if low <= tick <= high]))
    ax.set_xlabel("R = AR time / variant time, log scale")
    figures.sides(ax)
    ax.set_yticks(range(len(names)), list(labels.values()), fontsize=9)
    ax.set_ylim(len(names) - 0.5, -0.5)
    for edge in range(1, len(names)):
        ax.axhline(edge - 0.5, color=style.GRID, linewidth=0.8, linestyle="-", marker="")
    return figures.finished(fig, ncols=4)
