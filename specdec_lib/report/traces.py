"""The acceptance chapter: acceptance by family and context, and the traces that fix every round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from specdec_lib.report import figures, folders, mechanisms, published, style, text
from specdec_lib.report.acceptance import FILE, PHASE, measured, say_missing
from specdec_lib.report.style import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = folders.Table
TRACES = "traces.csv"


def show_cells(root: Path | None = None) -> None:
    """Acceptance per family and context."""
    for one, proposals in measured(root):
        frame = cells(proposals)
        style.use_style()
        told = cell_sentences(frame, root)
        caption = (
            f"{one.label}: {one.hardware}. Accepted / proposed per family and context (reference "
            f"formulation, no bonus, k = {one.profile.k}), one run each: it is exact for this text and "
            "has no spread."
        )
        style.figure(
            cells_figure(frame), alt="Acceptance per family and context. " + told[0], caption=caption,
            csv=one.csv(FILE),
        )  # fmt: skip
        text.say(*told)
    say_missing(root)


def cells(proposals: Table) -> Table:
    """One row per (context, family): proposed, accepted, acceptance, and alpha counted."""
    rows = []
    for (context, family), part in proposals.groupby(["context_tokens", "family"], sort=False):
        accepted, reached = int(part["accepted"].sum()), int(part["reached"].sum())
        rows.append(
            {"context_tokens": int(context), "family": str(family), "proposed_n": len(part), "accepted_n": accepted,
             "acceptance": accepted / len(part), "alpha": accepted / reached}
        )  # fmt: skip
    return pd.DataFrame(rows)


def cell_sentences(frame: Table, root: Path | None = None) -> list[str]:
    """Medians per context beside the published ones, then the two ends."""
    theirs = {
        int(row["context_tokens"]): row["acceptance_median"]
        for row in published.confirmatory(root).to_dict("records")
    }
    parts = []
    for context, part in frame.groupby("context_tokens", sort=True):
        beside = f" (published: {number(theirs[int(context)])})" if int(context) in theirs else ""
        parts.append(
            f"{number(float(part['acceptance'].median()))} at {text.context_name(int(context))} over "
            f"{text.families(len(part))}{beside}"
        )
    best, worst = frame.loc[frame["acceptance"].idxmax()], frame.loc[frame["acceptance"].idxmin()]
    each = "{} at {} ({})"
    high, low = (
        each.format(row["family"], text.context_name(int(row["context_tokens"])), number(row["acceptance"]))
        for row in (best, worst)
    )
    return [
        f"The median acceptance is {text.listed(parts)}.",
        f"The highest is {high}, the lowest {low}. Families differ more than one number per context can say.",
    ]


def cells_figure(frame: Table) -> Figure:
    """A dot per cell, families down the side, a marker per context."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(frame["family"]))
    fig, ax = plt.subplots(figsize=(figures.WIDTH, 1.5 + 0.32 * len(names)))
    for look, (context, part) in zip(style.SERIES, frame.groupby("context_tokens", sort=True), strict=False):
        ax.plot(
            part["acceptance"], [names.index(name) for name in part["family"]], look.marker, color=look.colour,
            linestyle="none", label=text.context_name(int(context)),
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("acceptance = accepted / proposed")
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    fig.tight_layout()
    return fig


def show_traces(root: Path | None = None) -> None:
    """Pass share against alpha inverted from acceptance, and rounds by trace against rounds measured."""
    for one in mechanisms.having(PHASE, root):
        traces = mechanisms.read(one, TRACES, "traces")
        caption = (
            f"{one.label}: {one.hardware}. One trace per cell, k = {one.profile.k}, reference "
            "formulation, no bonus. Pass share: output positions at which the draft would choose the "
            "target's token."
        )
        style.table(traces_table(traces), caption=caption, csv=one.csv(TRACES))
        text.say(*trace_sentences(traces))
    say_missing(root)


def traces_table(traces: Table) -> Table:
    """One row per cell, for the page."""
    return pd.DataFrame(
        {
            "context": [text.context_name(int(context)) for context in traces["context_tokens"]],
            "family": list(traces["family"]),
            "pass share": list(traces["pass_share"]),
            "alpha from acceptance": list(traces["alpha"]),
            "acceptance": list(traces["acceptance"]),
            "rounds": list(traces["rounds_n"]),
            "rounds by trace": list(traces["rounds_by_trace_n"]),
            "text equals AR's": ["yes" if same else "no" for same in traces["identical"]],
        }
    )


def trace_sentences(traces: Table) -> list[str]:
    """How far the two alphas are apart and why; whether the trace gives the rounds that were measured."""
    gap = traces["pass_share"] - traces["alpha"]
    worst = traces.loc[gap.abs().idxmax()]
    after_pass, after_miss = follow_ups(traces["passes"])
    runs = (
        "Passes come in runs, which an alpha that is the same everywhere does not know."
        if after_pass is not None and after_miss is not None and after_pass > after_miss
        else "Passes do not come in runs."
    )
    same = traces["rounds_n"] == traces["rounds_by_trace_n"]
    if same.all():
        rounds = f"In all {text.counted(len(traces), 'cell')} the real run took exactly the rounds that its trace says."
    else:
        off = traces[~same]
        named = text.listed(
            f"{row['family']} at {text.context_name(int(row['context_tokens']))} ({row['rounds_n']} against "
            f"{row['rounds_by_trace_n']}{', its text left AR’s' if not row['identical'] else ''})"
            for row in off.to_dict("records")
        )
        rounds = (
            f"The real run took the rounds that its trace says in {int(same.sum())} of "
            f"{text.counted(len(traces), 'cell')}; not in {named}."
        )
    return [
        "The pass share and the alpha that is inverted from the acceptance differ by "
        f"{number(float(gap.abs().median()))} in the median and at most by "
        f"{number(float(gap.abs().max()))} ({worst['family']} at "
        f"{text.context_name(int(worst['context_tokens']))}); the pass share is the lower one in "
        f"{int((gap < 0).sum())} of {text.counted(len(traces), 'cell')}. After a pass another one follows "
        f"in {text.percent(after_pass)}, after a miss in {text.percent(after_miss)}. {runs}",
        rounds,
    ]


def follow_ups(passes: Any) -> tuple[float | None, float | None]:
    """Share of passes right after a pass, and right after a miss, over all traces."""
    pairs = [(bits[i], bits[i + 1]) for bits in passes for i in range(len(bits) - 1)]
    found: list[float | None] = []
    for before in "10":
        after = [b for a, b in pairs if a == before]
        found.append(after.count("1") / len(after) if after else None)
    return found[0], found[1]
