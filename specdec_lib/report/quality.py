"""How far the results carry: excluded cells, other choices of analysis, memory and load by others."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specdec_lib.load import UNSEEN_S
from specdec_lib.report import compare, folders, style, text
from specdec_lib.report.host import FOLLOWS
from specdec_lib.report.style import number

_NONE = "no interval"  # the verdict of too few families
_ARMS = {"ar": "AR", "spec": "SpecDec"}
_HARDLY = 0.5  # of every run's time: where ticks hide more, others' CPU time cannot be judged


def show_exclusions(found: list[compare.Source]) -> None:
    """Cells that failed a check, with the check and what it saw."""
    for one in _measured_or_say(found):
        frame = exclusions(one)
        text.say(exclusion_sentence(one))
        if not frame.empty:
            style.table(frame, caption=f"Failed checks in {one.label}.", csv=one.runs_csv)


def exclusions(one: folders.Results) -> pd.DataFrame:
    """One row per failed check of a cell: check, value, limit, note."""
    table = one.exclusions
    rows = []
    for row in table.to_dict("records"):
        value, limit = row["value"], row["limit"]
        counted = row["check"] == "deterministic"  # how many outputs; all others are shares
        shown = (number(value), number(limit)) if counted else apart(value, limit)
        rows.append(
            (text.context_name(row["context_tokens"]), row["family"], row["check"], *shown, row["note"])
        )
    return pd.DataFrame(rows, columns=["context", "family", "check", "value", "limit", "note"])


def apart(value: float, limit: float) -> tuple[str, str]:
    """Both as per cent, with as many digits as tell the value from the limit that it passed."""
    each = [(text.percent(value, digits), text.percent(limit, digits)) for digits in range(1, 6)]
    return next((pair for pair in each if pair[0] != pair[1]), each[0])


def exclusion_sentence(one: folders.Results) -> str:
    """How many cells stay in the inference, and which checks failed how often."""
    cells: Any = one.families
    kept, failed = int(cells["in_inference"].sum()), exclusions(one)["check"].value_counts()
    unknown = [name for name in one.design.analysis.exclude_on if bool(cells[f"{name}_passed"].isna().all())]
    lines = [
        f"**{one.label}.** {kept} of {text.counted(len(cells), 'cell')} (family and context) are in the "
        f"inference."
    ]
    each = text.listed(f"{name} ({n})" for name, n in failed.items())
    lines += [f"Failed: {each}." if each else "No check failed.", *_aside(one), *order_sentences(one)]
    if unknown:
        lines.append(
            f"Not computable with {text.counted(one.profile.repeats, 'repeat')}: {text.listed(unknown)}."
        )
    return " ".join(lines)


def _aside(one: folders.Results) -> list[str]:
    """How many runs were measured again since something else slowed them, and how far that is seen in runs so short."""
    if "set_aside_n" not in one.runs:
        return []
    n = int(one.runs["set_aside_n"].sum())
    were, them = ("was", "it") if n == 1 else ("were", "them")
    # earlier sources asked for the CPU time alone, and the table does not tell which reason a run had
    gpu = (
        f", {number(UNSEEN_S * 1000)} ms not counted: ticks; or, by later sources, a GPU that throttled or had another "
        "process"
    )
    told = (
        f"{text.counted(n, 'run')} that something else slowed (others' CPU time above {text.percent(one.disturbance)} "
        f"of the run's{gpu * one.cuda}) {were} set aside and measured again, each at most "
        f"{text.counted(one.profile.repeat_disturbed, 'time')}; the job files keep {them}."
    )
    typical = one.runs.groupby(["context_tokens", "arm"])["decode_s"].median()
    unseen = UNSEEN_S / typical
    if not one.cuda or unseen.max() <= one.disturbance:  # ticks hide less than the check allows
        return [told]
    so = f"so that others may take {text.span((unseen * 100).clip(upper=100))} % of it unseen"
    so = "so that this part of the check can hardly fail" if unseen.min() > _HARDLY else so
    return [
        f"{told} A run takes {text.span(typical * 1000)} ms here (medians by context and arm), {so}: what speaks is "
        "the spread of the times."
    ]


def order_sentences(one: folders.Results) -> list[str]:
    """Where the check "order" failed: whether all families moved the same way between the two blocks. In isolation
    "context" a block is one process, and what all its families share is one shift of that process."""
    told = []
    failed: Any = one.exclusions
    for context in sorted(set(failed[failed["check"] == "order"]["context_tokens"])):
        here: Any = one.runs[one.runs["context_tokens"] == context]
        medians = here.groupby(["arm", "family", "block"])["decode_s"].median().unstack("block")
        of = here.groupby(["arm", "family"])["decode_s"].median()  # as the check's own value in the table
        for arm, ratio in ((medians["BA"] - medians["AB"]) / of).groupby("arm"):
            slower = max((ratio > 0).sum(), (ratio < 0).sum())
            if slower == len(ratio) > 1:
                told.append(
                    f"{_ARMS[str(arm)]} was {'slower' if ratio.iloc[0] > 0 else 'faster'} in block BA than in block AB "
                    f"in all {text.families(len(ratio))} at {text.context_name(context)}, by "
                    f"{text.percent(float(ratio.abs().min()))} to {text.percent(float(ratio.abs().max()))}"
                    f"{_with_host(here[here['arm'] == arm])}"
                )
    if not told:
        return []
    why = "a block is one process there, so it is one shift between two processes and no chance of single families; "
    why = why * (one.profile.isolation == "context") + "medians over both blocks hold half of it each"
    return [f"{text.listed(told)}: {why}."]


def _with_host(runs: Any) -> str:
    """Whether the device's time of an arm goes with what the host added to it, over the runs of each family."""
    if "device_event_s" not in runs or runs["device_event_s"].isna().any():
        return ""
    both = runs[["device_event_s"]].assign(added=runs["decode_s"] - runs["device_event_s"])
    within = both / both.groupby(runs["family"]).transform("median")
    rank = float(within.corr(method="spearman").iloc[0, 1])
    if not rank >= FOLLOWS:
        return ""
    return (
        f" (within a family its time on the device goes with what the host adds to it, rank correlation "
        f"{number(rank, digits=2)}: the host's pace is a likely part of it)"
    )


