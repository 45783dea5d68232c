"""The acceptance chapter: proposals under the target's distribution: how near the target's choice they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import folders, mechanisms, published, style, text
from specdec_lib.report.style import number

Table = folders.Table
PHASE, FILE = "acceptance", "acceptance.csv"
RANK, GAP = 5, 1.0  # the article's thresholds
# Which proposals a share is over. The target sees a proposal after a refusal in a context that no run keeps.
ALL, JUDGED, FIRST, REFUSED = (
    "all proposed", "judged: all before it stood", "first refused of its round", "all not accepted",
)  # fmt: skip


def show_shares(root: Path | None = None) -> None:
    """Shares at rank and gap, per population, beside the published ones."""
    for one, proposals in measured(root):
        counted = shares(proposals)
        caption = (
            f"{one.label}: {one.hardware}. The target's rank and logit gap of the real draft's proposals "
            f"(real), {cells_told(proposals)}, pooled. Published: {published.HARDWARE}, population not "
            "stated."
        )
        style.table(shares_table(counted, root), caption=caption, csv=one.csv(FILE))
        caption = f"{one.label}: the same per context; rejected means the first refused of its round."
        style.table(shares_by_context(proposals), caption=caption, csv=one.csv(FILE))
        text.say(*mechanisms.conclusions(one, *share_sentences(counted, root)))
    if not mechanisms.having(PHASE, root):
        rank, gap = _published(root)
        text.say(
            f"Published: {text.percent(rank)} at rank ≤ {RANK}, {text.percent(gap)} within {GAP:g} logit."
        )
    text.say(*mechanisms.missing(PHASE, root))


def populations(proposals: Table) -> dict[str, Table]:
    """The proposals that each share is over, by name."""
    refused = ~proposals["accepted"]
    return {
        ALL: proposals,
        JUDGED: proposals[proposals["reached"]],
        FIRST: proposals[proposals["reached"] & refused],
        REFUSED: proposals[refused],
    }


def shares(proposals: Table) -> Table:
    """Per population: how many there are, how many have rank <= 5 and gap <= 1, and both as shares."""
    rows = []
    for name, part in populations(proposals).items():
        n, near, close = len(part), int((part["rank"] <= RANK).sum()), int((part["gap_logits"] <= GAP).sum())
        rows.append(
            {"population": name, "n": n, "rank_n": near, "gap_n": close,
             "rank_share": near / n if n else None, "gap_share": close / n if n else None}
        )  # fmt: skip
    return pd.DataFrame(rows)


def shares_table(counted: Table, root: Path | None = None) -> Table:
    """The shares with their denominators, the published pair first."""
    rank, gap = _published(root)
    rank_name, gap_name = f"rank ≤ {RANK}", f"gap ≤ {GAP:g} logit"
    first = {"proposals": "published (not stated which)", "n": "not stated",
             rank_name: text.percent(rank), gap_name: text.percent(gap)}  # fmt: skip
    ours = [
        {"proposals": row["population"], "n": int(row["n"]),
         rank_name: _of(row["rank_n"], row["n"]), gap_name: _of(row["gap_n"], row["n"])}
        for row in counted.to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame([first, *ours], dtype=object)


def shares_by_context(proposals: Table) -> Table:
    """All proposed and first refused, at every context."""
    rows = []
    for context, part in proposals.groupby("context_tokens", sort=True):
        found = shares(part).set_index("population")
        row: dict[str, Any] = {"context": text.context_name(context)}
        row["families"] = part["family"].nunique()
        for name, short in ((ALL, "all"), (FIRST, "rejected")):
            row[f"rank ≤ {RANK}, {short}"] = _of(found.loc[name, "rank_n"], found.loc[name, "n"])
            row[f"gap ≤ {GAP:g}, {short}"] = _of(found.loc[name, "gap_n"], found.loc[name, "n"])
        rows.append(row)
    return pd.DataFrame(rows)


def share_sentences(counted: Table, root: Path | None = None) -> list[str]:
    """What relaxing could win, which population the published pair resembles, and what it would then imply."""
    rank, gap = _published(root)
    by = {row["population"]: row for row in counted.to_dict("records")}
    first = by[FIRST]
    told = []
    if first["n"]:
        told.append(
            f"Of {number(int(first['n']))} rounds that ended in a rejection, the refused token was among "
            f"the target's first {RANK} in {text.percent(first['rank_share'])} and within {GAP:g} logit "
            f"of its choice in {text.percent(first['gap_share'])}. The second share is what a tolerance "
            f"of {GAP:g} logit would let pass."
        )
    known = [row for row in by.values() if row["n"]]
    nearest = min(known, key=lambda row: abs(row["rank_share"] - rank) + abs(row["gap_share"] - gap))
    told.append(
        f"The published pair ({text.percent(rank)} and {text.percent(gap)}) is nearest to ours over "
        f"*{nearest['population']}*. That does not settle what it was over: the models differ."
    )
    given = [float(a) for a in published.confirmatory(root)["acceptance_median"]]
    implied = [((rank - a) / (1 - a), (gap - a) / (1 - a)) for a in given]
    told.append(
        "An accepted token has rank 1 and no gap. If the published pair is over all proposed, the published "
        f"acceptance ({text.span(given)}) leaves {text.span((r * 100 for r, _ in implied), '%')} of the "
        f"others at rank ≤ {RANK} and {text.span((g * 100 for _, g in implied), '%')} within {GAP:g} logit. "
        f"Here it is {text.percent(by[REFUSED]['rank_share'])} and {text.percent(by[REFUSED]['gap_share'])}."
    )
    return told


def measured(root: Path | None) -> list[tuple[folders.Results, Table]]:
    """The folders that hold proposals, and their tables."""
    return [(one, one.table(FILE, "proposals")) for one in mechanisms.having(PHASE, root)]


def _published(root: Path | None) -> tuple[float, float]:
    table = published.phases(root)
    return (
        published.phase_value(table, PHASE, "rank_at_most_5"),
        published.phase_value(table, PHASE, "within_1_logit_of_top"),
    )


def _of(part: Any, whole: Any) -> str:
    return f"{text.percent(part / whole)} ({number(int(part))} of {number(int(whole))})" if whole else "none"


def cells_told(proposals: Table) -> str:
    """ "12 cells": how many (family, context) the proposals are of."""
    return text.counted(len(proposals.groupby(["context_tokens", "family"])), "cell")
