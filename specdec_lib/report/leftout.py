"""What the timing checks took out of the inference, and where that matters."""

from __future__ import annotations

from typing import Any

from specdec_lib.report import compare, folders, text
from specdec_lib.report.style import number

_AGAIN = "It is a quick look: delete those cells' files under its folder's `jobs/`, and run again on an idle machine."
_SEEN = 0.05  # a shift of R_GM that is told though no verdict changes


def left_out(found: list[compare.Source]) -> list[str]:
    """How many cells a timing check took out of the inference, and what all cells give where that changes a verdict."""
    lines: list[str] = []
    unmoved: list[str] = []
    for source in found:
        if source.results is None:
            continue
        n, kept = (sum(int(row[name]) for row in source.rows) for name in ("n", "n_in_inference"))
        cells = f"{n - kept} of {text.counted(n, 'cell')}"
        told = f"In {source.results.named} {cells} failed a timing check and left the inference"
        if source.results.quick:
            lines += [f"{told}. {_AGAIN}"] * (n > kept)
        elif n == kept:
            few = f" ({some})" if (some := computable(source.results)) else ""
            lines.append(f"In {source.results.named} no cell failed a timing check{few}.")
        elif matters := _with_all(source):
            lines.append(f"{told}. {matters}")
        else:
            unmoved.append(f"{cells} in {source.results.named}{_moved(source)}")
    if unmoved:
        told = text.listed(unmoved)
        lines.append(f"Failed a timing check and left the inference, without changing a verdict: {told}.")
    return lines


def computable(one: folders.Results) -> str:
    """Where the folder's repeats do not allow every timing check: how many could be computed, and which not."""
    planned = one.design.analysis.exclude_on
    absent = [name for name in planned if bool(one.families[f"{name}_passed"].isna().all())]
    if not absent:
        return ""
    return (
        f"{number(len(planned) - len(absent))} of {number(len(planned))} checks can be computed with "
        f"{text.counted(one.profile.repeats, 'repeat')}, not {text.listed(absent)}"
    )


def _moved(source: compare.Source) -> str:
    """Where R_GM itself moves with the cells that were left out, if no verdict does."""
    each = text.listed(
        f"{number(row['R_GM_all'])} with them at {text.context_name(row['context_tokens'])}, "
        f"{number(row['R_GM'])} without"
        for row in source.rows
        if abs(row["R_GM_all"] / row["R_GM"] - 1) > _SEEN
    )
    return f" (R_GM is {each})" if each else ""


def _with_all(source: compare.Source) -> str:
    """What all cells give where that matters; "" where no verdict is another one."""
    from specdec_lib.analysis import sensitivity_table

    assert source.results is not None
    table: Any = sensitivity_table(source.results.families, source.results.design)
    main = {row["context_tokens"]: row["verdict"] for row in source.rows}
    judged = table[(table["variant"] == "all cells") & (table["verdict"] != "no interval")]
    rows = judged.to_dict("records")
    other = [row for row in rows if main[row["context_tokens"]] not in (row["verdict"], "no interval")]
    bare = [row for row in rows if main[row["context_tokens"]] == "no interval"]
    told = [f"With all cells R_GM is {_each(other)}: what was left out matters there."] if other else []
    if bare:
        without = {row["context_tokens"] for row in bare}
        left = sum(int(row["n_in_inference"]) for row in source.rows if row["context_tokens"] in without)
        start = "What is left is too little for a verdict" if left else "None is left for a verdict"
        told.append(
            f"{start}; with all cells, noise included, R_GM is {_each(bare)}; no verdict can rest on that either."
        )
    return " ".join(told)


def _each(rows: list[compare.Row]) -> str:
    return text.listed(
        f"{text.estimate(row)} at {text.context_name(row['context_tokens'])} ({_SHORT[row['verdict']]})"
        for row in rows
    )


_SHORT = {"pays": "above 1", "does not": "below 1", "undecided": "undecided"}