def show_sensitivity(found: list[compare.Source]) -> None:
    """R_GM under other choices; leaving each family out is one line, its range."""
    for one in _measured_or_say(found):
        if one.quick:
            continue
        frame, stable = sensitivity(one)
        style.table(frame, caption=f"{one.label}: R_GM under other choices.", csv=one.runs_csv)
        text.say(stable)


def sensitivity(one: folders.Results) -> tuple[pd.DataFrame, str]:
    """The table, and whether any choice changes a verdict."""
    from specdec_lib.analysis import sensitivity_table

    table: Any = sensitivity_table(one.families, one.design)
    rows, changes, gained, verdicts = [], [], [], []
    for context, part in table.groupby("context_tokens", sort=True):
        name = text.context_name(context)
        main = part.loc[part["variant"] == "inference", "verdict"].iloc[0]
        without = part[part["variant"].str.startswith("without ")]
        for row in part[~part["variant"].str.startswith("without ")].to_dict("records"):
            rows.append((name, row["variant"], row["n"], text.estimate(row), row["verdict"]))
        if len(without):
            seen = ", ".join(map(style.verdict, dict.fromkeys(without["verdict"])))
            n, R = int(without["n"].max()), text.span(without["R_GM"])
            rows.append((name, "leave one family out", n, R, seen))
        other = part[~part["verdict"].isin([main, _NONE])].to_dict("records")
        found = [f"{row['variant']} at {name} ({style.verdict(row['verdict'])})" for row in other]
        verdicts.append(main)
        if main == _NONE:  # what has no verdict cannot get another one
            gained += found
        else:
            changes += found
    frame = pd.DataFrame(rows, columns=["context", "choice", "families", "R_GM", "verdict"])
    return frame, _choices_told(changes, gained, any(main != _NONE for main in verdicts))


def _choices_told(changes: list[str], gained: list[str], any_verdict: bool) -> str:
    """Which choices change a verdict, and which give one where the main choice has none."""
    told = [f"Another verdict comes out with: {text.listed(changes)}."] if changes else []
    if not changes and any_verdict:
        told.append("No choice changes a verdict.")
    if gained:
        told.append(f"Where the main choice gives no verdict, others give: {text.listed(gained)}.")
    return " ".join(told) or "No choice gives a verdict."


def show_memory(found: list[compare.Source]) -> None:
    """Peak resident memory and load by others."""
    if ours := _measured_or_say(found):
        caption = "Largest over the processes of each context."
        caption += " GPU memory: what the process's tensors took." * any(one.cuda for one in ours)
        style.table(memory(ours), caption=caption, csv=[one.runs_csv for one in ours])


def memory(found: list[folders.Results]) -> pd.DataFrame:
    """Per context and folder: peak host memory in GiB, CPU share taken by others, processes."""
    rows = []
    for one in found:
        for context, part in one.runs.groupby("context_tokens", sort=True):
            rows.append(
                {
                    "context": text.context_name(context),
                    "results": one.label,
                    "peak host memory, GiB": float(part["peak_rss_bytes"].max()) / 2**30,
                    "peak GPU memory, GiB": float(part["gpu_peak_bytes"].max()) / 2**30
                    if "gpu_peak_bytes" in part
                    else None,
                    "CPU taken by others, median": text.percent(float(part["others_cpu_share"].median())),
                    "largest": text.percent(float(part["others_cpu_share"].max())),
                    "processes": int(part["job"].nunique()),
                    "runs": len(part),
                }
            )
    return pd.DataFrame(rows, dtype=object).dropna(axis="columns", how="all")


def _measured_or_say(found: list[compare.Source]) -> list[folders.Results]:
    ours = compare.ours(found)
    if not ours:
        text.say(text.not_measured("these runs"))
    return ours
