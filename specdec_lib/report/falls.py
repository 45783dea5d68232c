"""From AR to speculation in every regime: the confirmatory run's time, taken apart by the line and its own counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, published, regimes, style, text
from specdec_lib.report.costline import Line
from specdec_lib.report.style import number
from specdec_lib.report.waterfall import DRAFT, OVERHEAD, REPAIR, REST, VERIFY, published_waterfalls

Table = folders.Table
_NAMES = {
    VERIFY: "verifying, not stepping", DRAFT: "draft forwards", REPAIR: "repairs", OVERHEAD: "overhead",
    REST: "not explained",
}  # fmt: skip


@dataclass(frozen=True)
class Fall:
    """One regime at one context, as shares of AR's time: 1 + all ``parts`` = ``spec``."""

    source: str
    setup: str
    context: int
    n: int
    parts: dict[str, float]
    spec: float
    hardware: str
    csv: str


def show(root: Path | None = None) -> None:
    """The waterfalls at the shortest context as small multiples, the table of all contexts, and the findings."""
    found = falls(root)
    first = min(fall.context for fall in found)
    shown = [fall for fall in found if fall.context == first]
    style.use_style()
    each = " ".join(
        f"{fall.source}: {fall.hardware}; {fall.setup}; "
        f"{text.families(fall.n) if fall.n else 'medians as published'}."
        for fall in shown
    )
    caption = (
        f"{text.context_name(first)} tokens, in shares of AR's time. Parts: each regime's cost line, or its "
        "stages where none was fitted, and the counts of its own confirmatory runs; SpecDec: measured, means "
        "over families; R is from these mean times, of all families. Published: by the audit, overhead "
        f"inside the verification. {each}"
    )
    told = [sentence(fall) for fall in shown]
    alt = f"A waterfall per regime. {' '.join(told)}"
    style.figure(figure(shown), alt=alt, caption=caption, csv=[fall.csv for fall in shown])
    caption = f"All contexts. {caption.split('. ', 1)[1]}"
    style.table(table(found), caption=caption, csv=[fall.csv for fall in found])
    text.say(*told)


def falls(root: Path | None = None) -> list[Fall]:
    """The published regime, then every folder with confirmatory runs and a cost line."""
    found = []
    for fall in published_waterfalls(root):
        parts = {name: steps / fall.ar for name, steps in fall.parts.items()}
        found.append(
            Fall(published.LABEL, published.SETUP, fall.context, 0, parts, fall.spec / fall.ar, published.HARDWARE,
                 published.PHASES_CSV)
        )  # fmt: skip
    for one in regimes.fitted(root):
        points = {point.context: point for point in regimes.folder_points(one)}
        found += [fall_of(one, points[context], context) for context in one.contexts if context in points]
    return found


def fall_of(one: folders.Results, point: regimes.Point, context: int) -> Fall:
    """A folder's fall at one context, means over the families that have both arms.

    Without a fitted line the costs are those of the run's own stages, the same for every block.
    """
    steps, line = one.profile.new_tokens - 1, point.line
    if line is None:
        known = regimes.staged(one, context)
        line = Line(context, point.c, 1.0, known["overhead"], False, ((1.0, known["verification"]),))
    runs: Any = one.runs[(one.runs["context_tokens"] == context) & (one.runs["arm"] == "spec")]
    counted = ["rounds_n", "proposed_tokens", "rejections_n", "target_calls_n", "draft_calls_n"]
    counts = runs.groupby("family")[counted].mean()
    cells = one.cells(context).dropna(subset="R").set_index("family")
    rows = []
    for family, row in counts.loc[list(cells.index)].iterrows():
        repairs, block_rows = blocks(row, one.profile.formulation, one.profile.bonus)
        n = row["target_calls_n"] - repairs
        verified = n * line.verify(block_rows / n)  # all but the last few blocks have one width
        rows.append(
            {VERIFY: verified / steps - 1, DRAFT: row["draft_calls_n"] * line.c / steps,
             REPAIR: repairs * line.repair / steps, OVERHEAD: row["rounds_n"] * line.overhead / steps,
             "spec": 1 / cells.loc[family, "R"]}
        )  # fmt: skip
    means: Any = pd.DataFrame(rows).mean()
    parts = {name: float(means[name]) for name in (VERIFY, DRAFT, REPAIR, OVERHEAD)}
    spec, csv = float(means["spec"]), one.csv(f"confirmatory-{context}.csv")
    parts[REST] = spec - 1 - sum(parts.values())
    return Fall(one.label, one.setup, context, len(rows), parts, spec, one.hardware, csv)


