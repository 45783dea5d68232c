"""The regimes' findings: which of the audit's claims hold on other machines, each chosen by the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.guesses import draft_costs
from specdec_lib.paths import project_root
from specdec_lib.report import audit, compare, folders, mechanisms, plane, regimes, style, text
from specdec_lib.report.costline import PHASE
from specdec_lib.report.regimes import Engine, Point
from specdec_lib.report.style import number
from specdec_lib.report.waterfall import REFERENCE
from specdec_lib.stats import geometric_mean

NEAR_LAYERS = 0.15  # c within this share of the layer ratio, or of the bytes' share, counts as following it
NEAR_R = 0.10  # R of the reference formulation predicted within this share
HOST_PACE = "h200-engine/host-pace.json"  # of benchmarks/host_pace.py
FOLLOWS = 0.5  # a rank correlation from which one time follows another
FAMILIES, ALL_FAMILIES = 14, 16  # so many, or that share of fewer, should pass all six checks


def show(root: Path | None = None) -> None:
    """Every finding, or how to measure what it needs."""
    told = [
        *layer_sentences(root), *byte_sentences(root), *reference_sentences(root), *gain_sentences(root),
        *check_sentences(root), pace_sentence(root), line_sentence(root),
    ]  # fmt: skip
    text.say(*(f"- {sentence}" for sentence in told if sentence))
    for line in absent(root):
        text.say(line)


def absent(root: Path | None = None) -> list[str]:
    """What no folder has yet: an eager and a compiled regime on a GPU, each with the command of a profile."""
    have = {one.mode for one in regimes.fitted(root) if one.cuda}
    lines = []
    for mode in ("eager", "compiled"):
        profiles = folders.read_design(root).profiles
        name = next((n for n, entry in profiles.items() if entry.device == "cuda" and entry.mode == mode), "")
        if mode not in have and name:
            lines.append(text.not_measured(f"a GPU in the mode {mode}", f"make runs PROFILE={name}"))
    return lines


def on_gpu(mode: str, root: Path | None = None) -> list[folders.Results]:
    """Folders with a cost line, on a GPU in ``mode``."""
    return [one for one in regimes.fitted(root) if one.cuda and one.mode == mode]


def yes(held: bool) -> str:
    """The verdict on a claim."""
    return "**yes**" if held else "**no**"


def layer_sentences(root: Path | None = None) -> list[str]:
    """Eager on a GPU: is a draft forward worth its share of the layers? By the stages of the confirmatory runs, as the
    audit takes the published c; what the fit on development texts says stands beside it."""
    told = []
    for one in on_gpu("eager", root):
        found = regimes.folder_points(one)
        layers = found[0].layers
        timed = one.contexts if one.stages is not None else []
        staged = [regimes.staged(one, context)["draft forward"] for context in timed]
        fitted = [point.c for point in found if point.line]
        c = staged or fitted
        off = [value / layers - 1 for value in c]
        beside = f" The fit on development texts gives {text.span(fitted)}." if staged and fitted else ""
        told.append(
            f"c within {text.percent(NEAR_LAYERS, 0)} of the layer ratio {number(layers)} in the eager regime of "
            f"{one.named}: {yes(all(abs(o) <= NEAR_LAYERS for o in off))}. c is {text.span(c)} AR steps "
            f"({text.span((o * 100 for o in off), '%')} from it){' by the stages of its runs' * bool(staged)}; the "
            f"bytes' share is {text.span(p.share for p in found)}.{beside} Published: "
            f"c = {text.span(row['c_steps'] for row in audit.rows(root))} at a layer ratio of "
            f"{number(audit.ratios()['layers'])}."
        )
    return told


def byte_sentences(root: Path | None = None) -> list[str]:
    """Captured or compiled on a GPU: is a draft forward worth its share of the bytes? By the limit of the layers."""
    told = []
    for one in [*on_gpu("graphs", root), *on_gpu("compiled", root)]:
        found = regimes.folder_points(one)
        off = [point.c / point.share - 1 for point in found]
        told.append(
            f"c within {text.percent(NEAR_LAYERS, 0)} of the bytes' share {text.span(p.share for p in found)}, "
            f"without launches ({one.mode}), in {one.named}: {yes(all(abs(o) <= NEAR_LAYERS for o in off))}. c is "
            f"{text.span(p.c for p in found)} AR steps ({text.span((o * 100 for o in off), '%')} from it); the layer "
            f"ratio is {number(found[0].layers)}."
        )
    return told


def reference_sentences(root: Path | None = None) -> list[str]:
    """Eager on a GPU: R of the reference formulation, predicted before it was measured."""
    told = []
    for one in on_gpu("eager", root):
        off = reference_residuals(one)
        if off:
            measured = mechanisms.by_family(one, PHASE)
            cells_n = int((measured["variant"] == REFERENCE).sum())
            each = text.listed(
                f"{value * 100:+.1f}\u00a0% at {text.context_name(c)}" for c, value in off.items()
            )
            told.append(
                f"R of the reference formulation predicted within {text.percent(NEAR_R, 0)} in {one.named}: "
                f"{yes(all(abs(value) <= NEAR_R for value in off.values()))}. Measured / predicted - 1 is "
                f"{each}, over {text.counted(cells_n, 'held-out cell')}."
            )
    return told


def reference_residuals(one: folders.Results) -> dict[int, float]:
    """Per context: geometric mean of R measured over that of R predicted, less one, for the reference formulation."""
    if not all((one.folder / name).is_file() for name in (f"{PHASE}.csv", "predictions.csv")):
        return {}
    keys = ["context_tokens", "family"]
    predicted = mechanisms.read(one, "predictions.csv", "predictions")
    measured = mechanisms.by_family(one, PHASE)
    joined = predicted[predicted["variant"] == REFERENCE][[*keys, "R_predicted"]].merge(
        measured[measured["variant"] == REFERENCE][[*keys, "R"]], on=keys
    )
    return {
        int(context): geometric_mean(part["R"]) / geometric_mean(part["R_predicted"]) - 1
        for context, part in joined.groupby("context_tokens", sort=True)
    }


def gain_sentences(root: Path | None = None) -> list[str]:
    """Compiled on a GPU: is there a lossless setting that pays at every context, at the published acceptance?"""
    sources = {source.label: source for source in compare.sources(root)}
    told = []
    for one in folders.measured(root):
        if one.mode != "compiled" or not one.scripted:
            continue
        rows = sources[one.label].rows
        pays = all(row["verdict"] == "pays" for row in rows)
        each = text.listed(
            f"{text.estimate(row)} at {text.context_name(row['context_tokens'])}" for row in rows
        )
        found = [point for point in regimes.points(root) if point.source == one.label]
        why = "" if pays else f" {_why_not(found, root)}"
        told.append(
            "A lossless setting with the lower bound of R_GM above 1 at every context, at the published "
            "acceptance, in "
            f"{one.named}: {yes(pays)}. {one.setup.capitalize()}: R_GM is {each}.{why}"
        )
    return told


def _why_not(found: list[Point], root: Path | None) -> str:
    """What the cost line says about the setting that did not pay, and about the best one."""
    if not found:
        return "No cost line was fitted there, so the report cannot say why."
    parts = []
    for point in found:
        alpha, at = regimes.alpha_at(point.context, root), point.break_even()
        best = point.best(alpha, point.engine.formulation, point.engine.bonus)
        at_best = f"; the best k is {best[0].k} with R = {number(best[1])}" if best else ""
        even = "no alpha pays" if at is None else f"break-even is at alpha = {number(at)}"
        parts.append(
            f"at {text.context_name(point.context)} (c = {number(point.c)}, v = {number(point.v)}) {even}, "
            "the published "
            f"one is {number(alpha)}{at_best}"
        )
    return f"Because, by the cost line: {'; '.join(parts)}."


def check_sentences(root: Path | None = None) -> list[str]:
    """In how many families the timing checks passed, per folder: which checks, and at which contexts."""
    told = []
    for source in compare.sources(root):
        if source.results is None or source.results.quick:
            continue
        where = text.listed(text.context_name(row["context_tokens"]) for row in source.rows)
        each = text.listed(f"{row['n_in_inference']} of {row['n']}" for row in source.rows)
        held = all(row["n_in_inference"] >= FAMILIES / ALL_FAMILIES * row["n"] for row in source.rows)
        told.append(
            f"{_checks(source.results)} pass for at least {FAMILIES} in {ALL_FAMILIES} families at every context of "
            f"{source.results.named} ({where}): {yes(held)}; for {each}."
        )
    return told


def _checks(one: folders.Results) -> str:
    """The timing checks that the folder's runs allow; one that could not be computed passed nothing."""
    planned = one.design.analysis.exclude_on
    computed = [name for name in planned if bool(one.families[f"{name}_passed"].notna().any())]
    if len(computed) == len(planned):
        return f"All {number(len(planned))} timing checks"
    return (
        f"The {number(len(computed))} of {number(len(planned))} timing checks that could be computed there, with "
        f"{text.counted(one.profile.repeats, 'repeat')} ({text.listed(computed)}),"
    )


