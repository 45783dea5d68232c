"""The cost-model chapter: the prediction, that it was first, and how far the measurement is from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costfit import in_sample_residuals
from specdec_lib.files import canonical_json, sha256_text
from specdec_lib.predictions import residuals_table
from specdec_lib.report import figures, folders, mechanisms, style, text
from specdec_lib.report.costline import PHASE
from specdec_lib.report.stages import COSTS
from specdec_lib.report.style import number

Table = folders.Table
AIM = 0.05  # the study's aim for the median out of sample
LARGE = 0.10  # a residual beyond this is listed with what it is due to
_EVEN = 0.01  # a median nearer to 0 than this leans to neither side
_SHARED = 0.5  # both times count as the cause if the smaller part is at least this share of the larger
_WITHIN, _BEYOND = "within the development texts", "beyond them (extrapolated)"


# -- the prediction was first


def show_first(root: Path | None = None) -> None:
    """The prediction's hash, computed from its file, against the one that every measured row carries."""
    for one in mechanisms.having(PHASE, root):
        runs = one.table(f"{PHASE}.csv", "mechanism")
        text.say(first_sentence(_predictions(one), runs, one.named))
    mechanisms.say_if_unmeasured(PHASE, root)


def digest(predictions: Table) -> str:
    """The hash of a predictions table, as it was taken when the prediction was written."""
    rows = predictions.drop(columns=["profile", "design_hash"]).to_dict("records")
    return sha256_text(canonical_json([{key: _plain(value) for key, value in row.items()} for row in rows]))


def first_sentence(predictions: Table, runs: Table, name: str) -> str:
    """Whether the rows were measured under exactly this prediction."""
    own, carried = digest(predictions), runs["prediction_sha256"]
    matching = int((carried == own).sum())
    start = f"The prediction of {name} ({text.counted(len(predictions), 'row')}) has the hash `{own[:16]}`."
    if matching == len(runs):
        return (
            f"{start} All {text.counted(len(runs), 'measured row')} carry it: they were measured after it "
            "was written, and it was not changed since."
        )
    return (
        f"{start} **Only {matching} of {text.counted(len(runs), 'measured row')} carry it:** the others "
        "were measured under another prediction or none, and say nothing about this one."
    )


# -- predicted against measured


def of_folder(one: folders.Results) -> Table:
    """The folder's predictions of held-out cells beside what was measured there: schema "residuals"."""
    return residuals_table(_predictions(one), mechanisms.by_family(one, PHASE))


def show(root: Path | None = None) -> None:
    """The scatter, the residuals in and out of sample, and every large one with its cause."""
    for one in mechanisms.having(PHASE, root):
        frame = mechanisms.relabelled(one, of_folder(one))
        inside = list(in_sample_residuals(one.table(COSTS, "costs")))
        told, csv = verdict_sentences(frame, inside), one.csv(f"{PHASE}.csv")
        each = text.listed(f"{n} {label}" for label, n in frame["label"].value_counts().items())
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. {number(len(frame))} held-out cells and "
            f"variants ({each}), medians over repeats; hollow: extrapolated context. {bars(frame)}"
        )
        style.use_style()
        alt = "Predicted against measured R on log axes. " + told[0]
        style.figure(figure(frame), alt=alt, caption=caption, csv=csv)
        text.say(*mechanisms.conclusions(one, f"**{one.label}.** {told[0]}", *told[1:]))
        caption = f"{one.label}: residual = R measured / R predicted - 1."
        style.table(summary(frame, inside), caption=caption, csv=csv)
        text.say(*counts_sentences(frame))
        if not one.quick:
            text.say(*large_sentences(frame))
        if len(large := large_table(frame)):
            caption = f"{one.label}: every residual above {text.percent(LARGE, 0)}. Times: measured / predicted - 1."
            style.table(large, caption=caption, csv=csv)
    mechanisms.say_if_unmeasured(PHASE, root)


def bars(frame: Table) -> str:
    """What the bars of the figure are: those of the prediction only where the development families gave an interval."""
    measured = "slowest and fastest repeat of the measurement"
    if bool(frame["R_predicted_low"].notna().any()):
        return f"Bars: 95 % t interval of the prediction over development families; {measured}."
    return f"Bars: {measured}; the prediction's development families are too few for an interval."


