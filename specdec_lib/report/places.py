"""The acceptance chapter: acceptance by place in the block, given that it was reached, and of all proposed."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from specdec_lib.report import figures, folders, mechanisms, style, text
from specdec_lib.report.acceptance import FILE, PHASE, cells_told, measured
from specdec_lib.report.style import number

Table = folders.Table
_Z = 1.96  # of a two-sided 95 % normal interval


def show(root: Path | None = None) -> None:
    """Acceptance by place in the block: conditional and unconditional."""
    for one, proposals in measured(root):
        frame = positions(proposals)
        style.table(
            positions_table(frame),
            caption=(
                f"{one.label}: {one.hardware}. {cells_told(proposals)}, pooled; 95 % Wilson intervals "
                "that take tokens as independent."
            ),
            csv=one.csv(FILE),
        )
        style.use_style()
        told = position_sentence(frame)
        caption = (
            f"{one.label}: {one.hardware}. Acceptance by place in the block, {number(len(proposals))} "
            f"proposals of {cells_told(proposals)}. Bars: 95 % Wilson intervals. Line without marker: one "
            "alpha at every place."
        )
        style.figure(
            positions_figure(frame), alt=f"Acceptance by place in the block. {told}", caption=caption,
            csv=one.csv(FILE),
        )  # fmt: skip
        text.say(*mechanisms.conclusions(one, told))
    mechanisms.say_if_unmeasured(PHASE, root)


def positions(proposals: Table) -> Table:
    """Per place in the block: proposed, reached, accepted, both acceptances, and an interval of the conditional."""
    rows = []
    for place, part in proposals.groupby("block_position", sort=True):
        reached, accepted = int(part["reached"].sum()), int(part["accepted"].sum())
        low, high = wilson(accepted, reached)
        rows.append(
            {"place": int(place), "proposed_n": len(part), "reached_n": reached, "accepted_n": accepted,
             "conditional": accepted / reached if reached else None, "low": low, "high": high,
             "unconditional": accepted / len(part)}
        )  # fmt: skip
    return pd.DataFrame(rows)


def positions_table(frame: Table) -> Table:
    """The counts and both shares, for the page."""
    return pd.DataFrame(
        {
            "place": row["place"],
            "proposed": row["proposed_n"],
            "reached": row["reached_n"],
            "accepted": row["accepted_n"],
            "conditional: accepted / reached": f"{number(row['conditional'])} [{number(row['low'])}, "
            f"{number(row['high'])}]" if row["reached_n"] else "never reached",
            "unconditional: accepted / proposed": row["unconditional"],
        }
        for row in frame.to_dict("records")
    )  # fmt: skip


def counted_alpha(frame: Table) -> float | None:
    """Accepted over reached: alpha counted, with no inversion."""
    reached = int(frame["reached_n"].sum())
    return int(frame["accepted_n"].sum()) / reached if reached else None


def position_sentence(frame: Table) -> str:
    """Whether one alpha fits every place, and how the unconditional share falls."""
    known = [row for row in frame.to_dict("records") if row["reached_n"]]
    best = max(known, key=lambda row: row["conditional"])
    worst = min(known, key=lambda row: row["conditional"])
    one_alpha = max(row["low"] for row in known) <= min(row["high"] for row in known)
    fits = (
        "The intervals of all places overlap: nothing speaks against one alpha for all of them."
        if one_alpha
        else "The intervals do not all overlap: one alpha does not describe every place."
    )
    first, last = known[0], known[-1]
    return (
        f"Given that it was reached, a proposal stands in {text.percent(worst['conditional'])} (place "
        f"{worst['place']}) to {text.percent(best['conditional'])} (place {best['place']}) of cases. "
        f"{fits} Alpha, counted over all places, is {number(counted_alpha(frame))}. Unconditionally the "
        f"share goes from {text.percent(first['unconditional'])} at place {first['place']} to "
        f"{text.percent(last['unconditional'])} at place {last['place']}."
    )


def positions_figure(frame: Table) -> figures.Figure:
    """Both shares over the place, with what one alpha would give."""
    from matplotlib.ticker import MaxNLocator

    fig, ax = figures.axes(3.4)
    known = frame[frame["reached_n"] > 0]
    alpha = counted_alpha(frame) or 0.0
    spread = [known["conditional"] - known["low"], known["high"] - known["conditional"]]
    look = style.SERIES[0]
    ax.errorbar(
        known["place"], known["conditional"], yerr=spread, color=look.colour, marker=look.marker, linestyle=look.line,
        capsize=4, label="conditional: given that it was reached",
    )  # fmt: skip
    look = style.SERIES[1]
    ax.plot(
        frame["place"], frame["unconditional"], color=look.colour, marker=look.marker, linestyle=look.line,
        label="unconditional: of all proposed",
    )  # fmt: skip
    ax.plot(
        frame["place"], [alpha**place for place in frame["place"]], color=style.MUTED, linestyle=":", marker="",
        label="alpha to the power of the place",
    )  # fmt: skip
    ax.set_ylim(0, 1.02)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("place in the block")
    ax.set_ylabel("share accepted")
    return figures.finished(fig, ncols=1)


def wilson(hits: int, n: int, z: float = _Z) -> tuple[float | None, float | None]:
    """Wilson's score interval of a share (Wilson 1927); none for n = 0."""
    if not n:
        return None, None
    share, spread = hits / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
