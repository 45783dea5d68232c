"""What the mechanism chapters share: a phase's table per folder, R_GM per variant, its table, figure and words.

The label of a variant (real, not exact, oracle, synthetic) stands wherever its numbers appear.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import PUBLISHED_K
from specdec_lib.design import Interval
from specdec_lib.records import read_table
from specdec_lib.report import folders, style, text
from specdec_lib.report.dotplot import dots
from specdec_lib.report.dotplot import labelled as labelled
from specdec_lib.report.phases import ARTICLE, CSV, Published, published_frame, published_table
from specdec_lib.report.phases import published_phase as published_phase
from specdec_lib.report.phases import published_value as published_value
from specdec_lib.report.style import number
from specdec_lib.stats import estimate

_MEDIANS = {
    "acceptance": "acceptance",
    "tokens_per_round": "tokens_per_round",
    "rounds": "rounds_n",
    "target_calls": "target_calls_n",
    "draft_calls": "draft_calls_n",
    "reads_per_round": "reads_per_round",
    "copies_per_round": "copies_per_round",
    "bytes_per_round": "bytes_per_round",
    "equal_share": "equal_share",
    "ar_s": "ar_median_s",
    "spec_s": "spec_median_s",
}
TIES = "not exact: ties pass"
# Phases about the text itself: with random weights they would measure nothing.
OF_TEXT = ("acceptance", "relaxed")


def having(phase: str, root: Path | None = None) -> list[folders.Results]:
    """The folders that hold the phase's table and join comparisons, those with random weights last."""
    found = [one for one in folders.joining(root) if one.has(f"{phase}.csv")]
    found = [one for one in found if not (one.synthetic and phase in OF_TEXT)]
    return sorted(found, key=lambda one: one.synthetic)


def traces(one: folders.Results) -> folders.Table | None:
    """The passes of each cell: the folder's own traces, or those that its scripted profile replays; None without any.

    Cells that a replayed trace does not cover get the profile's own bits, as its runs did.
    """
    if one.has("traces.csv"):
        return one.table("traces.csv", "traces")
    plan = one.profile.mechanisms
    if one.profile.scripted is None or plan is None:
        return None
    from specdec_lib.measure import scripted_passes

    given: dict[tuple[int, str], str] = {}
    if one.profile.traces_from:
        path = one.folder.parent / one.profile.traces_from / "traces.csv"
        table = read_table(path, "traces") if path.is_file() else pd.DataFrame()
        given = {(row["context_tokens"], row["family"]): row["passes"] for row in table.to_dict("records")}
    rows = []
    for context, n in plan.families.items():
        for family in one.profile.families[:n]:
            own = given.get((context, family))
            if own is None:
                own = "".join("01"[bit] for bit in scripted_passes(one.profile, family, context))
            rows.append({"context_tokens": context, "family": family, "passes": own})
    return pd.DataFrame(rows)


def by_family(one: folders.Results, phase: str) -> folders.Table:
    """One row per (context, family, variant): schema "ratios". Repeats that others disturbed are left out."""
    from specdec_lib.ratios import ratios, undisturbed_runs

    def derived() -> folders.Table:
        runs = undisturbed_runs(one.table(f"{phase}.csv", "mechanism"), one.disturbance)
        return relabelled(one, ratios(runs))

    return one.once(f"ratios of {phase}", derived)


def relabelled(one: folders.Results, table: folders.Table) -> folders.Table:
    """The table with its labels true: with random weights nothing is "real", its acceptance is imposed."""
    if not one.synthetic or "label" not in table:
        return table
    return table.assign(label=["synthetic" if label == "real" else label for label in table["label"]])


def by_variant(one: folders.Results, phase: str) -> folders.Table:
    """One row per (context, variant): ``context, variant, label, setting, k, bonus, formulation, n, repeats``;
    ``R_GM, low, high, verdict`` over families, ``R_min, R_max``; medians of the counts; ``identical_n`` families
    whose output is AR's; ``repeat_spread``, the median width of R over a cell's repeats; ``left_out_n`` and
    ``ar_left_out_n``, disturbed repeats of the variant and of AR that do not count, ``disturbed_n``, cells that have
    no others.

    ``low`` and ``high`` are None where the design wants more families for an interval.
    """
    return summarised(by_family(one, phase), one.design.analysis.interval)


