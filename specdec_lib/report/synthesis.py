"""The synthesis chapter: the waterfalls, published and measured, and the sentences that they choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, mechanisms, published, style, text
from specdec_lib.report.style import number
from specdec_lib.report.waterfall import (
    DRAFT,
    ENGINES,
    OVERHEAD,
    PHASE,
    REFERENCE,
    REPAIR,
    REST,
    VERIFY,
    Waterfall,
    complete,
    decider,
    limit,
    published_waterfalls,
    waterfalls,
)

Table = folders.Table


def show_published(root: Path | None = None) -> None:
    """The published numbers as a waterfall."""
    found = published_waterfalls(root)
    style.use_style()
    caption = (
        f"Published ({published.HARDWARE}), in AR steps per 64 tokens, rebuilt from the published medians by "
        "the audit's costs: arithmetic, not a measurement of the parts. Overhead is inside the verification."
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
                f"{one.profile.k}; means over {mechanism_families(fall.n)} of medians over repeats, in AR "
                "steps. Parts: cost line and traces; totals and what is given back: "
                f"measured{' (extrapolated context)' if fall.extrapolated else ''}."
            )
            style.figure(figure(fall), alt=alt(fall), caption=caption, csv=csv)
        sizes = {fall.context: fall.n for fall in found}
        caption = (
            f"{one.label}: {one.hardware}. AR steps, means over {mechanism_only(sizes)}; what is given back is "
            "against the reference engine."
        )
        style.table(table(found), caption=caption, csv=csv)
        told = [part for fall in found for part in findings(fall)]
        text.say(*mechanisms.conclusions(one, *told, overall(found, root)))
    if not shown:
        lines = (line for phase in ("cost-model", PHASE) for line in mechanisms.missing(phase, root))
        text.say(*dict.fromkeys(lines))


def table(found: list[Waterfall]) -> Table:
    """One row per part, a column per context."""
    columns = {}
    for fall in found:
        column = {"AR": number(fall.ar)} | {f"+ {name}": _signed(steps) for name, steps in fall.parts.items()}
        column |= {f"= SpecDec, reference ({fall.label})": number(fall.spec)}
        column |= {f"{name} gives back": _signed(steps) for name, steps in _saved(fall)}
        columns[text.context_name(fall.context)] = column
    return pd.DataFrame(columns).rename_axis("part").reset_index()


def findings(fall: Waterfall) -> list[str]:
    """One context: what is saved, what it costs, which part decides, and what gives most back."""
    costs = {name: steps for name, steps in fall.parts.items() if name in (DRAFT, REPAIR, OVERHEAD)}
    largest = max(costs, key=lambda name: costs[name])
    saved, spent = -fall.parts[VERIFY], sum(costs.values())
    outcome = "more than is saved" if spent > saved else "less than is saved"
    of = f" (from the mean times of {mechanism_families(fall.n)} only)" if fall.n else ""
    start = (
        f"**{text.context_name(fall.context)}.** Verifying in blocks instead of stepping saves "
        f"{number(saved)} of {number(fall.ar)} AR steps. Draft, repairs and overhead cost "
        f"{number(spent)}, {outcome}; the largest of them is {largest} with {number(costs[largest])}. "
        f"Measured: {number(fall.spec)} steps, R = {number(fall.R)}{of}; the line does not explain "
        f"{_signed(fall.parts[REST])} ({text.percent(abs(fall.parts[REST]) / fall.spec)} of the time)."
    )
    if not fall.saved:
        return [start]
    each = text.listed(f"{name} {_signed(steps)}" for name, steps in _saved(fall))
    most = max(fall.saved, key=lambda name: fall.saved[name])
    real = {name: steps for name, steps in fall.saved.items() if name in ENGINES}
    best = max(real, key=lambda name: real[name], default="")
    told = f"Against the reference engine, in AR steps given back: {each}. The most: {most}"
    told += f"; of what a real system can have, {best}." if best and best != most else "."
    return [start, told]


def overall(found: list[Waterfall], root: Path | None = None) -> str:
    """What stands between the reference engine and R = 1, measured and published."""
    phases: Any = published.phases(root)
    theirs = phases[(phases["phase"] == "all-accept") & (phases["quantity"] == "R")]["value"]
    named = "the draft was what is too dear" if theirs.max() < 1 else "the draft was not what decided"
    measured = _where_the_limit_is(found)
    return f"So {measured}. Published, with everything accepted: R = {text.span(theirs)}; there {named}."


def _where_the_limit_is(found: list[Waterfall]) -> str:
    """Per context: nothing, the engine, acceptance, or the draft; with what the data lack for a verdict."""
    kinds: dict[str, list[str]] = {}
    for fall in found:
        kinds.setdefault(limit(fall), []).append(text.context_name(fall.context) + weight(fall))
    words = {
        "nothing": "the reference engine's own R, of these cells alone, is above 1 at {}",
        "engine": "going by R_GM without its interval, it is the reference formulation that keeps R below 1 at {}: a "
        "better engine with the same draft passes 1",
        "acceptance": "acceptance is what is missing at {}: with everything accepted R passes 1",
        "draft": "the draft is what is too dear at {}: even with everything accepted R stays below 1, and with a free "
        "draft it passes 1",
        "verification": "even a free draft does not pay at {}: the verification is too dear",
        "unknown": "the tables do not say at {}",
    }
    return "; ".join(words[kind].format(text.listed(names)) for kind, names in kinds.items())


def weight(fall: Waterfall) -> str:
    """The R_GM behind a conclusion, in brackets, and what each lacks for a verdict.

    That the engine is in the way needs two of them: the reference engine's own below 1, a better engine's above.
    """
    best = decider(fall)
    runs = [REFERENCE, best] if limit(fall) == "engine" else [best]
    lacks = {"no interval": ", no interval: not a verdict", "undecided": ", which contains 1: undecided"}
    each = [
        f"{fall.R_GM[run]} {_WITH.get(run, f'with *{run}*')}{lacks.get(fall.verdicts[run], '')}"
        for run in runs
        if run in fall.R_GM
    ]
    told = f"; R_GM {'; '.join(each)}" if each else ""
    return f" ({mechanism_families(fall.n)}{told})"


def mechanism_families(n: int) -> str:
    """How many families, and that they are those of the mechanism phases: fewer than the results are made of, so that R
    of one folder and context is another one."""
    return text.counted(n, "mechanism family", "mechanism families")


def mechanism_only(sizes: dict[int, int]) -> str:
    """The same of several contexts, as a label of their R."""
    each = text.listed(f"{number(n)} at {text.context_name(context)}" for context, n in sizes.items())
    return f"mechanism families only ({each})"


_WITH = {REFERENCE: "with the reference engine", "all accepted": "with everything accepted"}


def limit_sentences(root: Path | None = None) -> list[str]:
    """What sets the limit, in short: published by its arithmetic, then every folder that has the tables for it."""
    published_falls = published_waterfalls(root)
    told = []
    costs = [
        {n: s for n, s in fall.parts.items() if n in (DRAFT, REPAIR, OVERHEAD)} for fall in published_falls
    ]
    largest = [max(parts, key=lambda name: parts[name]) for parts in costs]
    if len(set(largest)) == 1:
        spent = [parts[largest[0]] / fall.ar for parts, fall in zip(costs, published_falls, strict=True)]
        told.append(
            f"As published: {largest[0]} take {text.span(s * 100 for s in spent)} % of AR's whole time at "
            "every context, the largest part by the audit's arithmetic"
            + (", and even with everything accepted (oracle) R stays below 1: the draft itself, not acceptance."
               if all(limit(fall) in ("draft", "verification") for fall in published_falls) else ".")
        )  # fmt: skip
    for one in complete(root):
        if not one.quick:
            told.append(f"In {one.named} {_where_the_limit_is(waterfalls(one))}.")
    return told


def alt(fall: Waterfall) -> str:
    """The figure in words."""
    parts = "; ".join(f"{name} {_signed(steps)}" for name, steps in fall.parts.items())
    back = "; ".join(f"{name} {_signed(steps)}" for name, steps in _saved(fall))
    return (
        f"Waterfall at {text.context_name(fall.context)} in AR steps. AR {number(fall.ar)}; {parts}; "
        f"SpecDec reference {number(fall.spec)}. Given back: {back}."
    )


def figure(fall: Waterfall) -> figures.Figure:
    """Bars from AR's time down to the reference engine's, then what each change gives back from there."""
    bars: list[figures.Bar] = [("AR", 0.0, fall.ar, style.AR, number(fall.ar))]
    at = fall.ar
    for name, steps in fall.parts.items():
        bars.append((name, at, steps, style.SERIES[4 if steps < 0 else 3], _signed(steps)))
        at += steps
    bars.append((f"SpecDec, reference ({fall.label})", 0.0, fall.spec, style.SPEC, number(fall.spec)))
    for name, steps in _saved(fall):
        look = style.SERIES[2 if steps > 0 else 3]
        bars.append((f"with {name}", fall.spec, -steps, look, f"{_signed(steps)} back"))
    fig, ax = figures.axes(1.0 + 0.36 * len(bars))
    right = max(max(left, left + width) for _, left, width, _, _ in bars)
    figures.fall(ax, bars, right, fontsize=9, height=0.66, linewidth=0.6, zorder=4)
    ax.axvline(fall.ar, color=style.INK, linewidth=1.0, linestyle=":", marker="")
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.set_xlim(0, right * 1.2)
    ax.set_xlabel("AR steps")
    fig.tight_layout()
    return fig


def _saved(fall: Waterfall) -> list[tuple[str, float]]:
    """What every change gives back, by its name with its label."""
    return [(mechanisms.labelled(name, fall.labels[name]), steps) for name, steps in fall.saved.items()]


def _signed(steps: float) -> str:
    return f"{'+' if steps >= 0 else '-'}{number(abs(steps))}"
