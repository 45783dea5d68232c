"""The formulations chapter: what the bonus token and the repair-free round are each worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import counts_from_trace, expected_counts
from specdec_lib.report import costline, folders, mechanisms, published, style, text
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean

PHASE = "formulations"
# What changes, the variant with it, the variant without.
CHANGES = (
    ("bonus token, reference", "reference, bonus", "reference"),
    ("bonus token, repair-free", "repair-free, bonus", "repair-free"),
    ("no repair, without bonus", "repair-free", "reference"),
    ("no repair, with bonus", "repair-free, bonus", "reference, bonus"),
    ("both", "repair-free, bonus", "reference"),
)


def gains(one: folders.Results) -> folders.Table:
    """A row per (change, context): ``gain, low, high, verdict, n`` and ``predicted`` (NaN without a fit)."""
    predicted = predicted_ratios(one)
    parts = [pd.DataFrame(columns=["context", "n", "gain", "low", "high", "verdict", "change", "predicted"])]
    for change, new, old in CHANGES:
        part = mechanisms.gain(one, PHASE, new, old).assign(change=change)
        if part.empty:  # this folder's engine does not have both
            continue
        pairs = [(predicted.get((c, new)), predicted.get((c, old))) for c in part["context"]]
        part["predicted"] = [a / b if a and b else float("nan") for a, b in pairs]
        parts.append(part)
    return pd.concat(parts[1:] or parts, ignore_index=True)


def predicted_ratios(one: folders.Results) -> dict[tuple[int, str], float]:
    """(context, variant) -> geometric mean of R by the fitted cost line and the recorded traces of the same cells."""
    traces, lines = mechanisms.traces(one), costline.lines(one)
    if traces is None or not lines:
        return {}
    k, new = one.profile.k, one.profile.new_tokens
    found = {}
    for context, part in traces.groupby("context_tokens", sort=True):
        line = lines[int(context)]
        for formulation in ("reference", "repair-free"):
            for bonus in (False, True):
                R = [
                    line.R_of(counts_from_trace([bit == "1" for bit in passes], k, new, formulation, bonus))
                    for passes in part["passes"]
                ]
                found[int(context), formulation + ", bonus" * bonus] = geometric_mean(R)
    return found


def show_gains(root: Path | None = None) -> None:
    """What each change is worth, predicted and measured."""
    for one in mechanisms.having(PHASE, root):
        frame = gains(one)
        if frame.empty:
            continue
        label = "synthetic" if one.synthetic else "real"
        caption = (
            f"Ratio of R with and without the change, in the same cells (all variants {label}); above "
            "1 it is faster. Predicted from the fitted cost line and the traces. "
            + f"{mechanisms.caption(one, mechanisms.by_variant(one, PHASE))} Pair {one.profile.pair}."
        )
        style.table(gains_table(frame), caption=caption, csv=one.csv(f"{PHASE}.csv"))
    mechanisms.say_if_unmeasured(PHASE, root)


def show_finding(root: Path | None = None) -> None:
    """What helps and what does not, and the calls behind it."""
    for one in mechanisms.having(PHASE, root):
        if len(frame := gains(one)):
            text.say(*mechanisms.conclusions(one, gains_sentence(one, frame), calls_sentence(one)))
    mechanisms.say_if_unmeasured(PHASE, root)


def show_prediction(root: Path | None = None) -> None:
    """Expected counts of every formulation, at the alpha that the published acceptance means."""
    design = folders.read_design(root).measurement
    given: Any = published.summary(root)["alpha_median"]
    alpha, rows = float(given.mean()), []
    for formulation in ("reference", "repair-free"):
        for bonus in (False, True):
            counts = expected_counts(alpha, design.k, design.new_tokens, formulation, bonus)
            rows.append(
                {"variant": formulation + ", bonus" * bonus, "rounds": counts.rounds,
                 "target calls": counts.target_calls,
                 "draft forwards": counts.draft_forwards,
                 "rows of a block": sum(rows * n for rows, n in counts.blocks.items()) / sum(counts.blocks.values())}
            )  # fmt: skip
    caption = (
        f"Expected counts of {design.new_tokens} tokens at k = {design.k} and alpha = {number(alpha)}, the mean that "
        "the published acceptance means. Arithmetic: no hardware."
    )
    style.table(pd.DataFrame(rows), caption=caption, csv=published.CSV)


def gains_table(frame: folders.Table) -> pd.DataFrame:
    """One row per change and context."""
    rows = [
        {
            "change": row["change"],
            "context": text.context_name(row["context"]),
            "predicted": "no fit" if row["predicted"] != row["predicted"] else number(row["predicted"]),
            "measured": number(row["gain"]),
            "interval": mechanisms.interval(row),
            "families": row["n"],
        }
        for row in frame.to_dict("records")
    ]
    return pd.DataFrame(rows, dtype=object)


def gains_sentence(one: folders.Results, frame: folders.Table) -> str:
    """Which changes help, by their intervals; without any, by their means."""
    lines = []
    for change, part in frame.groupby("change", sort=False):
        bounded = part[part["low"].notna()]
        if bounded.empty:
            lines.append(f"{change}: {text.span(part['gain'])}, without an interval")
            continue
        words = {"pays": "helps", "does not": "costs", "undecided": "is undecided"}
        each: Any = text.listed(
            f"{words[row['verdict']]} at {text.context_name(row['context'])} ({number(row['gain'])})"
            for row in bounded.to_dict("records")
        )
        lines.append(f"{change}: {each}")
    off = (frame["gain"] / frame["predicted"] - 1).abs().max()
    told = "" if pd.isna(off) else f" The cost line's prediction is off by {text.percent(off)} at most."
    return f"In {one.named}: {'; '.join(lines)}.{told}"


def calls_sentence(one: folders.Results) -> str:
    """Target calls of the formulations: what was saved is counted, not only timed."""
    frame = mechanisms.by_variant(one, PHASE)
    old, new = (frame[frame["variant"] == name] for name in ("reference", "repair-free"))
    if old.empty or new.empty:
        return ""
    one_per_round = bool((new["target_calls"] == new["rounds"]).all())
    told = "one per round, as it must be" if one_per_round else "**not one per round**"
    return (
        f"Without bonus the reference formulation makes {text.span(old['target_calls'])} target calls in "
        f"{text.span(old['rounds'])} rounds, the repair-free one {text.span(new['target_calls'])}: {told} (medians)."
    )
