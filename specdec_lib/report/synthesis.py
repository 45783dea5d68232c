"""The synthesis chapter: the waterfalls, published and measured, and the sentences that they choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from specdec_lib.report import folders, mechanisms, published, style, text
from specdec_lib.report.figures import WIDTH
from specdec_lib.report.style import number
from specdec_lib.report.waterfall import (
    DRAFT,
    ENGINES,
    OVERHEAD,
    PHASE,
    REPAIR,
    REST,
    VERIFY,
    Waterfall,
    complete,
    limit,
    published_waterfalls,
    waterfalls,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = folders.Table


def show_published(root: Path | None = None) -> None:
    """The published numbers as a waterfall."""
    found = published_waterfalls(root)
    style.use_style()
    caption = (
        f"Published ({published.HARDWARE}), in AR steps per 64 tokens, rebuilt from the published medians "
        "by the audit's costs: arithmetic, not a measurement of the parts. Overhead is inside the "
        "verification."
    )
    style.figure(figure(found[0]), alt="Published. " + alt(found[0]), csv=published.PHASES_CSV,
                 caption=f"{text.context_name(found[0].context)} tokens. {caption}")  # fmt: skip
    style.table(table(found), caption=caption, csv=published.PHASES_CSV)
    text.say(*(findings(fall)[0] for fall in found))


def show_waterfall(root: Path | None = None) -> None:
    """A waterfall per context, the table of all, and the findings."""
    shown = complete(root)
    for one in shown:
        found = waterfalls(one)
        style.use_style()
        csv = one.csv("formulations.csv")
        for fall in found:
            name = text.context_name(fall.context)
            caption = (
                f"{one.label}: {one.hardware}. {name} tokens, {one.profile.new_tokens} new, k = "
                f"{one.profile.k}; means over {text.families(fall.n)} of medians over repeats, in AR "
                "steps. Parts: cost line and traces; totals and what is given back: "
                f"measured{' (extrapolated context)' if fall.extrapolated else ''}."
            )
            style.figure(figure(fall), alt=alt(fall), caption=caption, csv=csv)
        caption = (
            f"{one.label}: {one.hardware}. AR steps; what is given back is against the reference engine."
        )
        style.table(table(found), caption=caption, csv=csv)
        text.say(*(part for fall in found for part in findings(fall)), overall(found, root))
    if not shown:
        text.say(
            *dict.fromkeys(
                line for phase in ("cost-model", PHASE) for line in mechanisms.missing(phase, root)
            )
        )


def table(found: list[Waterfall]) -> Table:
    """One row per part, a column per context."""
    columns = {}
    for fall in found:
        column = {"AR": number(fall.ar)} | {f"+ {name}": _signed(steps) for name, steps in fall.parts.items()}
        column |= {f"= SpecDec, reference ({fall.label})": number(fall.spec)}
        column |= {
            f"{_labelled(fall, name)} gives back": _signed(steps) for name, steps in fall.saved.items()
        }
        columns[text.context_name(fall.context)] = column
    return pd.DataFrame(columns).rename_axis("part").reset_index()


def findings(fall: Waterfall) -> list[str]:
    """One context: what is saved, what it costs, which part decides, and what gives most back."""
    costs = {name: steps for name, steps in fall.parts.items() if name in (DRAFT, REPAIR, OVERHEAD)}
    largest = max(costs, key=lambda name: costs[name])
    saved, spent = -fall.parts[VERIFY], sum(costs.values())
    outcome = "more than is saved" if spent > saved else "less than is saved"
    start = (
        f"**{text.context_name(fall.context)}.** Verifying in blocks instead of stepping saves "
        f"{number(saved)} of {number(fall.ar)} AR steps. Draft, repairs and overhead cost "
        f"{number(spent)}, {outcome}; the largest of them is {largest} with {number(costs[largest])}. "
        f"Measured: {number(fall.spec)} steps, R = {number(fall.R)}; the line does not explain "
        f"{_signed(fall.parts[REST])} ({text.percent(abs(fall.parts[REST]) / fall.spec)} of the time)."
    )
    if not fall.saved:
        return [start]
    each = text.listed(f"{_labelled(fall, name)} {_signed(steps)}" for name, steps in fall.saved.items())
    most = max(fall.saved, key=lambda name: fall.saved[name])
    real = {name: steps for name, steps in fall.saved.items() if name in ENGINES}
    best = max(real, key=lambda name: real[name], default="")
    told = f"Against the reference engine, in AR steps given back: {each}. The most: {most}"
    told += f"; of what a real system can have, {best}." if best and best != most else "."
    return [start, told]


def overall(found: list[Waterfall], root: Path | None = None) -> str:
    """What stands between the reference engine and R = 1: nothing, acceptance, or the draft."""
    kinds: dict[str, list[str]] = {}
    for fall in found:
        kinds.setdefault(limit(fall), []).append(text.context_name(fall.context))
    words = {
        "nothing": "the reference engine already pays at {}",
        "engine": "the reference formulation is in the way at {}: a better engine with the same draft passes R = 1",
        "acceptance": "acceptance is what is missing at {}: with everything accepted R passes 1",
        "draft": "the draft is what is too dear at {}: even with everything accepted R stays below 1, and with a free "
        "draft it passes 1",
        "verification": "even a free draft does not pay at {}: the verification is too dear",
        "unknown": "the tables do not say at {}",
    }
    here = "; ".join(words[kind].format(text.listed(names)) for kind, names in kinds.items())
    phases: Any = published.phases(root)
    theirs = phases[(phases["phase"] == "all-accept") & (phases["quantity"] == "R")]["value"]
    named = "the draft was what is too dear" if theirs.max() < 1 else "the draft was not what decided"
    return f"So {here}. Published, with everything accepted: R = {text.span(theirs)}; there {named}."


def alt(fall: Waterfall) -> str:
    """The figure in words."""
    parts = "; ".join(f"{name} {_signed(steps)}" for name, steps in fall.parts.items())
    back = "; ".join(f"{_labelled(fall, name)} {_signed(steps)}" for name, steps in fall.saved.items())
    return (
        f"Waterfall at {text.context_name(fall.context)} in AR steps. AR {number(fall.ar)}; {parts}; "
        f"SpecDec reference {number(fall.spec)}. Given back: {back}."
    )


def figure(fall: Waterfall) -> Figure:
    """Bars from AR's time down to the reference engine's, then what each change gives back from there."""
    import matplotlib.pyplot as plt

    bars: list[tuple[str, float, float, style.Series, str]] = [
        ("AR", 0.0, fall.ar, style.AR, number(fall.ar))
    ]
    at = fall.ar
    for name, steps in fall.parts.items():
        bars.append((name, at, steps, style.SERIES[4 if steps < 0 else 3], _signed(steps)))
        at += steps
    bars.append((f"SpecDec, reference ({fall.label})", 0.0, fall.spec, style.SPEC, number(fall.spec)))
    for name, steps in fall.saved.items():
        look = style.SERIES[2 if steps > 0 else 3]
        bars.append((f"with {_labelled(fall, name)}", fall.spec, -steps, look, _signed(-steps)))
    fig, ax = plt.subplots(figsize=(WIDTH, 1.0 + 0.36 * len(bars)))
    right = max(max(left, left + width) for _, left, width, _, _ in bars)
    for y, (_, left, width, look, told) in enumerate(bars):
        ax.barh(
            y,
            width,
            left=left,
            height=0.66,
            color=look.colour,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0.6,
        )
        ax.text(max(left, left + width) + right * 0.015, y, told, va="center", fontsize=9)
    ax.axvline(fall.ar, color=style.INK, linewidth=1.0, linestyle=":", marker="")
    ax.set_yticks(range(len(bars)), [bar[0] for bar in bars], fontsize=9)
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.set_xlim(0, right * 1.14)
    ax.set_xlabel("AR steps")
    ax.grid(axis="y", visible=False)
    fig.tight_layout()
    return fig


def _labelled(fall: Waterfall, name: str) -> str:
    return mechanisms.labelled(name, fall.labels[name])


def _signed(steps: float) -> str:
    return f"{'+' if steps >= 0 else '-'}{number(abs(steps))}"
