"""The acceptance chapter: acceptance by family and context, and the traces that fix every round."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, mechanisms, published, style, text
from specdec_lib.report.acceptance import FILE, PHASE, measured
from specdec_lib.report.places import wilson
from specdec_lib.report.style import number

Table = folders.Table
TRACES = "traces.csv"
_APART = 0.1  # families whose acceptance spans more differ
_EAGER_NOTES = " What the target thinks of a proposal no captured round notes."
_DODGE = 0.24  # rows between the marks of two contexts


def show_cells(root: Path | None = None) -> None:
    """Acceptance per family and context."""
    for one, proposals in measured(root):
        frame = cells(proposals, trace_acceptance(one))
        style.use_style()
        told = cell_sentences(frame, root)
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. Accepted / proposed per family and context "
            f"in {'the eager engine’s' if one.profile.captured else 'the real'} run (reference formulation, no bonus, "
            f"k = {one.profile.k}; real), one run each: it is exact for this text and has no spread. Marks of one "
            f"family stand side by side.{_EAGER_NOTES * one.profile.captured}"
        )
        style.figure(
            cells_figure(frame), alt="Acceptance per family and context. " + told[0], caption=caption,
            csv=one.csv(FILE),
        )  # fmt: skip
        text.say(*mechanisms.conclusions(one, *told))
    mechanisms.say_if_unmeasured(PHASE, root)


def trace_acceptance(one: folders.Results) -> dict[tuple[int, str], float]:
    """(context, family) -> the acceptance that the recorded trace of AR's text gives, for the round that was run. None
    for a captured profile: its traces are of the captured text and round, its proposals of the eager ones."""
    if one.profile.captured or not one.has(TRACES):
        return {}
    rows = one.table(TRACES, "traces").to_dict("records")
    return {(int(row["context_tokens"]), str(row["family"])): float(row["acceptance"]) for row in rows}


def cells(proposals: Table, by_trace: dict[tuple[int, str], float] | None = None) -> Table:
    """One row per (context, family): proposed, accepted, acceptance, and alpha counted, all of the real run; and the
    acceptance by the trace of AR's text (NaN without one). The two differ where the run's text left AR's."""
    rows, known = [], by_trace or {}
    for (context, family), part in proposals.groupby(["context_tokens", "family"], sort=False):
        accepted, reached = int(part["accepted"].sum()), int(part["reached"].sum())
        rows.append(
            {"context_tokens": int(context), "family": str(family), "proposed_n": len(part), "accepted_n": accepted,
             "acceptance": accepted / len(part), "alpha": accepted / reached,
             "by_trace": known.get((int(context), str(family)), float("nan"))}
        )  # fmt: skip
    return pd.DataFrame(rows)


def cell_sentences(frame: Table, root: Path | None = None) -> list[str]:
    """Medians per context beside the published ones, then the two ends."""
    theirs = published.confirmatory(root).set_index("context_tokens")["acceptance_median"].to_dict()
    parts = []
    for context, part in frame.groupby("context_tokens", sort=True):
        beside = f" (published: {number(theirs[int(context)])})" if int(context) in theirs else ""
        parts.append(
            f"{number(float(part['acceptance'].median()))} at {text.context_name(context)} over "
            f"{text.families(len(part))}{beside}"
        )
    told = [f"The median acceptance of the real runs is {text.listed(parts)}."]
    apart = (frame["acceptance"] - frame["by_trace"]).abs()
    if apart.notna().any():
        other = int((apart > 1e-9).sum())
        why = (
            f", by {number(float(apart.max()))} at most: there the run's text left AR's at a near-tie, and "
            "the draft then proposed for another text. The table below has both."
        )
        cells_n = text.counted(len(frame), "cell")
        told.append(
            f"By the trace of AR's own text it is another one in {other} of {cells_n}{why if other else '.'}"
        )
    if len(frame) == 1:
        return told
    best, worst = frame.loc[frame["acceptance"].idxmax()], frame.loc[frame["acceptance"].idxmin()]
    high, low = (
        f"{row['family']} at {text.context_name(row['context_tokens'])} ({number(row['acceptance'])})"
        for row in (best, worst)
    )
    spread = float(frame["acceptance"].max() - frame["acceptance"].min())
    apart = " Families differ more than one number per context can say." if spread > _APART else ""
    return [*told, f"The highest is {high}, the lowest {low}.{apart}"]


def cells_figure(frame: Table) -> figures.Figure:
    """A dot per cell, families down the side, a marker per context."""
    names = list(dict.fromkeys(frame["family"]))
    fig, ax = figures.axes(1.5 + 0.32 * len(names))
    groups = list(frame.groupby("context_tokens", sort=True))
    for place, (look, (context, part)) in enumerate(zip(style.SERIES, groups, strict=False)):
        shift = (place - (len(groups) - 1) / 2) * _DODGE  # equal values must not hide each other
        ax.plot(
            part["acceptance"], [names.index(name) + shift for name in part["family"]], look.marker, color=look.colour,
            linestyle="none", label=text.context_name(context),
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("acceptance = accepted / proposed")
    return figures.finished(fig, ncols=3, fontsize=11)


def show_traces(root: Path | None = None) -> None:
    """Pass share against alpha inverted from acceptance, and rounds by trace against rounds measured."""
    for one in mechanisms.having(PHASE, root):
        traces = one.table(TRACES, "traces")
        captured = one.profile.captured
        by_cell = cells(one.table(FILE, "proposals")).set_index(["context_tokens", "family"])
        real = by_cell["acceptance"].to_dict()
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. One trace per cell, k = {one.profile.k}, "
            f"{'captured repair-free rounds with bonus' if captured else 'reference formulation, no bonus'}. Pass "
            "share: output positions at which the draft would choose the target's token."
        )
        style.table(traces_table(traces, {} if captured else real), caption=caption, csv=one.csv(TRACES))
        text.say(*mechanisms.conclusions(one, *trace_sentences(traces, captured)))
    mechanisms.say_if_unmeasured(PHASE, root)