def blocks(row: Any, formulation: str, bonus: bool) -> tuple[float, float]:
    """Repairs, and rows of all verification blocks, from a run's counts.

    Reference: a repair per rejection but the last round's, blocks of the proposals, plus a waiting bonus token after a
    fully accepted round. Repair-free: no repair, and one committed token in front of every block but the first.
    """
    if formulation == "repair-free":
        return 0.0, row["proposed_tokens"] + row["rounds_n"] - 1
    waiting = (row["rounds_n"] - row["rejections_n"]) * bonus
    return row["target_calls_n"] - row["rounds_n"], row["proposed_tokens"] + waiting


def sentence(fall: Fall) -> str:
    """What is saved, what it costs, which part is the largest, and what the line leaves."""
    costs = {name: fall.parts[name] for name in (DRAFT, REPAIR, OVERHEAD) if name in fall.parts}
    largest = max(costs, key=lambda name: costs[name])
    saved, spent = -fall.parts[VERIFY], sum(costs.values())
    outcome = "more than is saved" if spent > saved else "less than is saved"
    of = " from mean times of all families" if fall.n else ""
    return (
        f"*{fall.source}*, {text.context_name(fall.context)}: verifying in blocks saves "
        f"{text.percent(saved)} of AR's time; draft, repairs and overhead cost {text.percent(spent)}, "
        f"{outcome}, most of it {_NAMES[largest]} ({text.percent(costs[largest])}). R = "
        f"{number(1 / fall.spec)}{of}; not explained: {text.signed(fall.parts[REST])} of AR's time."
    )


def table(found: list[Fall]) -> Table:
    """One row per (context, regime)."""
    rows = []
    for fall in sorted(found, key=lambda fall: fall.context):
        row: dict[str, Any] = {"context": text.context_name(fall.context), "source": fall.source}
        row |= {"R": 1 / fall.spec, "SpecDec / AR": fall.spec}
        parts = {name: text.signed(part) for name, part in fall.parts.items()}
        row |= {shown: parts.get(name, "inside") for name, shown in _NAMES.items()}
        rows.append(row | {"SpecDec": fall.setup})  # last: it is the widest, and may scroll out of sight
    return pd.DataFrame(rows, dtype=object)


def figure(found: list[Fall]) -> figures.Figure:
    """A panel per regime on one axis of time: AR, what is saved, what is paid, SpecDec."""
    import matplotlib.pyplot as plt

    size = (figures.WIDTH, 0.5 + 1.75 * len(found))
    fig, panels = plt.subplots(len(found), 1, figsize=size, sharex=True, squeeze=False)
    right = max(max(fall.spec, _peak(fall)) for fall in found)
    for fall, ax in zip(found, panels[:, 0], strict=True):
        bars: list[figures.Bar] = [("AR", 0.0, 1.0, style.AR, number(1.0))]
        at = 1.0
        for name, part in fall.parts.items():
            bars.append((_NAMES[name], at, part, style.SERIES[4 if part < 0 else 3], text.signed(part)))
            at += part
        bars.append(("SpecDec", 0.0, fall.spec, style.SPEC, number(fall.spec)))
        figures.fall(ax, bars, right, fontsize=8, height=0.7, linewidth=0.5, zorder=3)
        ax.axvline(1, color=style.INK, linewidth=1.0, linestyle=":", marker="")
        ax.set_ylim(len(bars) - 0.45, -0.55)
        title = f"{fall.source}: {fall.setup.removesuffix(', acceptance imposed')}"
        ax.set_title(title, fontsize=9, loc="left", pad=3)
    panels[-1, 0].set_xlim(0, right * 1.16)
    panels[-1, 0].set_xlabel("time, AR = 1")
    fig.tight_layout(h_pad=0.6)
    return fig


def _peak(fall: Fall) -> float:
    return max(accumulate(fall.parts.values(), initial=1.0))