def summary(frame: Table, in_sample: Iterable[float]) -> Table:
    """Median and largest absolute residual: in sample, out of sample, and its parts."""
    sets: dict[str, list[float]] = {
        "in sample: development runs": list(in_sample),
        "out of sample: all held-out": list(frame["residual"]),
    }
    for beyond, name in ((False, _WITHIN), (True, _BEYOND)):
        sets[f"out of sample, {name}"] = list(frame[frame["extrapolated"] == beyond]["residual"])
    for label, part in frame.groupby("label", sort=False):
        sets[f"out of sample, {label}"] = list(part["residual"])
    for same, name in ((True, "in the rounds that were predicted"), (False, "in other rounds")):
        sets[f"out of sample, {name}"] = list(frame[frame["same_rounds"] == same]["residual"])
    return pd.DataFrame(
        {
            "set": name,
            "n": len(values),
            "median |residual|": text.percent(_median(values)),
            "largest": text.percent(max(abs(v) for v in values)),
            f"above {text.percent(LARGE, 0)}": sum(abs(v) > LARGE for v in values),
        }
        for name, values in sets.items()
        if values
    )


def verdict_sentences(frame: Table, in_sample: Iterable[float], aim: float = AIM) -> list[str]:
    """Whether the median out of sample reaches the aim, and how it compares with the one in sample."""
    out, inside = _median(frame["residual"]), _median(list(in_sample))
    reached = "reaches" if out <= aim else "misses"
    worst = frame.loc[frame["residual"].abs().idxmax()]
    signed = float(frame["residual"].median())
    side = "as fast as" if abs(signed) < _EVEN else "slower than" if signed < 0 else "faster than"
    return [
        f"Out of sample the median |residual| is {text.percent(out)} over {number(len(frame))} "
        f"predictions: the cost line **{reached}** the aim of at most {text.percent(aim, 0)}. In sample "
        f"it is {text.percent(inside)}.",
        f"The variants are {side} predicted in the median ({text.signed(signed)}). The largest residual is "
        f"{text.signed(worst['residual'])}: {_name(worst)}.",
    ]


def counts_sentences(frame: Table) -> list[str]:
    """Where the predictions took their rounds from, and how far AR's trace would have told them."""
    counted = frame[frame["counts_from"] == "run"]
    if counted.empty:
        return []
    other = int((counted["rounds_n"] != counted["rounds_by_trace_n"]).sum())
    told = f"Rounds of the {number(len(counted))} variants that accept by themselves come from an untimed run of each"
    if not other:
        return [f"{told}; the trace of AR's text says the same."]
    return [
        f"{told}. The recorded trace says other rounds in {number(other)} of them: it fits only "
        "where blocks decide as single steps did while it was recorded."
    ]


# Where the counts come from the trace: a near-tie that a block decides in another way leaves the recorded text.
_DISTURBED = "a run that others disturbed"
_OTHER_ROUNDS = "other rounds than predicted, because the text left AR's at a near-tie"


def cause(row: dict[str, Any]) -> str:
    """What a residual is due to: other rounds, AR's time, the variant's, or both; an extrapolated context; noise;
    other processes."""
    found = [] if row["same_rounds"] else [f"{row['rounds_measured_n']} rounds instead of {row['rounds_n']}"]
    off = times_off(row)
    found += [f"{name} ({text.signed(share)})" for name, share in off.items()] if len(off) > 1 else list(off)
    found += _beside(row)
    if row["disturbed"]:
        found.append(f"run disturbed (others used {text.percent(row['others_cpu_share'])})")
    return ", ".join(found)


def times_off(row: dict[str, Any]) -> dict[str, float]:
    """The time that is further off its prediction; the other too if it is off comparably, to whichever side.

    log(R measured / R predicted) is AR's log residual minus the variant's, so the two can be weighed: of two that are
    off to one side the larger makes the residual and the smaller hides a part of it.
    """
    shares = {"AR's time": row["ar_residual"], "the variant's time": row["spec_residual"]}
    weights = {name: abs(math.log1p(share)) for name, share in shares.items()}
    larger = max(weights, key=lambda name: weights[name])
    if min(weights.values()) >= _SHARED * weights[larger] > 0:
        return shares
    return {larger: shares[larger]}