def pace_sentence(root: Path | None = None) -> str:
    """Whether the host's pace explains the eager times: a fixed loop against eager and captured runs, by rank."""
    file = (root or project_root()) / "data" / HOST_PACE
    if not file.is_file():
        return ""
    known = json.loads(file.read_text(encoding="utf-8"))
    seconds = known["seconds"]
    spread = {name: max(values) / min(values) - 1 for name, values in seconds.items()}
    ranks: Any = pd.DataFrame(seconds).corr(method="spearman")
    follows = {mode: float(ranks.loc["loop", mode]) for mode in ("eager", "graphs")}
    cause = (
        "the host's pace, not the engine, moves the eager times, which is why cells of eager folders fail"
        if follows["eager"] >= FOLLOWS > follows["graphs"]
        else "the host's pace alone does not explain the eager times"
    )
    return (
        f"On one {known['device']}, {len(seconds['loop'])} times in turn: a fixed Python loop varies by "
        f"{text.percent(spread['loop'], 0)} (largest over smallest), eager AR by {text.percent(spread['eager'], 0)}, "
        f"captured AR by {text.percent(spread['graphs'])}. The rank correlation with the loop is "
        f"{number(follows['eager'], digits=2)} for eager and {number(follows['graphs'], digits=2)} for captured runs; "
        f"the process had {text.percent(known['cpu_time_per_wall'], 0)} of a core: {cause}."
    )


