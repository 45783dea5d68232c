"""Part of the numerics chapter: argmax flips against the top-2 margin, and outputs with equal tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import compare, folders, published, style, text
from specdec_lib.report.style import number


def flips_table(one: folders.Results, table: folders.Table) -> pd.DataFrame:
    """Rows compared, flips and margins per precision and width."""
    head: Any = table[table["operation"] == "head"]
    rows = []
    for (dtype, width), part in head.groupby(["dtype", "width"], sort=True):
        flips, margin = int(part["flips_n"].sum()), number(float(part["flip_margin_max"].max()))
        rows.append(
            {
                "precision": str(dtype).upper(),
                "rows of the block": int(width),
                "rows compared": int(width) * len(part),
                "argmax flips": flips,
                "largest margin of a flip": margin if flips else "no flip",
                "frozen margin": getattr(one.design.analysis.margin, str(dtype)),
                "largest difference of a logit": number(float(part["chained_max"].max())),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def flips_sentence(one: folders.Results, part: folders.Table, dtype: str) -> str:
    """How often the argmax flips, and whether only in near-ties."""
    head: Any = part[part["operation"] == "head"]
    n, flips = int(head["width"].sum()), int(head["flips_n"].sum())
    moved, limit = number(float(head["chained_max"].max())), getattr(one.design.analysis.margin, dtype)
    start = f"Logits move by up to {moved}" if float(head["chained_max"].max()) else "No logit moves"
    if not flips:
        return f"{start} and no argmax of {number(n)} flips."
    margin, kind = float(head["flip_margin_max"].max()), "near-ties only"
    if margin > limit:
        kind = "**not only near-ties: a flip this wide is no rounding of a tie**"
    return (
        f"{start} and the argmax flips in {flips} of {text.counted(n, 'row')}, in at "
        f"least {positions_told(part)} positions (blocks of every width start at one place, so rows "
        f"repeat); the widest margin of a flip is {number(margin)}, where the frozen limit "
        f"is {limit:g}: {kind}."
    )


def positions_told(part: folders.Table) -> str:
    """ "2 of 54": positions at which some width flips, at least, and all that the widest blocks hold.

    Row j of every block predicts the same token, so the rows of several widths are no independent cases. A table counts
    flips per width and not by position: the width with most of them is a lower bound.
    """
    head: Any = part[part["operation"] == "head"]
    cells = head.groupby(["context_tokens", "family"])
    return f"{int(cells['flips_n'].max().sum())} of {int(cells['width'].max().sum())}"


EQUALITY = {"families with equal tokens": lambda row: f"{row['identical_families_n']} of {row['n']}"}


def show_equality_table(root: Path | None = None) -> None:
    """Families whose tokens are equal in both arms, published and every folder with its own text."""
    found = compare.sources(root, real_only=True)
    each = " ".join(f"{source.label}: {source.hardware}; {source.setup}." for source in found)
    caption = f"Token equality of AR and SpecDec in the timed runs. {each}"
    style.table(compare.table(found, EQUALITY), caption=caption, csv=compare.files(found))


def show_equal_in_short(root: Path | None = None) -> None:
    """How many cells of the timed runs have equal tokens in both arms, in one sentence."""
    text.say(equal_in_short(compare.sources(root, real_only=True)))


def equal_in_short(found: list[compare.Source]) -> str:
    """The same as the table, over all contexts, with the precision of each source."""
    each = []
    for source in found:
        equal, n = (sum(int(row[name]) for row in source.rows) for name in ("identical_families_n", "n"))
        where = f"as published ({published.DTYPE})"
        if one := source.results:
            dtype = one.provenance.get("device", {}).get("dtype", "precision not recorded")
            where = f"in {one.named} ({str(dtype).upper()})"
        each.append(f"{equal} of {text.counted(n, 'cell')} {where}")
    return (
        f"Families and contexts whose tokens were equal in both arms of the timed runs: {text.listed(each)}."
    )


def equality(root: Path | None = None) -> list[str]:
    """Families with equal tokens in both arms, as published and ours."""
    given = published.confirmatory(root)
    shown = text.listed(
        f"{row['identical_families_n']} of {text.families(row['n'])} at {text.context_name(row['context_tokens'])}"
        for row in given.to_dict("records")
    )
    lines = [
        f"Published ({published.DTYPE}): both arms give the same tokens for {shown}; each arm alone repeats itself."
    ]
    for one in folders.measured(root, real_only=True):
        cells: Any = one.runs[one.runs["arm"] == "spec"].groupby(["context_tokens", "family"])
        equal = cells["first_divergence_tokens"].apply(lambda column: bool(column.isna().all()))
        each = text.listed(
            f"{int(part.sum())} of {text.families(len(part))} at {text.context_name(context)}"
            for context, part in equal.groupby(level=0)
        )
        lines.append(f"In {one.named} ({one.hardware}): {each}.")
    return lines
