"""The numerics chapter: which operation of a block first differs from single steps, how much, and what flips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import figures, flips, folders, mechanisms, style, text
from specdec_lib.report.style import number
from specdec_lib.variants import OPERATIONS

PHASE, FILE = "numerics", "numerics.csv"
BITS = {"bf16": 8, "fp32": 24}  # of the significand, the hidden one included
# Sums over products: a library may cut them up differently for another number of rows. The others work on one row.
SUMS = ("qkv", "attention", "o", "gate/up", "down", "head")
ABOUT = 4  # "about n times" holds within this factor
_BLOCK = ["context_tokens", "family", "width"]


def show(root: Path | None = None) -> None:
    """Per folder and precision: the operations, the figure, and what was found."""
    style.use_style()
    for one, table in _measured(root):
        for dtype, part in table.groupby("dtype", sort=True):
            caption = (
                f"{told(one, part, str(dtype))} Absolute differences, the largest over blocks and layers."
            )
            style.table(operations_table(part), caption=caption, csv=one.csv(FILE))
        style.figure(
            figure(table), alt="Largest difference per operation. " + figure_words(table), csv=one.csv(FILE),
            caption=f"{told(one, table)} Filled: on the step's own inputs; hollow: with what came before.",
        )  # fmt: skip
    text.say(*mechanisms.missing(PHASE, root))


def show_flips(root: Path | None = None) -> None:
    """Argmax flips against the top-2 margin, per precision and width."""
    for one, table in _measured(root):
        style.table(flips.flips_table(one, table), caption=told(one, table), csv=one.csv(FILE))
    mechanisms.say_if_unmeasured(PHASE, root)


def show_equality(root: Path | None = None) -> None:
    """Families with equal tokens in both arms, published beside ours."""
    text.say(*flips.equality(root))


def show_summary(root: Path | None = None) -> None:
    """Every folder and precision in one table: first operation, flips, groups of widths; equal tokens beside."""
    found = _measured(root)
    if rows := [row for one, table in found for row in summary_rows(one, table)]:
        each = " ".join(f"{one.label}: {one.hardware}, pair {one.profile.pair}." for one, _ in found)
        caption = (
            "Blocks against single steps, side by side. Flips: of the rows of all widths, which start at one "
            f"place and so hold the same positions again. {each}"
        )
        csv = [one.csv(FILE) for one, _ in found]
        style.table(pd.DataFrame(rows, dtype=object), caption=caption, csv=csv)
    flips.show_equality_table(root)


def summary_rows(one: folders.Results, table: folders.Table) -> list[dict[str, Any]]:
    """One row per precision."""
    rows = []
    for dtype, part in table.groupby("dtype", sort=True):
        first = part[part["first_to_differ"]]["operation"].value_counts()
        head = part[part["operation"] == "head"]
        found, flipped = groups(part), int(head["flips_n"].sum())
        shown = (
            "differ between cells" if found is None
            else "; ".join(text.listed(str(width) for width in group) for group in found)
        )  # fmt: skip
        rows.append(
            {
                "source": one.label,
                "precision": str(dtype).upper(),
                "first operation to differ (blocks)": text.listed(f"{name} ({n})" for name, n in first.items())
                or "none",
                "rows whose argmax flips": f"{flipped} of {int(head['width'].sum())}",
                "at least so many positions": flips.positions_told(part),
                "widest margin of a flip": number(float(head["flip_margin_max"].max())) if flipped else "no flip",
                "widths with the same logits": shown,
                "repeats itself": bool(part["deterministic"].all()),
            }
        )  # fmt: skip
    return rows


def show_prediction(root: Path | None = None) -> None:
    """What rounding alone allows, from the precisions and the frozen margins."""
    margin = folders.read_design(root).analysis.margin
    low, high = BITS["bf16"], BITS["fp32"]
    text.say(
        f"A BF16 number keeps {low} bits, an FP32 number {high}: one rounding moves a value by up to "
        f"{2.0**-low:.1e} of itself in BF16 and {2.0**-high:.1e} in FP32. So FP32 must show the same "
        f"operations with differences about {2 ** (high - low):,} times smaller, and no flip. In BF16 an "
        "argmax may flip only where the two best logits are nearer than the frozen margin of "
        f"{margin.bf16:g}."
    )


def show_finding(root: Path | None = None) -> None:
    """Where the difference starts, what flips, which widths agree, whether it repeats; then what held."""
    for one, table in _measured(root):
        text.say(f"**{one.label}.**")
        for name, part in table.groupby("dtype", sort=True):
            dtype = str(name)
            lines = (first_sentence(part, dtype), alone_sentence(part, dtype))
            text.say(" ".join([*lines, flips.flips_sentence(one, part, dtype), groups_sentence(part)]))
        text.say(determinism_sentence(table), *(f"- {line}" for line in outcomes(one, table)))
    mechanisms.say_if_unmeasured(PHASE, root)


def show_groups(root: Path | None = None) -> None:
    """Widths that give the same row the very same logits, and whether each path repeats itself."""
    for one, table in _measured(root):
        style.table(groups_table(table), caption=told(one, table), csv=one.csv(FILE))
    mechanisms.say_if_unmeasured(PHASE, root)


def told(one: folders.Results, table: folders.Table, dtype: str = "") -> str:
    """Caption: hardware, precision, cells and widths."""
    cells = len(table[["context_tokens", "family"]].drop_duplicates())
    contexts = text.listed(text.context_name(c) for c in sorted(table["context_tokens"].unique()))
    widths = f"{table['width'].min()} to {table['width'].max()}"
    precision = f" Compared in {dtype.upper()}." if dtype else ""
    return (
        f"{one.label}: {one.hardware}, pair {one.profile.pair}.{precision} {text.counted(cells, 'cell')} "
        f"(family and context; {contexts}), blocks of {widths} rows against single steps."
    )


def operations_table(part: folders.Table) -> pd.DataFrame:
    """One row per operation of one precision."""
    rows = []
    for operation in OPERATIONS:
        here = part[part["operation"] == operation]
        differing = int((here["alone_layers_n"] > 0).sum())
        rows.append(
            {
                "operation": operation,
                "differs alone, blocks": f"{differing} of {len(here)}",
                "layers that differ alone": text.percent(
                    here["alone_layers_n"].sum() / here["layers_n"].sum()
                ),
                "largest alone": number(float(here["alone_max"].max())),
                "largest chained": number(float(here["chained_max"].max())),
                "first to differ, blocks": int(here["first_to_differ"].sum()),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def first_sentence(part: folders.Table, dtype: str) -> str:
    """Which operation first gives other numbers, and where."""
    first: Any = part[part["first_to_differ"]]
    blocks = len(part[_BLOCK].drop_duplicates())
    if first.empty:
        return f"In {dtype.upper()} none of {number(blocks)} blocks differs from single steps in any number."
    counts = first["operation"].value_counts()
    layers = sorted({int(layer) for layer in first["first_layer"]})
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    each = text.listed(f"{name} ({n})" for name, n in counts.items())
    return (
        f"In {dtype.upper()} {len(first)} of {number(blocks)} blocks differ from single steps in at least "
        f"one operation. The first operation to differ is {each}, in {where}. {logits_sentence(part)}"
    )


def logits_sentence(part: folders.Table) -> str:
    """What of that reaches the logits: a difference inside need not."""
    head: Any = part[part["operation"] == "head"]
    same, row = int((head["chained_max"] == 0).sum()), int((head["group_width"] == 1).sum())
    n = text.counted(len(head), "block")
    if not row:
        return f"The logits of no block are those of single steps, not even those of its first row ({n})."
    return (
        f"The logits of all rows are those of single steps in {same} of {n}, those of the first row in "
        f"{row}: there the difference is rounded away again."
    )


def outcomes(one: folders.Results, table: folders.Table) -> list[str]:
    """Each claim of :func:`show_prediction` and of the page, held or failed."""
    alone = {str(dtype): _alone(part) for dtype, part in table.groupby("dtype", sort=True)}
    differing = {dtype: _differing(worst) for dtype, worst in alone.items()}
    wrong = sorted({name for names in differing.values() for name in names} - set(SUMS), key=OPERATIONS.index)
    also = f"also {text.listed(wrong)}" if wrong else ""
    rows = [
        ("Only sums over products differ on equal inputs", not wrong, also),
        ("Every path repeats itself", bool(table["deterministic"].all()), ""),
    ]
    if set(differing) == set(BITS):
        low, high = (differing[dtype] or ["none"] for dtype in ("bf16", "fp32"))
        found = f"BF16: {text.listed(low)}; FP32: {text.listed(high)}"
        rows.append(("Both precisions differ in the same operations", low == high, found))
        factor = 2 ** (BITS["fp32"] - BITS["bf16"])
        both = [name for name in low if name in high and name != "none"]
        ratio = {name: float(alone["bf16"][name] / alone["fp32"][name]) for name in both}
        told = text.listed(f"{name} {number(value)}" for name, value in ratio.items())
        rows.append(
            (f"FP32's differences are about {factor:,} times smaller",
             bool(ratio) and all(1 / ABOUT <= value / factor <= ABOUT for value in ratio.values()),
             f"times smaller, where both differ: {told}" if ratio else "no operation differs in both")
        )  # fmt: skip
    for dtype, limit in (("fp32", None), ("bf16", one.design.analysis.margin.bf16)):
        head: Any = table[(table["operation"] == "head") & (table["dtype"] == dtype)]
        if head.empty:
            continue
        flipped, widest = int(head["flips_n"].sum()), float(head["flip_margin_max"].max())
        if limit is None:
            rows.append(("No argmax flips in FP32", not flipped, f"{flipped} rows" if flipped else ""))
        else:
            found = f"widest margin {number(widest)}" if flipped else "none"
            rows.append(("In BF16 only near-ties flip", not flipped or widest <= limit, found))
    return [
        f"{claim}: {'**held**' if held else '**failed**'}{f' ({found})' if found else ''}."
        for claim, held, found in rows
    ]


def _alone(part: folders.Table) -> Any:
    """The largest difference of each operation on equal inputs."""
    return part.groupby("operation", sort=False)["alone_max"].max()


def _differing(worst: Any) -> list[str]:
    return [name for name in OPERATIONS if worst.get(name, 0) > 0]


def alone_sentence(part: folders.Table, dtype: str) -> str:
    """Whether only sums over products differ on equal inputs, as predicted."""
    differing = _differing(_alone(part))
    if not differing:
        return f"On equal inputs no operation differs in {dtype.upper()}: the width of a block changes nothing here."
    others = [name for name in differing if name not in SUMS]
    held = "as predicted, only sums over products"
    if others:
        held = f"**against the prediction also {text.listed(others)}**, which treat every row alone"
    return (
        f"On equal inputs {text.listed(differing)} {'differs' if len(differing) == 1 else 'differ'}: {held}."
    )


def groups_table(table: folders.Table) -> pd.DataFrame:
    """Per precision and width: with which smaller width the first row's logits agree, in how many cells."""
    head: Any = table[table["operation"] == "head"]
    rows = []
    for (dtype, width), part in head.groupby(["dtype", "width"], sort=True):
        counts = part["group_width"].value_counts().sort_index()
        same = text.listed(
            f"{'a single step' if group == 1 else f'{group} rows'} ({n})"
            for group, n in counts.items()
            if group < width
        )
        rows.append(
            {"precision": str(dtype).upper(), "rows": int(width), "same logits as (cells)": same or "no smaller width",
             "cells": len(part)}
        )  # fmt: skip
    return pd.DataFrame(rows, dtype=object)