def line_sentence(root: Path | None = None) -> str:
    """How well the cost line predicts held-out cells, in every folder that was predicted."""
    found = [(one, residual_of(one)) for one in mechanisms.having(PHASE, root)]
    parts = [f"{text.percent(off)} in {one.named}" for one, off in found if off is not None]
    if not parts:
        return ""
    return (
        f"The cost line, fitted on other texts, is off by {text.listed(parts)} (median |residual| of R, "
        "held-out cells). "
        "Costs differ from machine to machine; that R follows from them can be checked on each."
    )


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
        steps = [
            text.span((regimes.ar_step_s(one, c) * 1e3 for c in both), "ms") for one in (first, captured)
        ]
        # by stages on both sides: a fit on one would compare two ways of estimating
        cells: Any = [
            [regimes.staged_cells(one, x)["draft forward"] for x in both] for one in (first, captured)
        ]
        c = [[float(part.median()) for part in side] for side in cells]
        ends = [text.span(float(end) for part in side for end in (part.min(), part.max())) for side in cells]
        nearer = all(
            abs(value - guessed[x]["bytes"]) < abs(value - layers)
            for value, x in zip(c[1], both, strict=True)
        )
        fell = all(b < a for a, b in zip(*c, strict=True))
        apart = all(b.max() < a.min() for a, b in zip(*cells, strict=True))
        without = "without its launches" if alone else "with fused kernels and without launches"
        what = (
            f"{without} the draft's cost c moves from its layers to its bytes: the draft **was** launch-bound"
            if fell and apart and nearer
            else f"{without} the draft costs less, but its c is still nearer to its layers than to its bytes"
            if fell and apart
            else f"{without} the draft is cheaper in AR steps by no more than its families spread"
            if fell
            else f"{without} the draft is **not** cheaper in AR steps"
        )
        changes = (
            "nothing changes but how the forward is launched"
            if alone
            else "launches and kernels change together, which does not tell one from the other"
        )
        told.append(
            f"From {first.named} to {captured.named} {changes} ({first.mode} to {captured.mode}). An AR "
            f"step takes {steps[0]} before and {steps[1]} after, a draft forward {text.span(c[0])} and "
            f"{text.span(c[1])} AR steps (stages of the confirmatory runs, medians over families; single families "
            f"{ends[0]} and {ends[1]}), where the layer ratio is {number(layers)} and the bytes' "
            f"share {share}: {what}. {_spread(first, captured)}"
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
    text.say(
        *told
        or [
            "Not shown: that a forward is dear *because* of its launches. That takes an experiment that changes the "
            "number of launches and nothing else, on a GPU."
        ]
    )


# -- what changed the answer


def show_ladders(root: Path | None = None) -> None:
    """Step by step from the published engine to the best one, on one pair and machine; or how to measure it."""
    found = regimes.ladders(root)
    for ladder in found:
        rows = [row for context in ladder_contexts(ladder) for row in steps(ladder, context, root)]
        each = " ".join(f"{one.label}: {one.hardware}." for one in ladder)
        caption = (
            "At the published alpha of each context, by each folder's cost line, or by the stages of its run where "
            "none is fitted; measured where a confirmatory run has that very setting. Against the best AR: the same "
            f"time, held against the fastest AR of the column. {each}"
        )
        used = [point for context in ladder_contexts(ladder) for _, point, _ in rungs(ladder, context, root)]
        files = list(dict.fromkeys(plane.file_of(point) for point in used))
        style.table(pd.DataFrame(rows, dtype=object), caption=caption, csv=files)
        text.say(*(ladder_sentence(ladder, context, root) for context in ladder_contexts(ladder)))
    if not found:
        for line in absent(root):
            text.say(line)


def ladder_contexts(ladder: list[folders.Results]) -> list[int]:
    """Contexts that every rung has."""
    sets = [{point.context for point in regimes.folder_points(one)} for one in ladder]
    return sorted(set.intersection(*sets))


def rungs(
    ladder: list[folders.Results], context: int, root: Path | None = None
) -> list[tuple[str, Point, Engine]]:
    """What changes, rung by rung: the rounds, the k that the last regime's cost asks for, then launches and kernels.

    The first is the published engine; where no repair was measured it starts with the repair-free one. A regime whose
    verification is known at another k only is left out.
    """
    at = [next(point for point in regimes.folder_points(one) if point.context == context) for one in ladder]
    k = folders.read_design(root).measurement.k
    start, engine = Engine("reference", False, k), Engine("repair-free", True, k)
    words = {"graphs": "launches removed: captured graphs", "compiled": "fused kernels, captured"}
    found = [(f"{ladder[0].mode}, as published", at[0], start)] if at[0].has_repair else []
    found.append((f"{ladder[0].mode}, repair-free with bonus", at[0], engine))
    best = at[-1].best(regimes.alpha_at(context, root), "repair-free", True)
    chosen = best[0] if best else at[-1].engine
    if chosen != engine:
        found.append(("k chosen by the last regime's cost", at[0], chosen))
    found += [
        (words[one.mode], point, chosen)
        for one, point in zip(ladder[1:], at[1:], strict=True)
        if point.line or point.engine == chosen
    ]
    return [rung for rung in found if rung[1].line or rung[2] == rung[1].engine]


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
        return "run at its own acceptance only"
    row = next(r for r in one.summary.to_dict("records") if r["context_tokens"] == point.context)
    shown = text.estimate({str(key): value for key, value in row.items()})
    if not text.described_only({str(key): value for key, value in row.items()}):
        return shown
    cells: Any = one.families
    spread = text.span(cells[cells["context_tokens"] == point.context]["R"])
    return f"{shown}: {spread}; {row['n_in_inference']} of {row['n']} passed the checks"


def _tested(one: folders.Results, context: int, engine: Engine) -> str:
    if not (one.folder / f"{PHASE}.csv").is_file():
        return "not run"
    cells = mechanisms.by_family(one, PHASE)
    same = (cells["formulation"] == engine.formulation) & (cells["bonus"] == engine.bonus)
    own = cells["variant"].str.startswith(engine.formulation)  # bounds and oracles have rounds of their own
    found: Any = cells[(cells["context_tokens"] == context) & same & (cells["k"] == engine.k) & own]
    if found.empty:
        return "not run"
    R = number(geometric_mean(found["R"]))
    return f"{R} at its own acceptance ({text.counted(len(found), 'cell')})"


def residual_of(one: folders.Results) -> float | None:
    """Median |residual| of the folder's cost line on held-out cells; None where it was not tested."""
    from specdec_lib.predictions import residuals_table

    if not all((one.folder / name).is_file() for name in (f"{PHASE}.csv", "predictions.csv")):
        return None
    predicted = mechanisms.read(one, "predictions.csv", "predictions")
    frame: Any = residuals_table(predicted, mechanisms.by_family(one, PHASE))
    return float(frame["residual"].abs().median())


def ladder_sentence(ladder: list[folders.Results], context: int, root: Path | None = None) -> str:
    """Which change took R over 1, which was the largest, and what the stronger baseline takes back."""
    rows = steps(ladder, context, root)
    values = [float(str(row["R by the line"])) for row in rows]
    factors = {str(row["change"]): b / a for row, a, b in zip(rows[1:], values, values[1:], strict=False)}
    largest = max(factors, key=lambda name: factors[name])
    factor = f"{number(factors[largest])}, from *{largest}*"
    told = f"the largest factor is {factor}" if len(factors) > 1 else f"the one factor is {factor}"
    # a factor is a quotient of two Rs of the line, each off by about the line's own residual
    off = max((r for one in ladder if (r := residual_of(one)) is not None), default=0.0)
    rivals = [
        name for name in factors if name != largest and factors[name] * (1 + 2 * off) > factors[largest]
    ]
    if rivals:
        told += (
            f" (but the line of one rung is off by {text.percent(off)} on held-out cells: that does not tell it from "
            f"{text.listed(f'{number(factors[name])}, from *{name}*' for name in rivals)})"
        )
    crossed = next((str(row["change"]) for row, R in zip(rows, values, strict=True) if R > 1), None)
    over = (
        "no change takes R over 1"
        if crossed is None
        else "it is above 1 from the start"
        if values[0] > 1
        else f"the change that takes R over 1 is *{crossed}*"
    )
    faster = float(str(rows[0]["AR step, ms"])) / float(str(rows[-1]["AR step, ms"]))
    label = (
        "synthetic, by the cost line" if ladder[0].synthetic else "by the cost line, at the published alpha"
    )
    return (
        f"At {text.context_name(context)} R goes from {number(values[0])} to {number(values[-1])} "
        f"({label}): {over}; {told}. AR itself became "
        f"{number(faster)} times as fast, "
        f"so against the best AR the first engine has R = {number(rows[0]['R against the best AR'])}."
    )