def summarised(cells: folders.Table, interval: Interval) -> folders.Table:
    """:func:`by_variant` of a table with the schema "ratios"."""
    rows, cells = [], _ties_named(cells)
    for (context, variant), part in cells.groupby(["context_tokens", "variant"], sort=False):
        found, first = estimate(list(part["R"]), interval), part.iloc[0]
        rows.append(
            {"context": int(context), "variant": variant}
            | {name: first[name] for name in ("label", "setting", "k", "bonus", "formulation")}
            | {"n": found.n, "repeats": int(part["repeats_n"].max())}
            | {"R_GM": found.R_GM, "low": found.low, "high": found.high, "verdict": found.verdict}
            | {"R_min": float(part["R"].min()), "R_max": float(part["R"].max())}
            | {name: _median(part[column]) for name, column in _MEDIANS.items()}
            | {
                "identical_n": int(part["first_divergence_tokens"].isna().sum()),
                "left_out_n": int(part["left_out_n"].sum()),
                "ar_left_out_n": int(part["ar_left_out_n"].sum()),
                "disturbed_n": int(part["disturbed"].sum()),
                "repeat_spread": float(((part["R_high"] - part["R_low"]) / part["R"]).median()),
            }
        )
    return pd.DataFrame(rows).sort_values("context", kind="stable", ignore_index=True)


def _ties_named(cells: folders.Table) -> folders.Table:
    """The table with delta 0 of the relaxed rule labelled for what it is: a tie for the top passes, it is not greedy.

    BF16 logits tie often. The measured rows say "real", as they were planned.
    """
    tied = cells["phase"].eq("relaxed") & cells["label"].eq("real")
    return cells.assign(label=cells["label"].where(~tied, TIES))


def gain(one: folders.Results, phase: str, variant: str, against: str) -> folders.Table:
    """How much faster ``variant`` is than ``against`` in the same cells: a row per context with ``context, n,
    gain`` (geometric mean of the ratio of R; above 1 it is faster) and ``low, high, verdict``; ``spread``: the wider of
    the ratio over families and of what repeats do to a ratio, as a share: the width of R over a cell's repeats (median
    over both variants' cells) on either side of it.

    No row where the folder did not run both.
    """
    cells, rows = by_family(one, phase), []
    for context, part in cells.groupby("context_tokens", sort=True):
        R = part.pivot(index="family", columns="variant", values="R")
        if variant not in R or against not in R:
            continue
        ratio = R[variant] / R[against]
        found = estimate(list(ratio), one.design.analysis.interval)
        both = part[part["variant"].isin([variant, against])]
        repeats = (1 + float(((both["R_high"] - both["R_low"]) / both["R"]).median())) ** 2 - 1
        rows.append(
            {"context": int(context), "n": found.n, "gain": found.R_GM, "low": found.low, "high": found.high,
             "verdict": found.verdict, "spread": max(repeats, float(ratio.max() / ratio.min() - 1))}
        )  # fmt: skip
    return pd.DataFrame(rows, columns=["context", "n", "gain", "low", "high", "verdict", "spread"])


def told_apart(row: Mapping[str, Any]) -> bool:
    """Whether a row of :func:`gain` shows a difference: its interval leaves out 1, or, without an interval, the factor
    (either way) exceeds the spread."""
    if pd.notna(row["low"]):
        return not row["low"] <= 1 <= row["high"]
    return max(row["gain"], 1 / row["gain"]) - 1 > row["spread"]


def gain_told(row: Mapping[str, Any]) -> str:
    """The factor with what it stands on: "1.50 at 2K (2 families, spread 33.2 %)"; an interval where there is one."""
    bounds = f"interval {interval(row)}" if pd.notna(row["low"]) else ""
    weighed = bounds or f"spread {text.percent(row['spread'])}"
    return (
        f"{number(row['gain'])} at {text.context_name(row['context'])} ({text.families(row['n'])}, {weighed})"
    )


