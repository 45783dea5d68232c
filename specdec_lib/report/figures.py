"""The figures of the results: each returns a matplotlib figure; the pages' modules give them words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec_lib.report import style, text
from specdec_lib.report.compare import Source, contexts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.4  # inches: whole on a phone, with letters that can be read
_R_TICKS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_R_LABEL = "R = AR time / SpecDec time, log scale"


def ratio_axis(ax: Axes, values: list[float]) -> None:
    """A log axis for ratios with the line at R = 1; a half and a double are equally far from it."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min([*values, 0.85]) / 1.08, max([*values, 1.18]) * 1.08
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    shown = [tick for tick in _R_TICKS if low <= tick <= high]
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    ax.axvline(1, color=style.INK, linewidth=1.4, linestyle="-", marker="")
    ax.set_xlabel(_R_LABEL)
    ax.grid(axis="y", visible=False)


def sides(ax: Axes) -> None:
    """Say which side of R = 1 is which."""
    above = {"transform": ax.get_xaxis_transform(), "va": "bottom", "fontsize": 10, "color": style.MUTED}
    ax.text(0.985, 1.01, "slower", ha="right", **above)  # pyright: ignore[reportArgumentType]
    ax.text(1.015, 1.01, "faster", ha="left", **above)  # pyright: ignore[reportArgumentType]


def headline(found: list[Source]) -> Figure:
    """R_GM with its interval, a group per context, a marker per source; hollow where there is no interval."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    lengths, step = contexts(found), 1 / (len(found) + 1)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.42 * len(lengths) * (len(found) + 0.5)))
    values: list[float] = []
    for index, source in enumerate(found):
        look = style.SERIES[index % len(style.SERIES)]
        for row in source.rows:
            if row["R_GM"] != row["R_GM"]:
                continue
            y = lengths.index(row["context_tokens"]) + (index - (len(found) - 1) / 2) * step
            bounded = row["low"] == row["low"]
            if bounded:
                ax.plot(
                    [row["low"], row["high"]],
                    [y, y],
                    color=look.colour,
                    linestyle="-",
                    marker="|",
                    markersize=9,
                )
            face = look.colour if bounded else "white"
            ax.plot(row["R_GM"], y, marker=look.marker, color=look.colour, markerfacecolor=face, markersize=8)
            ax.annotate(
                style.number(row["R_GM"]), (row["R_GM"], y), (0, 7), textcoords="offset points", ha="center",
                fontsize=9, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85},
            )  # fmt: skip
            values += [row["R_GM"], *([row["low"], row["high"]] if bounded else [])]
    ratio_axis(ax, values)
    sides(ax)
    ax.set_yticks(range(len(lengths)), [f"{text.context_name(length)} tokens" for length in lengths])
    ax.set_ylim(len(lengths) - 0.5, -0.5)
    for edge in range(1, len(lengths)):
        ax.axhline(edge - 0.5, color=style.GRID, linewidth=0.8, linestyle="-", marker="")
    handles = []
    for index, source in enumerate(found):
        look = style.SERIES[index % len(style.SERIES)]
        face = "white" if source.results and source.results.quick else look.colour
        shape = {"marker": look.marker, "markersize": 8, "markerfacecolor": face, "linestyle": "none"}
        handles.append(Line2D([], [], color=look.colour, label=source.label, **shape))
    fig.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(found)))
    fig.tight_layout()
    return fig


def forest(found: list[Source], context: int) -> Figure:
    """R of every family at ``context``: filled in the inference, hollow if a check failed."""
    import matplotlib.pyplot as plt

    ours = [source for source in found if source.results and context in source.results.contexts]
    names = list(dict.fromkeys(name for source in ours for name in _cells(source, context)["family"]))
    fig, ax = plt.subplots(figsize=(WIDTH, 1.7 + 0.3 * len(names)))
    values: list[float] = []
    for source in found:
        look = style.SERIES[found.index(source) % len(style.SERIES)]
        for row in source.rows:
            if row["context_tokens"] == context and row["low"] == row["low"]:
                label = f"{source.label}: interval of R_GM"
                ax.axvspan(row["low"], row["high"], color=look.colour, alpha=0.14, linewidth=0, label=label)
                ax.axvline(row["R_GM"], color=look.colour, linewidth=1.2, linestyle=look.line, marker="")
                values += [row["low"], row["high"]]
    for place, source in enumerate(ours):
        look = style.SERIES[found.index(source) % len(style.SERIES)]
        shift = (place - (len(ours) - 1) / 2) * 0.26
        cells = _cells(source, context)
        for kept, fill in ((True, look.colour), (False, "white")):
            part = cells[cells["in_inference"] == kept]
            if part.empty:
                continue
            label = source.label if kept else f"{source.label}, failed a timing check"
            at = [names.index(name) + shift for name in part["family"]]
            ax.plot(
                part["R"],
                at,
                look.marker,
                color=look.colour,
                markerfacecolor=fill,
                linestyle="none",
                label=label,
            )
        values += list(cells["R"].dropna())
    ratio_axis(ax, values)
    sides(ax)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=True)
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
    fig.tight_layout()
    return fig


def stage_shares(shares: dict[str, dict[str, float]]) -> Figure:
    """Stacked bars, one per label: seconds per stage, each part with its share of the bar."""
    import matplotlib.pyplot as plt

    stages = list(dict.fromkeys(stage for parts in shares.values() for stage in parts))
    fig, ax = plt.subplots(figsize=(WIDTH, 1.4 + 0.42 * len(shares)))
    left = dict.fromkeys(shares, 0.0)
    for stage, look in zip(stages, style.SERIES, strict=False):
        widths = [parts.get(stage, 0.0) for parts in shares.values()]
        bars = ax.barh(
            list(shares), widths, left=list(left.values()), height=0.62, color=look.colour, hatch=look.hatch,
            edgecolor="white", linewidth=0.6, label=stage,
        )  # fmt: skip
        for label, bar, width in zip(shares, bars, widths, strict=True):
            total = sum(shares[label].values())
            if total and width / total >= 0.08:
                centre = (bar.get_x() + width / 2, bar.get_y() + bar.get_height() / 2)
                ax.text(
                    *centre, f"{width / total:.0%}", ha="center", va="center", fontsize=9, color=style.INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )  # fmt: skip
            left[label] += width
    ax.invert_yaxis()
    ax.set_xlabel("seconds for the whole answer, median over families")
    ax.grid(axis="y", visible=False)
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=10)
    fig.tight_layout()
    return fig


def _cells(source: Source, context: int) -> Any:
    assert source.results is not None
    cells = source.results.families
    return cells[cells["context_tokens"] == context]
