"""The figures of the results: each returns a matplotlib figure; the pages' modules give them words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec_lib.report import style, text
from specdec_lib.report.compare import Source, contexts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.4  # inches: half a page; on a phone a little of it has to be scrolled to
PHONE = 4.0  # inches: whole on a phone of 390 pixels, with letters that can be read
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
    """R_GM with its interval, a group per context, a named line per source; hollow where there is no interval.

    Every source has a line of its own, so that one more of them makes the figure longer and never denser. Its name
    stands above the line and not beside it: the figure every reader sees first is whole on a phone.
    """
    import matplotlib.pyplot as plt

    lengths = contexts(found)
    lines = sum(1 for source in found for row in source.rows if row["context_tokens"] in lengths)
    fig, ax = plt.subplots(figsize=(PHONE, 0.9 + 0.42 * lines + 0.3 * len(lengths)))
    values: list[float] = []
    y = 0.0
    for length in lengths:
        _above(ax, y, f"{text.context_name(length)} tokens", fontsize=10.5, fontweight="bold")
        for index, source in enumerate(found):
            row = next((row for row in source.rows if row["context_tokens"] == length), None)
            if row is None:
                continue
            if text.described_only(row):
                row = row | {"R_GM": row["R_GM_all"]}
            y += 1
            _above(ax, y - 0.42, source.label, fontsize=9)
            _above(ax, y - 0.42, style.number(row["R_GM"]), left=False, fontsize=9)
            values += _estimate(ax, row, y - 0.22, style.SERIES[index % len(style.SERIES)])
        y += 0.75
    ratio_axis(ax, values)
    sides(ax)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_ylim(y - 0.6, -0.55)
    fig.tight_layout()
    return fig


def _above(ax: Axes, y: float, words: str, left: bool = True, **look: Any) -> None:
    """Words at the left edge of the axes or at the right one, above ``y``: names here, numbers there, so that the line
    at 1 passes between them. The grid does not cross them."""
    ax.text(
        0.0 if left else 1.0, y, words, transform=ax.get_yaxis_transform(), va="bottom",
        ha="left" if left else "right", color=style.INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4}, **look,
    )  # fmt: skip


def _estimate(ax: Axes, row: dict[str, Any], y: float, look: style.Series) -> list[float]:
    """One R_GM with its interval; the values drawn."""
    bounded = row["low"] == row["low"]
    if bounded:
        ax.plot([row["low"], row["high"]], [y, y], color=look.colour, linestyle="-", marker="|", markersize=9)
    face = look.colour if bounded else "white"
    ax.plot(row["R_GM"], y, marker=look.marker, color=look.colour, markerfacecolor=face, markersize=8)
    return [row["R_GM"], *([row["low"], row["high"]] if bounded else [])]


def forest(source: Source) -> Figure:
    """R of every family of one folder, a marker per context: filled in the inference, hollow if a check failed."""
    import matplotlib.pyplot as plt

    assert source.results is not None
    lengths = source.results.contexts
    names = list(dict.fromkeys(name for context in lengths for name in _cells(source, context)["family"]))
    fig, ax = plt.subplots(figsize=(WIDTH, 1.6 + 0.3 * len(names)))
    values: list[float] = []
    for place, (look, context) in enumerate(zip(style.SERIES, lengths, strict=False)):
        shift, cells = (place - (len(lengths) - 1) / 2) * 0.24, _cells(source, context)
        row = next(row for row in source.rows if row["context_tokens"] == context)
        if row["R_GM"] == row["R_GM"]:
            ax.axvline(
                row["R_GM"], color=look.colour, linewidth=1.0, linestyle=look.line, marker="", alpha=0.6
            )
        for kept, fill in ((True, look.colour), (False, "white")):
            part = cells[cells["in_inference"] == kept]
            if len(part):
                failed = "" if kept else ", failed a check"
                ax.plot(
                    part["R"], [names.index(name) + shift for name in part["family"]], look.marker, color=look.colour,
                    markerfacecolor=fill, markersize=5.5, linestyle="none",
                    label=f"{text.context_name(context)} tokens{failed}",
                )  # fmt: skip
        values += list(cells["R"].dropna())
    ratio_axis(ax, values)
    sides(ax)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=True)
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2 if len(lengths) > 3 else 3, fontsize=9)
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