def _kind(row: dict[str, Any]) -> str:
    """:func:`cause` without its numbers, so that rows with one cause can be counted."""
    if row["disturbed"]:
        return _DISTURBED
    if not row["same_rounds"]:
        return _OTHER_ROUNDS
    off = list(times_off(row))
    return ", ".join(["both times" if len(off) > 1 else off[0], *_beside(row)])


def _beside(row: dict[str, Any]) -> list[str]:
    """What weakens a residual, whatever time it is due to."""
    inside = row["R_low"] <= row["R_predicted"] <= row["R_high"]
    found = {"extrapolated context": row["extrapolated"], "inside the spread of its repeats": inside}
    return [name for name, holds in found.items() if holds]


def large(frame: Table) -> Table:
    """The rows whose residual is above 10 %, largest first."""
    chosen = frame[frame["residual"].abs() > LARGE]
    return chosen.reindex(chosen["residual"].abs().sort_values(ascending=False).index)


def large_table(frame: Table) -> Table:
    """Every large residual with its cause."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "family": row["family"],
            "variant": mechanisms.labelled(row["variant"], row["label"]),
            "R predicted": row["R_predicted"],
            "R measured": row["R_measured"],
            "residual": text.signed(row["residual"]),
            "AR's time": text.signed(row["ar_residual"]),
            "variant's time": text.signed(row["spec_residual"]),
            "due to": cause(row),
        }
        for row in large(frame).to_dict("records")
    )


def large_sentences(frame: Table) -> list[str]:
    """How many are large, and what they are due to."""
    found = large(frame)
    if found.empty:
        return [f"No residual is above {text.percent(LARGE, 0)}."]
    causes: dict[str, int] = {}
    for row in found.to_dict("records"):
        causes[_kind(row)] = causes.get(_kind(row), 0) + 1
    each = text.listed(f"{name} ({n})" for name, n in sorted(causes.items(), key=lambda item: -item[1]))
    return [
        f"{len(found)} of {number(len(frame))} residuals are above {text.percent(LARGE, 0)}. Due to: {each}."
    ]


def figure(frame: Table) -> figures.Figure:
    """Measured over predicted R on log axes with the diagonal; a look per label."""
    fig, ax = figures.axes(4.6)
    edges = [frame[name].dropna() for name in ("R_predicted", "R_measured", "R_low", "R_high")]
    values = [float(value) for part in edges for value in part] + [1.0]
    for look, (label, part) in zip(style.SERIES, frame.groupby("label", sort=False), strict=False):
        for beyond, here in part.groupby("extrapolated"):
            ends = (
                here["R_predicted"] - here["R_predicted_low"],
                here["R_predicted_high"] - here["R_predicted"],
            )
            across = [end.fillna(0).clip(lower=0) for end in ends]
            along = [here["R_measured"] - here["R_low"], here["R_high"] - here["R_measured"]]
            ax.errorbar(
                here["R_predicted"], here["R_measured"], xerr=across, yerr=[a.clip(lower=0) for a in along],
                fmt=look.marker, color=look.colour, markerfacecolor="white" if beyond else look.colour, elinewidth=0.8,
                linestyle="none", label=f"{label}{', extrapolated' if beyond else ''}",
            )  # fmt: skip
    for which in ("x", "y"):
        figures.log_axis(ax, which, values)
    ends = [min(values) / 1.08, max(values) * 1.08]
    ax.plot(ends, ends, color=style.INK, linewidth=1.2, linestyle="-", marker="")
    ax.set_aspect("equal")
    ax.set_xlabel("R predicted, log scale")
    ax.set_ylabel("R measured, log scale")
    return figures.finished(fig, ncols=2)


def _predictions(one: folders.Results) -> Table:
    return one.table("predictions.csv", "predictions")


def _plain(value: Any) -> Any:
    return None if pd.isna(value) else value


def _median(values: Any) -> float:
    return float(pd.Series(list(values)).abs().median())


def _name(row: Any) -> str:
    return (
        f"{mechanisms.labelled(row['variant'], row['label'])}, {row['family']} at "
        f"{text.context_name(row['context_tokens'])}"
    )
