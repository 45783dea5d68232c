"""How far the results carry: excluded cells, other choices of analysis, memory and load by others."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specdec_lib.report import compare, folders, style, text
from specdec_lib.report.style import number

_NONE = "no interval"  # the verdict of too few families


def show_exclusions(found: list[compare.Source]) -> None:
    """Cells that failed a check, with the check and what it saw."""
    for one in _measured_or_say(found):
        frame = exclusions(one)
        text.say(exclusion_sentence(one))
        if not frame.empty:
            style.table(
                frame,
                caption=f"Failed checks in {one.label}.",
                csv=one.csv(f"confirmatory-{one.contexts[0]}.csv"),
            )


def exclusions(one: folders.Results) -> pd.DataFrame:
    """One row per failed check of a cell: check, value, limit, note."""
    table = one.exclusions
    shown = {
        name: [
            number(value)
            if check == "deterministic"
            else text.percent(value)  # how many outputs; all others are shares
            for check, value in zip(table["check"], table[name], strict=True)
        ]
        for name in ("value", "limit")
    }
    table = table.assign(context=[text.context_name(context) for context in table["context_tokens"]], **shown)
    return pd.DataFrame(table[["context", "family", "check", "value", "limit", "note"]])


def exclusion_sentence(one: folders.Results) -> str:
    """How many cells stay in the inference, and which checks failed how often."""
    cells: Any = one.families
    kept, failed = int(cells["in_inference"].sum()), exclusions(one)["check"].value_counts()
    unknown = [name for name in one.design.analysis.exclude_on if bool(cells[f"{name}_passed"].isna().all())]
    lines = [
        f"**{one.label}.** {kept} of {text.counted(len(cells), 'cell')} (family and context) are in the "
        f"inference."
    ]
    lines += (
        [f"Failed: {text.listed(f'{name} ({n})' for name, n in failed.items())}."]
        if len(failed)
        else ["No check failed."]
    )
    if "set_aside_n" in one.runs:
        limit = one.design.analysis.thresholds("gpu" if one.cuda else "cpu").undisturbed
        lines.append(
            f"{text.counted(int(one.runs['set_aside_n'].sum()), 'run')} in which others took more than "
            f"{text.percent(limit)} of the time set aside and measured again (each at most "
            f"{text.counted(one.profile.repeat_disturbed, 'time')}); the job files keep them."
        )
    if unknown:
        lines.append(
            f"Not computable with {text.counted(one.profile.repeats, 'repeat')}: {text.listed(unknown)}."
        )
    return " ".join(lines)


def show_sensitivity(found: list[compare.Source]) -> None:
    """R_GM under other choices; leaving each family out is one line, its range."""
    for one in _measured_or_say(found):
        if one.quick:
            continue
        csv = one.csv(f"confirmatory-{one.contexts[0]}.csv")
        frame, stable = sensitivity(one)
        style.table(frame, caption=f"{one.label}: R_GM under other choices.", csv=csv)
        text.say(stable)


def sensitivity(one: folders.Results) -> tuple[pd.DataFrame, str]:
    """The table, and whether any choice changes a verdict."""
    from specdec_lib.analysis import sensitivity_table

    table: Any = sensitivity_table(one.families, one.design)
    rows, changes, gained, verdicts = [], [], [], []
    for context, part in table.groupby("context_tokens", sort=True):
        name = text.context_name(int(context))  # pyright: ignore[reportArgumentType]
        main = part.loc[part["variant"] == "inference", "verdict"].iloc[0]
        without = part[part["variant"].str.startswith("without ")]
        for row in part[~part["variant"].str.startswith("without ")].to_dict("records"):
            rows.append(
                {
                    "context": name,
                    "choice": row["variant"],
                    "families": row["n"],
                    "R_GM": text.estimate(row),
                    "verdict": row["verdict"],
                }
            )
        if len(without):
            seen = dict.fromkeys(without["verdict"])
            rows.append(
                {
                    "context": name,
                    "choice": "leave one family out",
                    "families": int(without["n"].max()),
                    "R_GM": text.span(without["R_GM"]),
                    "verdict": ", ".join(seen),
                }
            )
        other = part[~part["verdict"].isin([main, _NONE])]
        found = [f"{row['variant']} at {name} ({row['verdict']})" for row in other.to_dict("records")]
        verdicts.append(main)
        if main == _NONE:  # what has no verdict cannot get another one
            gained += found
        else:
            changes += found
    return pd.DataFrame(rows), _choices_told(changes, gained, any(main != _NONE for main in verdicts))


def _choices_told(changes: list[str], gained: list[str], any_verdict: bool) -> str:
    """Which choices change a verdict, and which give one where the main choice has none."""
    told = [f"Another verdict comes out with: {text.listed(changes)}."] if changes else []
    if not changes and any_verdict:
        told.append("No choice changes a verdict.")
    if gained:
        told.append(f"Where the main choice has no interval, others give: {text.listed(gained)}.")
    return " ".join(told) or "No choice gives a verdict."


def show_memory(found: list[compare.Source]) -> None:
    """Peak resident memory and load by others."""
    if ours := _measured_or_say(found):
        csv = [one.csv(f"confirmatory-{one.contexts[0]}.csv") for one in ours]
        caption = "Largest over the processes of each context."
        caption += " GPU memory: what the process's tensors took." * any(one.cuda for one in ours)
        style.table(memory(ours), caption=caption, csv=csv)


def memory(found: list[folders.Results]) -> pd.DataFrame:
    """Per context and folder: peak host memory in GiB, CPU share taken by others, processes."""
    rows = []
    for one in found:
        for context, part in one.runs.groupby("context_tokens", sort=True):
            rows.append(
                {
                    "context": text.context_name(int(context)),  # pyright: ignore[reportArgumentType]
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
    ours = [source.results for source in found if source.results]
    if not ours:
        text.say(text.not_measured("these runs"))
    return ours