def traces_table(traces: Table, real: dict[tuple[int, str], float]) -> Table:
    """One row per cell, for the page; ``real``: (context, family) -> acceptance of the real run, where it is of the
    trace's text."""
    keys = zip(traces["context_tokens"], traces["family"], strict=True)
    acceptance = {"acceptance, real run": [real.get((int(c), str(f))) for c, f in keys]} if real else {}
    return pd.DataFrame(
        {
            "context": [text.context_name(context) for context in traces["context_tokens"]],
            "family": list(traces["family"]),
            "pass share": list(traces["pass_share"]),
            "alpha from acceptance": list(traces["alpha"]),
            "acceptance by trace": list(traces["acceptance"]),
            **acceptance,
            "rounds, real run": list(traces["rounds_n"]),
            "rounds by trace": list(traces["rounds_by_trace_n"]),
            "text equals AR's": ["yes" if same else "no" for same in traces["identical"]],
        }
    )


def trace_sentences(traces: Table, captured: bool = False) -> list[str]:
    """How far the two alphas are apart and why; whether the trace gives the rounds that were measured."""
    gap = traces["pass_share"] - traces["alpha"]
    worst = traces.loc[gap.abs().idxmax()]
    told = runs_sentence(traces["passes"])
    same = traces["rounds_n"] == traces["rounds_by_trace_n"]
    if same.all():
        where = text.in_all(len(traces), "cell")
        rounds = f"{where[0].upper()}{where[1:]} the real run took exactly the rounds that its trace says."
    else:
        off = traces[~same]
        named = text.listed(
            f"{row['family']} at {text.context_name(row['context_tokens'])} ({row['rounds_n']} against "
            f"{row['rounds_by_trace_n']}{', its text left AR’s' if not row['identical'] else ''})"
            for row in off.to_dict("records")
        )
        rounds = (
            f"The real run took the rounds that its trace says in {int(same.sum())} of "
            f"{text.counted(len(traces), 'cell')}; not in {named}."
        )
        rounds += (
            " The bits of a trace are the eager draft's: a near-tie may fall otherwise in a graph." * captured
        )
    return [
        "The pass share and the alpha that is inverted from the acceptance differ by "
        f"{number(float(gap.abs().median()))} in the median and at most by {number(float(gap.abs().max()))} "
        f"({worst['family']} at {text.context_name(worst['context_tokens'])}); the pass share is the "
        f"lower one in {int((gap < 0).sum())} of {text.counted(len(traces), 'cell')}. {told}",
        rounds,
    ]


def runs_sentence(passes: Any) -> str:
    """Whether a pass is likelier after a pass than after a miss: only if the Wilson intervals of the two are apart.

    Traces of different alpha, pooled, show such runs even when no single trace has them, so the comparison is made
    inside each trace: its misses are weighed as its passes are (Mantel-Haenszel).
    """
    (hits, n), (others, m) = (follow_ups(passes, before) for before in "10")
    if not (n and m):
        return "Too few passes or misses to tell whether passes come in runs."
    shares, ends = [hits / n, others / m], [wilson(hits, n), wilson(others, m)]
    told = (
        f"After a pass another one follows in {_share(shares[0], ends[0])} of {number(n)}, after a miss in "
        f"{_share(shares[1], ends[1])} of {number(m)} (Wilson intervals, pooled over traces)"
    )
    low, high = (end if end is not None else 0.0 for end in (ends[0][0], ends[1][1]))
    if low > high:
        within = odds_ratio(passes)
        also = "but not inside single traces: it is that the traces differ"
        also = "inside single traces too" if within is not None and within > 1 else also
        ratio = "" if within in (None, math.inf) else f" (odds ratio {number(within)})"
        return f"{told}: passes come in runs, {also}{ratio}. One alpha for every position does not know that."
    return f"{told}. The intervals overlap: that passes come in runs is not shown."


def follow_ups(passes: Any, before: str) -> tuple[int, int]:
    """Passes right after ``before`` ("1" a pass, "0" a miss), and how often something follows it; over all traces."""
    after = [bits[i + 1] for bits in passes for i in range(len(bits) - 1) if bits[i] == before]
    return after.count("1"), len(after)


def odds_ratio(passes: Any) -> float | None:
    """Odds of a pass after a pass over those after a miss, compared inside each trace (Mantel and Haenszel 1959).

    None where no trace can tell, infinite where in no trace a pass follows a miss or a miss a pass.
    """
    top = bottom = 0.0
    for bits in passes:
        (hits, n), (others, m) = (follow_ups([bits], before) for before in "10")
        if n + m:
            top += hits * (m - others) / (n + m)
            bottom += (n - hits) * others / (n + m)
    return top / bottom if bottom else math.inf if top else None


def _share(share: float, ends: tuple[float | None, float | None]) -> str:
    low, high = (100 * (end or 0.0) for end in ends)
    return f"{text.percent(share)} [{number(low)}, {number(high)}]"
