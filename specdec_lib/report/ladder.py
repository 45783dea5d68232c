"""What changed the answer: every change from the published engine to the best one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import folders, mechanisms, plane, regimes, residuals, style, text
from specdec_lib.report.carried import absent, residual_of
from specdec_lib.report.costline import PHASE
from specdec_lib.report.regimes import Engine, Point
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean

Rung = tuple[str, Point, Engine]


def show_ladders(root: Path | None = None) -> None:
    """Step by step from the published engine to the best one, on one pair and machine; or how to measure it."""
    found = regimes.ladders(root)
    for ladder in found:
        rows = [row for context in ladder_contexts(ladder) for row in steps(ladder, context, root)]
        each = " ".join(f"{one.label}: {one.hardware}." for one in ladder)
        caption = (
            "At the published alpha of each context, by each folder's cost line, or by the stages of its run where "
            "none is fitted; a factor from the one to the other is followed, in brackets, by the same with c by the "
            "stages on both sides, if that shows. Measured: by the confirmatory run where it has that very setting, "
            "else in the held-out cells of the cost line, at another acceptance: to be held against the prediction "
            "there, not against the rung before. Contexts that a rung lacks are left out. Against the best AR: the "
            f"same time, held against the fastest AR of the column. {each}"
        )
        used = [point for context in ladder_contexts(ladder) for _, point, _ in rungs(ladder, context, root)]
        files = list(dict.fromkeys(plane.file_of(point) for point in used))
        style.table(pd.DataFrame(rows, dtype=object), caption=caption, csv=files)
        text.say(*(ladder_sentence(ladder, context, root) for context in ladder_contexts(ladder)))
    if not found:
        for line in absent(root):
            text.say(line)


def show_ladder_sentences(root: Path | None = None) -> None:
    """The ladders without their tables."""
    text.say(*(ladder_sentence(one, c, root) for one in regimes.ladders(root) for c in ladder_contexts(one)))


def ladder_contexts(ladder: list[folders.Results]) -> list[int]:
    """Contexts that every rung has."""
    sets = [{point.context for point in regimes.folder_points(one)} for one in ladder]
    return sorted(set.intersection(*sets))


def rungs(ladder: list[folders.Results], context: int, root: Path | None = None) -> list[Rung]:
    """What changes, rung by rung: the rounds, the k that the last regime's cost asks for, then launches and kernels.

    The first is the published engine; where no repair was measured it starts with the repair-free one. A regime whose
    verification is known at another k only is left out, and the next rung then names all that changes. The k of the
    last regime's own runs stands where its cost line does not tell it from the best one.
    """
    at = [next(point for point in regimes.folder_points(one) if point.context == context) for one in ladder]
    k = folders.read_design(root).measurement.k
    start, engine = Engine("reference", False, k), Engine("repair-free", True, k)
    words = {"graphs": "launches removed: captured graphs", "compiled": "fused kernels, captured"}
    found = [(f"{ladder[0].mode}, as published", at[0], start)] if at[0].has_repair else []
    found.append((f"{ladder[0].mode}, repair-free with bonus", at[0], engine))
    alpha, own = regimes.alpha_at(context, root), at[-1].engine
    best = at[-1].best(alpha, "repair-free", True)
    off = residual_of(ladder[-1]) or 0.0
    chosen = best[0] if best and at[-1].R(alpha, own) * (1 + off) < best[1] else own
    if chosen != engine:
        found.append(("the last regime's k", at[0], chosen))
    found += [
        (words[one.mode], point, chosen)
        for one, point in zip(ladder[1:], at[1:], strict=True)
        if point.line or point.engine == chosen
    ]
    known = [rung for rung in found if rung[1].line or rung[2] == rung[1].engine]
    named = known[:1]
    for (_, last, were), (name, point, rounds) in pairwise(known):
        # where rungs between were left out, their changes come with this one
        several = were != rounds and point is not last
        named.append((f"{name}, and {rounds} instead of {were}" if several else name, point, rounds))
    return named


def steps(ladder: list[folders.Results], context: int, root: Path | None = None) -> list[dict[str, object]]:
    """One row per rung: R against its own AR, its factor, and R against the best AR of the ladder."""
    alpha = regimes.alpha_at(context, root)
    ar = {one.label: regimes.ar_step_s(one, context) * 1e3 for one in ladder}
    rows, found = [], rungs(ladder, context, root)
    for before, rung in zip([None, *found], found, strict=False):
        name, point, engine = rung
        R, factor = point.R(alpha, engine), "first"
        if before:
            staged = staged_factor(before, rung, alpha)
            factor = number(R / before[1].R(alpha, before[2]))
            factor += f" ({staged})" if staged else ""
        rows.append(
            {
                "context": text.context_name(context),
                "change": name,
                "R by the line": R,
                "times the rung before": factor,
                "R measured": _measured(point, engine),
                "R against the best AR": R * min(ar.values()) / ar[point.source],
                "AR step, ms": ar[point.source],
                "c": point.c,
                "source": point.source,
                "SpecDec": str(engine),
            }
        )
    return rows


def staged_factor(before: Rung, after: Rung, alpha: float) -> str:
    """Where one side's cost line is fitted and the other's costs are its run's stages, the factor of a rung with c by
    the stages on both sides: the plain quotient also holds what two ways of estimating differ by. "" where none shows.
    """
    if (before[1].line is None) == (after[1].line is None):
        return ""
    sides = ((point, _with_staged_c(point), engine) for _, point, engine in (before, after))
    below, above = ([one.R(alpha, engine) for one in both] for *both, engine in sides)
    plain, staged = (number(b / a) for a, b in zip(below, above, strict=True))
    return "" if staged == plain else staged


def _with_staged_c(point: Point) -> Point:
    """The point with a draft forward as its run's stages have it; as it is where its context has none."""
    one = point.results
    if point.line is None or one is None or regimes.spec_stages(one, point.context) is None:
        return point
    c = regimes.staged(one, point.context)["draft forward"]
    return replace(point, c=c, line=replace(point.line, c=c))


