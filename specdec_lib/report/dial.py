"""The dial chapter: R over an imposed alpha, and where it crosses 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import costline, figures, folders, mechanisms, models, style, text
from specdec_lib.report.costline import Line
from specdec_lib.report.curve import (
    PHASE,
    bits_sentence,
    by_bits,
    crossing_sentences,
    curve,
    engine_of,
    predicted,
)
from specdec_lib.report.style import number

Table = folders.Table
_FINE = 41  # points of the predicted curve


def show_curve(root: Path | None = None) -> None:
    """One figure per folder and context, the table of all, and where R crosses 1."""
    having = mechanisms.having(PHASE, root)
    text.say(models.synthetic_told(having), engine_sentence(having))
    for one in having:
        cells = mechanisms.by_family(one, PHASE)
        lines, frame, n = costline.lines(one), curve(cells), one.profile.new_tokens
        bits, csv = by_bits(cells, lines, n), one.csv(f"{PHASE}.csv")
        style.use_style()
        told = crossing_sentences(frame, lines, n)
        for context, part in frame.groupby("context_tokens", sort=True):
            here = cells[cells["context_tokens"] == context]
            name = text.context_name(context)
            caption = (
                f"{one.label}: {one.hardware}, pair {one.profile.pair}. {name} tokens, {engine_of(part)}, "
                f"k = {one.profile.k}, imposed acceptance (synthetic), draft forwards paid. "
                f"Faint: each of {text.families(part['n'].max())}; medians over "
                f"{text.counted(int(here['repeats_n'].max()), 'repeat')}; strong: {_spread(part)}."
            )
            values = "; ".join(f"{row['alpha']:g}: {number(row['R_GM'])}" for row in part.to_dict("records"))
            alt = f"R over imposed alpha at {name} (synthetic). Alpha and R: {values}."
            line = lines.get(int(context))
            style.figure(figure(here, part, line, bits, n), alt=alt, caption=caption, csv=csv)
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. {engine_of(frame).capitalize()}, "
            f"k = {one.profile.k}. Imposed alpha (synthetic), {_spread(frame)}; "
            f"predicted: the cost line, exact for {n} tokens."
        )
        style.table(curve_table(frame, lines, bits, n), caption=caption, csv=csv)
        text.say(*_of(one, [*told, bits_sentence(frame, bits)]))
    text.say(*mechanisms.missing(PHASE, root))


def engine_sentence(shown: list[folders.Results]) -> str:
    """Whether each folder's confirmatory runs have the dial's rounds; "" with none."""
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for one in shown:
        first = curve(mechanisms.by_family(one, PHASE)).iloc[0]
        same = (first["formulation"], first["bonus"]) == (one.profile.formulation, one.profile.bonus)
        kinds[same].append(f"{one.named} ({one.setup})")
    words = {
        True: "the same rounds in",
        False: "other ones in" if kinds[True] else "other rounds than the dial in",
    }
    told = [f"{words[same]} {text.listed(named)}" for same, named in kinds.items() if named]
    return f"The confirmatory runs have {'; '.join(told)}." if told else ""


def show_crossing(root: Path | None = None) -> None:
    """Only where R crosses 1, for the chapter on the cost line."""
    for one in mechanisms.having(PHASE, root):
        cells = mechanisms.by_family(one, PHASE)
        told = crossing_sentences(curve(cells), costline.lines(one), one.profile.new_tokens)
        text.say(*_of(one, told))
    mechanisms.say_if_unmeasured(PHASE, root)


def _spread(part: Table) -> str:
    """What R_GM and its range are over: a single family has neither a mean nor a spread."""
    if part["n"].max() == 1:
        return "R of the one family, without a spread over families"
    return "geometric mean and range over families"


def _of(one: folders.Results, told: list[str]) -> list[str]:
    """A folder's conclusions, its name before the first: several folders follow each other."""
    return mechanisms.conclusions(one, f"**{one.label}.** {told[0]}", *told[1:])


def curve_table(
    frame: Table, lines: dict[int, Line], bits: dict[tuple[int, float], float], new_tokens: int
) -> Table:
    """The curve for the page, with the line's R beside."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "alpha": f"{row['alpha']:g} ({row['label']})",
            "families": row["n"],
            "acceptance": row["acceptance"],
            "R_GM": row["R_GM"],
            "range": text.span([row["R_min"], row["R_max"]]) + " (one family)" * (row["n"] == 1),
            "R predicted": (
                number(predicted(row, lines[row["context_tokens"]], new_tokens))
                if row["context_tokens"] in lines else "no fit"
            ),
            "R predicted, these bits": number(bits.get((row["context_tokens"], row["alpha"]))) if lines else "no fit",
        }
        for row in frame.to_dict("records")
    )  # fmt: skip


def figure(
    cells: Table, part: Table, line: Line | None, bits: dict[tuple[int, float], float], new_tokens: int
) -> figures.Figure:
    """Families faint, the geometric mean strong, the line's curve dashed, crosses for the bits drawn, and R = 1."""
    fig, ax = figures.axes(3.6)
    imposed = cells[cells["setting"].notna()]
    for _, family in imposed.groupby("family", sort=False):
        points = family.sort_values("setting")
        faint: Any = {"color": style.MUTED, "alpha": 0.4, "linewidth": 1.0, "linestyle": "-", "marker": ""}
        ax.plot(points["setting"], points["R"], **faint)
    strong: Any = {"color": style.SPEC.colour, "marker": style.SPEC.marker, "linestyle": "-"}
    ax.plot(part["alpha"], part["R_GM"], label="measured (synthetic)", **strong)
    values = [*imposed["R"], 1.0]
    if line:
        grid = [i / (_FINE - 1) for i in range(_FINE)]
        row = part.to_dict("records")[0]
        fine = [predicted(row, line, new_tokens, alpha) for alpha in grid]
        ax.plot(grid, fine, color=style.AR.colour, linestyle="--", marker="", label="cost line")
        values += fine
        known = [(alpha, R) for (context, alpha), R in bits.items() if context == line.context]
        ax.plot(
            [alpha for alpha, _ in known], [R for _, R in known], "x", color=style.INK, markersize=8,
            linestyle="none", label="cost line, the bits drawn",
        )  # fmt: skip
        values += [R for _, R in known]
    figures.log_axis(ax, "y", values)
    ax.axhline(1, color=style.INK, linewidth=1.4, linestyle="-", marker="")
    ax.set_xlabel("imposed alpha")
    ax.set_ylabel("R, log scale")
    return figures.finished(fig, ncols=2)
