"""The three layers of correctness, kept apart: the rule, the numbers, the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import compare, flips, folders, style, text
from specdec_lib.report.style import number

FILE = "correctness.csv"
LAYERS = {"algorithmic": "tokens,", "numerical": "logits,", "margin": "margin", "application": "application"}


def show_layer(layer: str, root: Path | None = None) -> None:
    """One layer's checks: how many ran, how many passed, the worst value beside its limit."""
    having = [(one, frame) for one in folders.all_with(FILE, root) if len(frame := layer_table(one, layer))]
    if not having:
        text.say(text.not_measured(f"the {layer} layer"))
    for one, frame in having:
        style.table(frame, caption=f"{one.label}: {_machine(one)}.", csv=one.csv(FILE))
        text.say(f"**{one.label}.** {layer_sentence(frame, layer, one)}")


def _machine(one: folders.Results) -> str:
    """Hardware without the precision: these checks have their own."""
    return ", ".join(part for part in one.hardware.split(", ") if part not in ("BF16", "FP32"))


def layer_table(one: folders.Results, layer: str) -> pd.DataFrame:
    """Per check and precision of ``layer``: subjects, rows, passed, worst value, limit, and the unit of both."""
    table: Any = one.optional("correctness")
    rows = []
    if table is not None:
        table = table[table["check"].str.startswith(LAYERS[layer])]
        for (check, dtype), part in table.groupby(["check", "dtype"], sort=False):
            rows.append(
                {
                    "check": check,
                    "precision": dtype,
                    "subjects": part["subject"].nunique(),
                    "rows": len(part),
                    "passed": int(part["passed"].sum()),
                    "worst": part["value"].max(),
                    "limit": part["limit"].max(),
                    "unit": unit(str(check)),
                }
            )
    return pd.DataFrame(rows)


def unit(check: str) -> str:
    """What a check's value and limit count."""
    units = {
        "tokens,": "tokens that differ",
        "logits, M =": "logits",
        "logits,": "share of the largest logit",
        "margin": "logits",
        "application, log-probability": "nats per token",
        "application,": "1 if the form is lost",
    }
    return next(name for start, name in units.items() if check.startswith(start))


def layer_sentence(frame: folders.Table, layer: str, one: folders.Results) -> str:
    """All passed, or which failed and for whom."""
    failed = frame[frame["passed"] < frame["rows"]]
    note = " Random weights (synthetic)." if one.synthetic else ""
    if failed.empty:
        return f"All {number(int(frame['rows'].sum()))} checks of the {layer} layer pass.{note}"
    parts = [
        f"{row['check']} ({row['rows'] - row['passed']} of {row['rows']}: {outside(one, row)}, where the limit is "
        f"{number(float(row['limit']))})"
        for row in failed.to_dict("records")
    ]
    return f"**Outside the limit:** {text.listed(parts)}. {CONSEQUENCES[layer]}{note}"


# What a failed check of a layer means for a reader.
CONSEQUENCES = {
    "algorithmic": "There the rule does not keep the target's output: nothing that follows can be trusted.",
    "numerical": "There a block is not the same computation as its steps within rounding.",
    "margin": "A token that wide of the target's choice is no near-tie: there is a bug.",
    "application": "For such a text this study does not claim that speculation's is as good as plain "
    "decoding's: after a "
    "near-tie that rounding flipped it is another text, and the FP32 target finds it that much less probable.",
}


def outside(one: folders.Results, row: Any) -> str:
    """ "0.226 nats per token, family log-analysis": every value of a check outside its limit, and whose it is."""
    table: Any = one.optional("correctness")
    wrong = table[(table["check"] == row["check"]) & (table["dtype"] == row["precision"]) & ~table["passed"]]
    worst = wrong.groupby("subject", sort=False)["value"].max()
    return text.listed(
        f"{number(float(value))} {unit(row['check'])}, {subject}" for subject, value in worst.items()
    )


def show_grid(root: Path | None = None) -> None:
    """Token equality of every variant: families equal to AR, by formulation, bonus and k."""
    for one in folders.all_with(FILE, root):
        if len(frame := grid(one)):
            caption = f"{one.label}: families whose FP32 tokens equal AR's, of all checked, per k."
            style.table(frame, caption=caption, csv=one.csv(FILE))


def grid(one: folders.Results) -> pd.DataFrame:
    """One row per formulation and bonus, one column per k: "equal / checked" families."""
    table: Any = one.optional("correctness")
    part = table[table["check"] == "tokens, speculative against AR"]
    rows = []
    for (formulation, bonus), block in part.groupby(["formulation", "bonus"], sort=False):
        cells = {f"k={k}": f"{int(g['passed'].sum())}/{len(g)}" for k, g in block.groupby("k", sort=True)}
        rows.append({"formulation": formulation, "bonus": "yes" if bonus else "no", **cells})
    return pd.DataFrame(rows)


def show_equality(root: Path | None = None) -> None:
    """Token equality of the timed runs, in the precision that ran, beside the published counts."""
    found = compare.sources(root, real_only=True)
    caption = "Families whose SpecDec tokens are identical to AR's, in the timed runs."
    style.table(compare.table(found, flips.EQUALITY), caption=caption, csv=compare.files(found))
    if not compare.ours(found):
        text.say(text.not_measured("token equality of the timed runs"))
    for one in compare.ours(found):
        text.say(equality_sentence(one))
        style.table(divergence(one), caption=f"{one.label}: {one.hardware}.", csv=one.runs_csv)


def divergence(one: folders.Results) -> pd.DataFrame:
    """Per family: "identical", or the first token that differs, per context."""
    cells: Any = one.families
    rows = []
    for family, part in cells.groupby("family", sort=False):
        row = {"family": family}
        for cell in part.to_dict("records"):
            at = cell["first_divergence_tokens"]
            other = "not repeatable" if pd.isna(at) else f"token {int(at) + 1}"
            row[text.context_name(cell["context_tokens"])] = "identical" if cell["identical"] else other
        rows.append(row | {"4-grams repeated": text.percent(float(part["repeated_ngram_share"].median()), 0)})
    return pd.DataFrame(rows).fillna("not measured")


def equality_sentence(one: folders.Results) -> str:
    """How many cells are token-identical, repeat themselves, would have ended early."""
    from specdec_lib.analysis import equality_table

    table: Any = equality_table(one.families)
    cells = len(one.families)
    identical, repeat = int(table["identical_n"].sum()), int(table["deterministic_n"].sum())
    ended = int(one.families["natural_end"].sum())
    alone = "every cell" if repeat == cells else f"{repeat} of {cells} cells"
    ends = f"{ended} outputs" if ended else "no output"
    return (
        f"**{one.label}.** {identical} of {cells} cells are token-identical in both arms. Each arm alone "
        f"repeats its tokens in {alone}; {ends} would have ended within the measured tokens."
    )


def show_application(root: Path | None = None) -> None:
    """The application layer, where the table has it."""
    if any(len(layer_table(one, "application")) for one in folders.all_with(FILE, root)):
        show_layer("application", root)
    else:
        text.say("**Not measured.** No correctness table here holds a check of the final text.")