def show_variants(phase: str, published: Published | None = None, root: Path | None = None) -> None:
    """All folders side by side, then per folder its table and figure with the published numbers; else how to measure.

    ``published``: our variant's name -> the phase of ``phases.csv`` it answers to; a name that none of our variants
    has gets lines of its own.
    """
    style.use_style()
    given, found = published_frame(published or {}, root), having(phase, root)
    if len(found) > 1:
        files = [one.csv(f"{phase}.csv") for one in found]
        style.table(side_by_side(found, phase, given), caption=beside_caption(found), csv=files)
    for one in found:
        cells = by_family(one, phase)
        frame, csv = summarised(cells, one.design.analysis.interval), one.csv(f"{phase}.csv")
        theirs = given if one.profile.k == PUBLISHED_K else given.head(0)  # another k is another experiment
        style.table(variant_table(frame, theirs), caption=caption(one, frame), csv=csv)
        cross = f", × a published R ({ARTICLE})" if len(theirs) else ""
        drawn = f"A faint mark is a family, a filled one R_GM{cross}. {caption(one, frame)}"
        words = f"R_GM of every variant in {one.label}. {in_words(frame)}"
        style.figure(dots(cells, frame, theirs), alt=words, caption=drawn, csv=csv)
    if not found and len(given):
        style.table(published_table(given), caption=f"As published: {ARTICLE}.", csv=CSV)
    text.say(*missing(phase, root))


def side_by_side(found: list[folders.Results], phase: str, given: pd.DataFrame) -> pd.DataFrame:
    """R_GM with its interval: a row per context and variant, a column per folder, the published R first."""
    columns: dict[str, dict[tuple[int, str], str]] = {}
    if len(given):
        columns["published"] = {
            (row["context"], row["variant"]): number(row["R"]) for row in given.to_dict("records")
        }
    labels: dict[str, set[str]] = {}
    for one in found:
        frame = by_variant(one, phase)
        columns[one.label] = {
            (row["context"], row["variant"]): text.estimate(row) for row in frame.to_dict("records")
        }
        for row in frame.to_dict("records"):
            labels.setdefault(row["variant"], set()).add(row["label"])
    order = {name: place for place, name in enumerate(labels)}
    keys = {key for name, cells in columns.items() if name != "published" for key in cells}
    keys |= {key for key in columns.get("published", {}) if key[1] not in labels}
    rows = [
        {"context": text.context_name(context), "variant": _all_labels(variant, labels.get(variant, set()))}
        | {
            name: cells.get((context, variant), "not stated" if name == "published" else "not run")
            for name, cells in columns.items()
        }
        for context, variant in sorted(keys, key=lambda key: (key[0], order.get(key[1], len(order))))
    ]
    return pd.DataFrame(rows, dtype=object)


def beside_caption(found: list[folders.Results]) -> str:
    """Which machine each column is, and what its engine does."""
    each = " ".join(f"{one.label}: {one.hardware}, k = {one.profile.k}." for one in found)
    return (
        f"R_GM of every variant, side by side; brackets: interval over families. Published: {ARTICLE}. {each}"
    )


def _all_labels(variant: str, labels: set[str]) -> str:
    return labelled(variant, " or ".join(sorted(labels))) if labels else variant


def variant_table(frame: folders.Table, given: pd.DataFrame | None = None) -> pd.DataFrame:
    """What a chapter shows of :func:`by_variant`, with the published R beside or below it."""
    given = published_frame({}) if given is None else given
    beside = {(row["variant"], row["context"]): row for row in given.to_dict("records")}
    rows = []
    for row in frame.to_dict("records"):
        other = beside.get((row["variant"], row["context"]))
        rows.append(
            {
                "context": text.context_name(row["context"]),
                "variant": labelled(row["variant"], row["label"]),
                "R_GM": number(row["R_GM"]),
                "interval": interval(row),
                "families": row["n"],
                "acceptance": "no proposals"
                if row["acceptance"] != row["acceptance"]
                else number(row["acceptance"]),
                "tokens per round": number(row["tokens_per_round"]),
                "rounds": number(row["rounds"]),
                "target calls": number(row["target_calls"]),
            }
            | ({"published R": number(other["R"]) if other else "not stated"} if len(given) else {})
        )
    names, contexts = list(frame["variant"]), list(frame["context"])
    extra: Any = given[~given["variant"].isin(names) & given["context"].isin(contexts)]
    return pd.DataFrame([*rows, *published_table(extra, list(rows[0])).to_dict("records")], dtype=object)


def interval(row: Mapping[str, Any]) -> str:
    """ "0.5 to 0.6", or "none" where the families are too few."""
    return "none" if pd.isna(row["low"]) else f"{number(row['low'])}\u00a0to\u00a0{number(row['high'])}"


