"""The cost lines of all regimes on one plot: c against v, where R is 1, the published layers and bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_lib.costmodel import PUBLISHED_TOKENS
from specdec_lib.report import audit, figures, published, regimes, style, text
from specdec_lib.report.costline import c_follows
from specdec_lib.report.regimes import Engine, Point
from specdec_lib.report.style import number


def show(root: Path | None = None) -> None:
    """The plot, the table behind it, and where each regime lies."""
    found = regimes.points(root)
    alpha = mean_alpha(root)
    style.use_style()
    csv = [file_of(point) for point in found]
    hardware = {p.source: f"{p.source}: {p.results.hardware}" for p in found if p.results}
    caption = (
        "A draft forward c and a verification v (overhead of a round inside), in AR steps; a mark per "
        "context: the shortest is filled, longer ones are open and ever larger. Below a line R is above 1 for that "
        f"engine at alpha = {number(alpha)}, the published mean; thin and grey, in the same dashes: with everything "
        "accepted; upright: the Qwen pair's share of bytes and of layers. Published: "
        f"{published.HARDWARE}. {'. '.join(hardware.values())}. How c and v were estimated is said under the table."
    )
    told = sentences(found, root)
    alt = f"c against v for every regime. {' '.join(told)}"
    style.figure(figure(found, alpha), alt=alt, caption=caption, csv=csv)
    caption = (
        f"What every regime's costs say at the published acceptance of its context (alpha = "
        f"{acceptances(found, root)}). One k known: a run's stages tell the cost of its own blocks alone. "
        f"{'. '.join(hardware.values())}. {regimes.ways(found)}"
    )
    style.table(regimes.cost_table(found, root), caption=caption, csv=csv)
    text.say(*told)


def file_of(point: Point) -> str:
    """What a point's costs were read from: the audit's numbers, the fit, or the stages of the run."""
    if point.results is None:
        return published.PHASES_CSV
    return point.results.csv(regimes.FIT if point.line else f"stages-{point.results.contexts[0]}.csv")


def mean_alpha(root: Path | None = None) -> float:
    """The published alpha, averaged over contexts."""
    known = regimes.alphas(root)
    return sum(known.values()) / len(known)


def acceptances(found: list[Point], root: Path | None = None) -> str:
    """The alpha of every context, in words."""
    lengths = sorted({point.context for point in found})
    return text.listed(f"{number(regimes.alpha_at(c, root))} at {text.context_name(c)}" for c in lengths)


def sentences(found: list[Point], root: Path | None = None) -> list[str]:
    """Per regime: what its c is near to, and on which side of R = 1 its engine lies."""
    told = []
    for source in dict.fromkeys(point.source for point in found):
        mine = [point for point in found if point.source == source]
        c = [point.c for point in mine]
        layers, share = mine[0].layers, [point.share for point in mine]
        R = [point.R(regimes.alpha_at(point.context, root)) for point in mine]
        every = " at every context" * (len(mine) > 1)
        side = f"above 1{every}" if min(R) > 1 else f"below 1{every}"
        side = side if min(R) > 1 or max(R) < 1 else "not on one side of 1"
        costs = f"c = {text.span(c)} (layers {number(layers)}, bytes {text.span(share)})"
        by_the_line = f"by the line R is {text.span(R)} at the published acceptance"
        one = mine[0].results
        said = f"{costs}: {c_follows(c, layers, share)}; {by_the_line}, {side}."
        if one and one.quick:
            said = f"{costs}, {by_the_line}: a quick look, described and not judged."
        told.append(f"*{source}* ({mine[0].engine}): {said}")
    return told


def figure(found: list[Point], alpha: float) -> figures.Figure:
    """c on x, v on y: a look per source, a line per engine."""
    fig, ax = figures.axes(4.6)
    top = max(max(point.v for point in found) * 1.15, 1.6)
    right = max(max(point.c for point in found) * 1.12, 1.0)
    low = min(0.8, min(point.v for point in found) * 0.95)
    engines = sorted({point.engine for point in found}, key=lambda engine: (engine.formulation, -engine.k))
    # Every name stands in the legend: beside its line it would cross another line, or another name.
    edges: list[Any] = []
    ways = ((alpha, style.INK, 1.6, "R = 1"), (1.0, style.MUTED, 0.9, "all accepted"))
    for accepted, colour, width, words in ways:
        for look, engine in zip(("-", "--", "-."), engines, strict=False):
            edges += ax.plot(*_edge(engine, accepted, right), color=colour, linestyle=look, linewidth=width, marker="",
                             label=f"{words}: {engine}")  # fmt: skip
    for name, value in audit.ratios().items():
        ax.axvline(value, color=style.MUTED, linewidth=1.0, linestyle="-", marker="")
        ax.text(value, 1.01, f"{name}\n{number(value)}", transform=ax.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=9, color=style.MUTED)  # fmt: skip
    marks: list[Any] = []
    for index, source in enumerate(dict.fromkeys(point.source for point in found)):
        look = style.SERIES[index % len(style.SERIES)]
        mine = [point for point in found if point.source == source]
        marks += ax.plot([p.c for p in mine], [p.v for p in mine], look.marker, color=look.colour, linestyle="-",
                         linewidth=0.8, markersize=5, markevery=[0], label=source)  # fmt: skip
        # The first is filled; later ones are open and ever larger, so that marks on one spot are rings around it.
        for place, point in enumerate(mine):
            ax.plot(point.c, point.v, look.marker, color=look.colour, markersize=5 + 4 * place,
                    markerfacecolor="none" if place else look.colour, markeredgewidth=0.9)  # fmt: skip
    ax.set_xlim(0, right)
    ax.set_ylim(low, top)
    ax.set_xlabel("c: a draft forward, in AR steps")
    ax.set_ylabel("v: a verification, in AR steps")
    fig.legend(handles=[*marks, *edges], loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, fontsize=9)
    fig.tight_layout()
    return fig


def _edge(engine: Engine, alpha: float, right: float) -> tuple[list[float], list[float]]:
    v = regimes.edge(engine, alpha, PUBLISHED_TOKENS)
    return [0.0, right], [v(0.0), v(right)]