def groups(part: folders.Table) -> list[list[int]] | None:
    """Widths that agree bit for bit, 1 being the single step; None if the cells group them differently."""
    head: Any = part[part["operation"] == "head"]
    by_width = head.groupby("width")["group_width"]
    if (by_width.nunique() > 1).any():
        return None
    found: dict[int, list[int]] = {1: [1]}
    for width, group in by_width.first().items():
        found.setdefault(int(group), []).append(int(width))
    return list(found.values())


def groups_sentence(part: folders.Table) -> str:
    """How many different answers one row gets."""
    found = groups(part)
    if found is None:
        return "Which widths agree differs between the cells."
    if len(found) == 1:
        return "Every width gives the very same logits as a single step."
    shown = "; ".join(text.listed(str(width) for width in group) for group in found)
    return f"The widths fall into {len(found)} groups with the very same logits: {shown}."


def determinism_sentence(table: folders.Table) -> str:
    """Whether every path gives the same numbers when run again."""
    wrong = table[~table["deterministic"]]
    if wrong.empty:
        return "Run again, every block and step gives the same numbers: the width makes the difference, not chance."
    names = text.listed(dict.fromkeys(wrong["operation"]))
    return f"**Run again, {names} gave other numbers**: a path is not deterministic."


def figure(table: folders.Table) -> figures.Figure:
    """Operations on y, the largest difference on a log x axis; filled alone, hollow chained; by precision."""
    worst: Any = table.groupby(["dtype", "operation"], sort=True)[["alone_max", "chained_max"]].max()
    values = [v for v in worst.to_numpy().ravel() if v > 0]
    zero = min(values, default=1.0) / 10
    fig, ax = figures.axes(4.0)
    for index, dtype in enumerate(dict.fromkeys(worst.index.get_level_values(0))):
        look = style.SERIES[index]
        at = [i + (index - 0.5) * 0.3 for i in range(len(OPERATIONS))]
        for column, face, name in (("alone_max", look.colour, "alone"), ("chained_max", "white", "chained")):
            x = [max(float(worst[column].get((dtype, operation), 0.0)), zero) for operation in OPERATIONS]
            ax.plot(x, at, look.marker, color=look.colour, markerfacecolor=face, linestyle="none",
                    label=f"{str(dtype).upper()} {name}")  # fmt: skip
    ax.set_xscale("log")
    ax.axvline(zero, color=style.MUTED, linewidth=1.2, linestyle=":", marker="")
    ax.annotate(
        "no difference", (zero, -0.9), (3, 0), textcoords="offset points", fontsize=9, color=style.MUTED
    )
    ax.set_yticks(range(len(OPERATIONS)), OPERATIONS)
    ax.set_ylim(len(OPERATIONS) - 0.4, -1.2)
    ax.set_xlabel("largest absolute difference to single steps, log scale")
    return figures.finished(fig, ncols=4)


def figure_words(table: folders.Table) -> str:
    """The figure for a reader who cannot see it."""
    parts = []
    for dtype, part in table.groupby("dtype", sort=True):
        worst = _alone(part)
        shown = "; ".join(f"{name} {number(float(worst[name]))}" for name in OPERATIONS if name in worst)
        parts.append(f"{str(dtype).upper()}, alone: {shown}.")
    return " ".join(parts)


def _measured(root: Path | None) -> list[tuple[folders.Results, folders.Table]]:
    return [(one, one.table(FILE, "numerics")) for one in mechanisms.having(PHASE, root)]