def caption(one: folders.Results, frame: folders.Table) -> str:
    """Hardware, precision, n, repeats and spread."""
    return f"{one.label}: {one.hardware}, k = {one.profile.k}. {spread(frame, one.design.analysis.interval)}"


def spread(frame: folders.Table, plan: Interval) -> str:
    """n, repeats, interval and spread of :func:`by_variant`, for captions."""
    sizes = frame.groupby("context", sort=True)["n"].max()
    each = text.listed(f"{text.families(n)} at {text.context_name(c)}" for c, n in sizes.items())
    told = "no interval: too few families"
    if bool(frame["low"].notna().any()):
        told = f"{text.percent(plan.level, 0)} interval ({plan.method}) from {text.families(plan.min_families)} on"
    return (
        f"{each}, {text.counted(int(frame['repeats'].max()), 'repeat')} per variant, {left_out(frame)}; {told}; "
        f"median spread of R over a cell's repeats {text.percent(frame['repeat_spread'].median())}."
    )


def left_out(frame: folders.Table) -> str:
    """How many disturbed repeats do not count, and how many values rest on disturbed runs alone, for captions."""
    by_context = frame.groupby("context")["ar_left_out_n"].max()  # AR's repeats stand in every variant's row
    gone = int(frame["left_out_n"].sum() + by_context.sum())
    told = (
        f"{text.counted(gone, 'disturbed repeat')} left out" if gone else "no disturbed repeat to leave out"
    )
    kept, n = int(frame["disturbed_n"].sum()), int(frame["n"].sum())
    if not kept:
        return told
    rest = "rests" if kept == 1 else "rest"
    return f"{told}; {kept} of {text.counted(n, 'value')} {rest} on disturbed runs alone"


def conclusions(one: folders.Results, *sentences: str) -> list[str]:
    """The sentences. In place of those of a quick look, which can bear none, one that says so."""
    told = [sentence for sentence in sentences if sentence]
    if not (one.quick and told):
        return told
    plan = one.profile.mechanisms
    size = text.listed(
        f"{text.families(n)} at {text.context_name(c)}" for c, n in (plan.families if plan else {}).items()
    )
    repeats = text.counted(plan.repeats if plan else one.profile.repeats, "repeat")
    return [
        f"**{one.label}.** {size}, {repeats}: enough to see that it runs and about how much it is, too little for a "
        "conclusion. None is drawn."
    ]


def in_words(frame: folders.Table) -> str:
    """ "At 2K: delta 0 (real) 0.71; delta 1 (not exact) 0.9." for every context of :func:`by_variant`."""
    parts = []
    for context, part in frame.groupby("context", sort=True):
        named = zip(part["variant"], part["label"], part["R_GM"], strict=True)
        each = "; ".join(f"{labelled(variant, label)} {number(R)}" for variant, label, R in named)
        parts.append(f"At {text.context_name(context)}: {each}.")
    return " ".join(parts)


def say_if_unmeasured(phase: str, root: Path | None = None) -> None:
    """In a chapter's later sections: how to measure, where nothing is; the first one says what else is missing."""
    if not having(phase, root):
        text.say(*missing(phase, root))


def missing(phase: str, root: Path | None = None) -> list[str]:
    """The "not measured here" lines: a committed profile whose run is pending, and this machine."""
    found, profiles = having(phase, root), folders.read_design(root).profiles
    absent = [
        name for name, entry in profiles.items()
        if entry.committed and phase in entry.phases and name not in {one.name for one in found}
    ]  # fmt: skip
    lines = [text.not_measured(f"{phase}, profile `{name}`", f"make runs PROFILE={name}") for name in absent]
    chosen = _profile_for(phase, root)
    command = f"make runs PROFILE={chosen}" + f" INTO=my-{chosen}" * profiles[chosen].committed
    # the same profile twice would only confuse
    if all(one.committed for one in found) and chosen not in absent:
        lines.append(text.not_measured(f"{phase} on this machine", command))
    return lines


def _profile_for(phase: str, root: Path | None) -> str:
    """The profile with which a reader measures the phase: the quickest on a CPU with real weights."""
    having_it = {
        name: (entry.device != "cpu", entry.minutes[phase])
        for name, entry in folders.read_design(root).profiles.items()
        if phase in entry.phases and not folders.has_random_weights(entry.pair)
    }
    return min(having_it, key=lambda name: having_it[name], default="cpu-full")


def _median(values: Any) -> float | None:
    return None if values.isna().all() else float(values.median())
