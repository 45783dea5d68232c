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
_TICKS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def axes(height: float) -> tuple[Figure, Axes]:
    """A figure of the usual width, with its axes."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(WIDTH, height))


def finished(fig: Figure, ncols: int, fontsize: int = 9) -> Figure:
    """The figure, laid out, with its legend above it."""
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=ncols, fontsize=fontsize)
    fig.tight_layout()
    return fig


def log_axis(ax: Axes, which: str, values: list[float], ticks: tuple[float, ...] = _TICKS) -> None:
    """Axis "x" or "y" on a log scale around ``values``, with plain numbers at its ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(values) / 1.08, max(values) * 1.08
    getattr(ax, f"set_{which}scale")("log")
    getattr(ax, f"set_{which}lim")(low, high)
    axis = getattr(ax, f"{which}axis")
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))


def ratio_axis(ax: Axes, values: list[float]) -> None:
    """A log axis for ratios with the line at R = 1; a half and a double are equally far from it."""
    log_axis(ax, "x", [*values, 0.85, 1.18], _R_TICKS)
    ax.axvline(1, color=style.INK, linewidth=1.4, linestyle="-", marker="")
    ax.set_xlabel("R = AR time / SpecDec time, log scale")
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
    one = source.results
    assert one is not None
    lengths = one.contexts
    names = list(dict.fromkeys(name for context in lengths for name in one.cells(context)["family"]))
    fig, ax = axes(1.6 + 0.3 * len(names))
    values: list[float] = []
    for place, (look, context) in enumerate(zip(style.SERIES, lengths, strict=False)):
        shift, cells = (place - (len(lengths) - 1) / 2) * 0.24, one.cells(context)
        row = next(row for row in source.rows if row["context_tokens"] == context)
        if row["R_GM"] == row["R_GM"]:
            line: Any = {"color": look.colour, "linewidth": 1.0, "linestyle": look.line, "marker": ""}
            ax.axvline(row["R_GM"], alpha=0.6, **line)
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
    return finished(fig, ncols=2 if len(lengths) > 3 else 3)


Bar = tuple[str, float, float, style.Series, str]  # name, left end, width, look, what its number says


def fall(ax: Axes, bars: list[Bar], right: float, *, fontsize: int, zorder: int, **bar: Any) -> None:
    """The bars of a waterfall from above, each with its number behind it; ``right`` is the largest end."""
    for y, (_, left, width, look, told) in enumerate(bars):
        ax.barh(y, width, left=left, color=look.colour, hatch=look.hatch, edgecolor="white", **bar)
        # on white: the line of AR's time must not cross a number
        ground = {"facecolor": "white", "edgecolor": "none", "pad": bar["linewidth"]}
        at: Any = {"va": "center", "fontsize": fontsize, "bbox": ground, "zorder": zorder}
        ax.text(max(left, left + width) + right * 0.015, y, told, **at)
    ax.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=fontsize)
    ax.grid(axis="y", visible=False)


def stage_shares(shares: dict[str, dict[str, float]]) -> Figure:
    """Stacked bars, one per label: seconds per stage, each part with its share of the bar."""
    stages = list(dict.fromkeys(stage for parts in shares.values() for stage in parts))
    fig, ax = axes(1.4 + 0.42 * len(shares))
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
    return finished(fig, ncols=5, fontsize=10)
