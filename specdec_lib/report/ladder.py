"""What changed the answer: the launches taken away, and every change from the published engine to the best one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.guesses import draft_costs
from specdec_lib.report import folders, mechanisms, plane, regimes, style, text
from specdec_lib.report.carried import absent, residual_of
from specdec_lib.report.costline import PHASE
from specdec_lib.report.launches import draft_moved
from specdec_lib.report.regimes import Engine, Point
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean


def launches_sentences(root: Path | None = None) -> list[str]:
    """The experiment that changes the launches and nothing else: one pair on one GPU, eager against captured."""
    told = []
    for ladder in regimes.ladders(root):
        first = ladder[0]
        if not first.cuda or first.mode != "eager":
            continue
        captured = next((one for one in ladder if one.mode == "graphs"), ladder[-1])
        alone = captured.mode == "graphs"
        both = sorted(set(first.contexts) & set(captured.contexts))
        if not both or first.stages is None or captured.stages is None:
            continue
        guessed = {context: draft_costs(first.provenance["models"], context) for context in both}
        layers, share = guessed[both[0]]["layers"], text.span(guessed[c]["bytes"] for c in both)
        pair = (first, captured)
        steps = [text.span((regimes.ar_step_s(one, c) * 1e3 for c in both), "ms") for one in pair]
        # by stages on both sides: a fit on one would compare two ways of estimating
        moved = draft_moved(first, captured, both)
        ends = [text.span(end for part in side for end in (part.min(), part.max())) for side in moved.cells]
        after = zip(moved.after, both, strict=True)
        nearer = all(abs(c - guessed[x]["bytes"]) < abs(c - layers) for c, x in after)
        without = "without its launches" if alone else "with fused kernels and without launches"
        what = (
            f"{without} the draft's cost c moves from its layers to its bytes: the draft **was** launch-bound"
            if moved.fell and moved.apart and nearer
            else f"{without} the draft costs less, but its c is still nearer to its layers than to its bytes"
            if moved.fell and moved.apart
            else f"{without} the draft is **not** cheaper in AR steps"
            if moved.rose
            else f"{without} no change of the draft's cost can be told: {moved.untold}"
        )
        changes = (
            "nothing changes but how the forward is launched"
            if alone
            else "launches and kernels change at once, so their effects cannot be told apart"
        )
        told.append(
            f"From {first.named} to {captured.named} {changes} ({first.mode} to {captured.mode}). An AR step "
            f"takes {steps[0]} before and {steps[1]} after, a draft forward {text.span(moved.before)}{moved.beside} "
            f"and {text.span(moved.after)} AR steps (stages of the confirmatory runs, medians over families; "
            f"single families {ends[0]} and {ends[1]}), where the layer ratio is {number(layers)} and the "
            f"bytes' share {share}: {what}. {_spread(first, captured)}"
        )
    return told


def _spread(first: folders.Results, captured: folders.Results) -> str:
    """How steady the two folders' times are, and what else differs between their runs."""
    steady = text.listed(
        f"{text.percent(float(one.families['dispersion_value'].median()))} in {one.named}"
        for one in (first, captured)
        if one.contexts
    )
    engines = [regimes.engine_of(one) for one in (first, captured)]
    other = "" if engines[0] == engines[1] else (
        f" Their runs also differ in the round ({engines[0]} against {engines[1]}); what a forward costs does not."
    )  # fmt: skip
    failed = [
        one.named for one in (first, captured) if one.contexts and not one.families["in_inference"].any()
    ]
    told = f" No cell of {text.listed(failed)} passed the timing checks: that side is no more than a description."
    weak = told if failed else ""
    return f"Spread of a family's times, median: {steady}.{weak}{other}"


def show_launches(root: Path | None = None) -> None:
    """Whether the launches were the cause; without two modes of one pair, that it was not shown."""
    told = launches_sentences(root)
    unshown = (
        "Not shown: that a forward is dear *because* of its launches. That takes an experiment that changes "
        "the number of launches and nothing else, on a GPU."
    )
    text.say(*told or [unshown])


def show_ladders(root: Path | None = None) -> None:
    """Step by step from the published engine to the best one, on one pair and machine; or how to measure it."""
    found = regimes.ladders(root)
    for ladder in found:
        rows = [row for context in ladder_contexts(ladder) for row in steps(ladder, context, root)]
        each = " ".join(f"{one.label}: {one.hardware}." for one in ladder)
        caption = (
            "At the published alpha of each context, by each folder's cost line, or by the stages of its run where "
            "none is fitted. Measured: by the confirmatory run where it has that very setting, else in the held-out "
            "cells of the cost line, at another acceptance: to be held against the prediction there, not against the "
            "rung before. Contexts that a rung lacks are left out. Against the best AR: the same "
            f"time, held against the fastest AR of the column. {each}"
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


def rungs(
    ladder: list[folders.Results], context: int, root: Path | None = None
) -> list[tuple[str, Point, Engine]]:
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
    rows, before = [], None
    for name, point, engine in rungs(ladder, context, root):
        R = point.R(alpha, engine)
        rows.append(
            {
                "context": text.context_name(context),
                "change": name,
                "R by the line": R,
                "times the rung before": number(R / before) if before else "first",
                "R measured": _measured(point, engine),
                "R against the best AR": R * min(ar.values()) / ar[point.source],
                "AR step, ms": ar[point.source],
                "c": point.c,
                "source": point.source,
                "SpecDec": str(engine),
            }
        )
        before = R
    return rows


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
    factor = f"{number(factors[largest])}, from *{largest}*"
    told = f"the {'largest' if len(factors) > 1 else 'one'} factor is {factor}"
    # a factor is a quotient of two Rs of the line, each off by about the line's own residual
    off = max((r for one in ladder if (r := residual_of(one)) is not None), default=0.0)
    least = factors[largest] / (1 + 2 * off)
    rivals = [f"{number(f)}, from *{name}*" for name, f in factors.items() if name != largest and f > least]
    if rivals:
        told += (
            f" (but the line of one rung is off by {text.percent(off)} on held-out cells: that does not tell it from "
            f"{text.listed(rivals)})"
        )
    crossed = next((str(row["change"]) for row, R in zip(rows, values, strict=True) if R > 1), None)
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
        f"{over}; {told}. AR itself became {number(faster)} times as fast, so against the best AR the first "
        f"engine has R = {number(rows[0]['R against the best AR'])}."
    )
