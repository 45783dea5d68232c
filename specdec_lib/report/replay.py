"""The dial chapter: whether a replayed trace is the real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import folders, mechanisms, style, text
from specdec_lib.report.curve import PHASE

Table = folders.Table
REPLAY, REAL = "recorded trace", "real draft"
CLOSE = 0.05  # a replay within this share of the real run's time stands for it
FEW = 3  # cells with the same rounds under which no verdict is drawn


def show(root: Path | None = None) -> None:
    """The recorded trace, imposed, beside the real draft in the same cells."""
    for one in mechanisms.having(PHASE, root):
        frame = compared(mechanisms.by_family(one, PHASE))
        if one.synthetic or frame.empty:  # random weights have no acceptance of their own to be replayed
            continue
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. The same engine with the recorded trace "
            "imposed (synthetic) and with the real draft (real); medians over repeats. Time: replay / real."
        )
        style.table(table(frame), caption=caption, csv=one.csv(f"{PHASE}.csv"))
        text.say(*mechanisms.conclusions(one, *(f"**{one.label}.** {told}" for told in sentences(frame))))
    mechanisms.say_if_unmeasured(PHASE, root)


def compared(cells: Table) -> Table:
    """One row per cell: rounds and time of both, and whether the real draft's text is AR's."""
    keys = ["context_tokens", "family"]
    columns = [*keys, "rounds_n", "spec_median_s", "R"]
    real = cells[cells["variant"] == REAL][[*columns, "first_divergence_tokens"]]
    joined = cells[cells["variant"] == REPLAY][columns].merge(real, on=keys, suffixes=("_replay", "_real"))
    joined["time"] = joined["spec_median_s_replay"] / joined["spec_median_s_real"]
    joined["same"] = joined["rounds_n_replay"] == joined["rounds_n_real"]
    return joined


def table(frame: Table) -> Table:
    """For the page."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "family": row["family"],
            "rounds, replay (synthetic)": row["rounds_n_replay"],
            "rounds (real)": row["rounds_n_real"],
            "R, replay (synthetic)": row["R_replay"],
            "R (real)": row["R_real"],
            "time": row["time"],
        }
        for row in frame.to_dict("records")
    )


def sentences(frame: Table) -> list[str]:
    """Whether replay gives the rounds and the time of the real run."""
    same, n = frame[frame["same"]], len(frame)
    other = (
        f"{row['family']} at {text.context_name(row['context_tokens'])} "
        f"({row['rounds_n_replay']} against {row['rounds_n_real']}{_left(row)})"
        for row in frame[~frame["same"]].to_dict("records")
    )
    rounds = (
        f"Replaying the trace takes exactly the rounds of the real draft {text.in_all(n, 'cell')}."
        if len(same) == n
        else f"Replaying the trace takes the rounds of the real draft in {len(same)} of "
        f"{text.counted(n, 'cell')}; not in {text.listed(other)}."
    )
    if same.empty:
        return [rounds]
    timed = f"{rounds} Where the rounds agree its time is {text.span(same['time'])} of the real run's"
    if len(same) < FEW:
        return [f"{timed}: {text.counted(len(same), 'cell')}, and so few decide nothing."]
    off = float((same["time"] - 1).abs().median())
    judged = (
        "What is imposed costs what is real."
        if off <= CLOSE
        else f"That is more than {text.percent(CLOSE, 0)}: the dial's times do not stand for those of a real draft."
    )
    return [f"{timed}, {text.percent(off)} apart in the median. {judged}"]


def _left(row: dict[str, Any]) -> str:
    at = row["first_divergence_tokens"]
    return "" if pd.isna(at) else f", its text left AR's at token {int(at) + 1}"  # the column counts from 0