def _measured(point: Point, engine: Engine) -> str:
    """R_GM of the confirmatory run, if it has this very engine at an imposed acceptance; else R of the held-out cells
    that the cost line was tested on, at their own acceptance."""
    one = point.results
    if one is None:
        return "not run"
    if regimes.engine_of(one) != engine or point.context not in one.contexts:
        return _tested(one, point.context, engine)
    if not one.scripted:
        return f"{own_R(one, point.context)} at its own acceptance"
    row, shown = one.summary_at(point.context), own_R(one, point.context)
    if not text.described_only(row):
        return shown
    spread = text.span(one.cells(point.context)["R"])
    return f"{shown}: {spread}; {row['n_in_inference']} of {row['n']} passed the checks"


def own_R(one: folders.Results, context: int) -> str:
    """R_GM of the confirmatory run with its interval."""
    return text.estimate(one.summary_at(context))


def _tested(one: folders.Results, context: int, engine: Engine) -> str:
    if not one.has(f"{PHASE}.csv"):
        return "not run"
    cells = mechanisms.by_family(one, PHASE)
    same = (cells["formulation"] == engine.formulation) & (cells["bonus"] == engine.bonus)
    own = cells["variant"].str.startswith(engine.formulation)  # bounds and oracles have rounds of their own
    found: Any = cells[(cells["context_tokens"] == context) & same & (cells["k"] == engine.k) & own]
    if found.empty:
        return "not run"
    R = number(geometric_mean(found["R"]))
    file: Any = one.table("predictions.csv", "predictions")
    at = file[(file["context_tokens"] == context) & file["variant"].isin(found["variant"])]
    return (
        f"{R} at its own acceptance ({text.counted(len(found), 'cell')}; predicted there "
        f"{number(geometric_mean(at['R_predicted']))})"
    )


def ladder_sentence(ladder: list[folders.Results], context: int, root: Path | None = None) -> str:
    """Which change took R over 1, which was the largest, and what the stronger baseline takes back."""
    rows = steps(ladder, context, root)
    values = [float(str(row["R by the line"])) for row in rows]
    factors = {str(row["change"]): b / a for row, a, b in zip(rows[1:], values, values[1:], strict=False)}
    largest = max(factors, key=lambda name: factors[name])
    crossed = next((str(row["change"]) for row, R in zip(rows, values, strict=True) if R > 1), None)
    of = "" if len(factors) == 1 and largest == crossed else f", from *{largest}*"  # named once is enough
    told = f"the {'largest' if len(factors) > 1 else 'one'} factor is {number(factors[largest])}{of}"
    # a factor is a quotient of two Rs of the line, each off by about the line's own residual
    worst, off = max(
        ((one, r) for one in ladder if (r := residual_of(one)) is not None),
        key=lambda found: found[1],
        default=(None, 0.0),
    )
    least = factors[largest] / (1 + 2 * off)
    rivals = [f"{number(f)}, from *{name}*" for name, f in factors.items() if name != largest and f > least]
    if worst and rivals:
        cells = residuals.of_folder(worst)["residual"].abs()
        told += (
            f" (but the line of {worst.named} is off by {text.percent(off)} in the median of "
            f"{text.counted(len(cells), 'held-out cell')} and by {text.percent(cells.max())} at most, and two Rs "
            f"off by the median do not tell it from {text.listed(rivals)})"
        )
    own = "" if ladder[0].scripted or context not in ladder[0].contexts else (
        f" (measured at the pair's own acceptance: {own_R(ladder[0], context)})"
    )  # fmt: skip
    over = (
        "no change takes R over 1"
        if crossed is None
        else f"by the line it is above 1 from the start{own}"
        if values[0] > 1
        else f"the change that takes R over 1 is *{crossed}*"
    )
    faster = float(str(rows[0]["AR step, ms"])) / float(str(rows[-1]["AR step, ms"]))
    line = all(point.line for _, point, _ in rungs(ladder, context, root))
    by = "by the cost line" if line else "by the cost line, or the stages of the runs where none was fitted"
    label = f"synthetic, {by}" if ladder[0].synthetic else f"{by}, at the published alpha"
    return (
        f"At {text.context_name(context)} R goes from {number(values[0])} to {number(values[-1])} ({label}): "
        f"{over}; {told}.{_two_ways(ladder, context, root)} AR itself became {number(faster)} times as fast, so "
        f"against the best AR the first engine has R = {number(rows[0]['R against the best AR'])}."
    )


def _two_ways(ladder: list[folders.Results], context: int, root: Path | None) -> str:
    """Which factors also hold what a fit and the stages differ by, and what they are without."""
    alpha, found = regimes.alpha_at(context, root), rungs(ladder, context, root)
    other = [(after[0], staged_factor(before, after, alpha)) for before, after in pairwise(found)]
    each = text.listed(f"{factor} for *{name}*" for name, factor in other if factor)
    if not each:
        return ""
    return (
        " Where one side's costs are fitted and the other's read from the stages of its runs, a factor also holds what "
        f"these two ways differ by: with c, not v, by the stages on both sides it is {each}."
    )
