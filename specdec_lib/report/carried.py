"""The regimes' findings: which of the audit's claims hold on other machines, each chosen by the data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specdec_lib.report import (
    audit,
    compare,
    folders,
    host,
    leftout,
    mechanisms,
    models,
    regimes,
    repeated,
    residuals,
    text,
)
from specdec_lib.report.costline import PHASE
from specdec_lib.report.regimes import Point
from specdec_lib.report.repeated import NEAR_LAYERS, NEAR_R
from specdec_lib.report.style import number
from specdec_lib.report.waterfall import REFERENCE
from specdec_lib.stats import geometric_mean

FAMILIES, ALL_FAMILIES = 14, 16  # so many, or that share of fewer, should pass all six checks


def show(root: Path | None = None) -> None:
    """Every finding, or how to measure what it needs."""
    told = [
        *layer_sentences(root), *byte_sentences(root), *reference_sentences(root), *repeated.sentences(root),
        *gain_sentences(root), *check_sentences(root), host.pace_sentence(root), host.core_sentence(root),
        host.later_graphs_sentence(root), line_sentence(root),
    ]  # fmt: skip
    text.say(
        models.synthetic_told(folders.measured(root)), *(f"- {sentence}" for sentence in told if sentence)
    )
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
    """Eager on a GPU: is a draft forward worth its share of the layers? By single steps in pairs where they were timed,
    else by the stages of the confirmatory runs, as the audit takes the published c; the other estimates beside it."""
    told = []
    for one in on_gpu("eager", root):
        found = regimes.folder_points(one)
        layers = found[0].layers
        staged, by_stages = _c(one, found)
        pairs = regimes.paired(one)
        c, source = (pairs, ", by single steps in pairs") if pairs else (staged, by_stages)
        off = [value / layers - 1 for value in c.values()]  # judged at every context
        fitted = [point.c for point in found if point.line]
        beside = f" The fit on development texts gives {text.span(fitted)}." if source and fitted else ""
        if pairs and by_stages:
            beside = f" By the stages of its runs it is {text.span(staged.values())}.{beside}"
        weak, ranges = ("", "") if pairs else (_weak(one), _families_of(one))
        told.append(
            f"c within {text.percent(NEAR_LAYERS, 0)} of the layer ratio {number(layers)} in the eager regime of "
            f"{one.named}{_of_several(one, root)}: {yes(_near(off))}{weak}. c is "
            f"{_each(c, layers)}{source}{ranges}; the bytes' share is {text.span(p.share for p in found)}.{beside} "
            f"Published: c = {text.span(row['c_steps'] for row in audit.rows(root))} at a layer ratio of "
            f"{number(audit.ratios()['layers'])}."
        )
    return told


def _of_several(one: folders.Results, root: Path | None) -> str:
    """Where a folder was collected several times, that this is one of them."""
    return repeated.newest(root) if one.name == repeated.FOLDER else ""


def _weak(one: folders.Results) -> str:
    none = bool(one.contexts) and not one.families["in_inference"].any()
    return ", as a description (no cell passed the timing checks)" if none else ""


def _families_of(one: folders.Results) -> str:
    """The range of single families, where c is the median of their stages."""
    if one.stages is None or not one.contexts:
        return ""
    cells: list[Any] = [regimes.staged_cells(one, context)["draft forward"] for context in one.contexts]
    return f" (single families {text.span(float(v) for part in cells for v in (part.min(), part.max()))})"


def byte_sentences(root: Path | None = None) -> list[str]:
    """Captured or compiled on a GPU: is a draft forward worth its share of the bytes? By the limit of the layers."""
    told = []
    for one in _without_launches(root):
        found = regimes.folder_points(one)
        c, source = _c(one, found)
        share = {point.context: point.share for point in found}
        told.append(
            f"c within {text.percent(NEAR_LAYERS, 0)} of the bytes' share {text.span(share.values())}, "
            f"without launches ({one.mode}), in {one.named}: {yes(_near(_off_bytes(one)))}. c is "
            f"{_each(c, share)}{source}; the layer ratio is {number(found[0].layers)}."
        )
    return told


def bytes_held(root: Path | None = None) -> dict[str, list[str]]:
    """The folders without launches by where their c lies: "held" within the limit of the bytes' share at every context,
    else "above" it, "below" it, or on "both" sides."""
    sides: dict[str, list[str]] = {}
    for one in _without_launches(root):
        off = _off_bytes(one)
        side = "above" if min(off) > 0 else "below" if max(off) < 0 else "both"
        sides.setdefault("held" if _near(off) else side, []).append(one.named)
    return sides


def _without_launches(root: Path | None) -> list[folders.Results]:
    return [*on_gpu("graphs", root), *on_gpu("compiled", root)]


def _off_bytes(one: folders.Results) -> list[float]:
    """How far c is from the bytes' share, by context."""
    found = regimes.folder_points(one)
    c, _ = _c(one, found)
    return [c[p.context] / p.share - 1 for p in found if p.context in c]


def _near(off: Iterable[float]) -> bool:
    return all(abs(o) <= NEAR_LAYERS for o in off)


def _each(c: dict[int, float], aim: float | dict[int, float]) -> str:
    """ "0.664 at 4K (-22.5 %) and 0.889 at 8K (+3.7 %)": every context's c and how far it is from ``aim``."""
    aims = aim if isinstance(aim, dict) else dict.fromkeys(c, aim)
    return text.listed(
        f"{number(value)} at {text.context_name(at)} ({(value / aims[at] - 1) * 100:+.1f}\u00a0%)"
        for at, value in c.items()
    )


def _c(one: folders.Results, found: list[Point]) -> tuple[dict[int, float], str]:
    """A draft forward in AR steps by context: by the stages of the runs, where they were timed, else by the fit; and
    which of the two, in words."""
    if one.stages is None or not one.contexts:
        return {point.context: point.c for point in found}, ""
    staged = {context: regimes.staged(one, context)["draft forward"] for context in one.contexts}
    return staged, ", by the stages of its runs"


def reference_sentences(root: Path | None = None) -> list[str]:
    """Eager on a GPU: R of the reference formulation, predicted before it was measured."""
    told = []
    for one in on_gpu("eager", root):
        off = reference_residuals(one)
        if off:
            measured = mechanisms.by_family(one, PHASE)
            cells_n = int((measured["variant"] == REFERENCE).sum())
            each = text.listed(f"{v * 100:+.1f}\u00a0% at {text.context_name(c)}" for c, v in off.items())
            told.append(
                f"R of the reference formulation predicted within {text.percent(NEAR_R, 0)} in "
                f"{one.named}{_of_several(one, root)}: "
                f"{yes(all(abs(value) <= NEAR_R for value in off.values()))}. Measured / predicted - 1 is "
                f"{each}, over {text.counted(cells_n, 'held-out cell')} in all."
            )
    return told


def reference_residuals(one: folders.Results) -> dict[int, float]:
    """Per context: geometric mean of R measured over that of R predicted, less one, for the reference formulation."""
    if not one.has(f"{PHASE}.csv", "predictions.csv"):
        return {}
    keys = ["context_tokens", "family"]
    predicted = one.table("predictions.csv", "predictions")
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
        each = text.estimates(rows)
        found = [point for point in regimes.points(root) if point.source == one.label]
        why = "" if pays else f" {_why_not(found, root)}"
        had = text.span(row["alpha_median"] for row in rows)
        meant = text.span(regimes.alpha_at(row["context_tokens"], root) for row in rows)
        told.append(
            "A lossless setting with the lower bound of R_GM above 1 at every context, with acceptance imposed near "
            f"the published one (alpha {had}; published {meant}), in {one.named}: {yes(pays)}, of decoding alone. "
            f"{one.setup.capitalize()}: R_GM is {each}.{why} {compare.prefill_told(sources[one.label])}".rstrip()
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
            f"the published one is {number(alpha)}{at_best}"
        )
    return f"Because, by the cost line: {'; '.join(parts)}."


def check_sentences(root: Path | None = None) -> list[str]:
    """In how many families the timing checks passed: which folders have enough at every context, and which have not."""
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for source in compare.sources(root):
        if source.results is None or source.results.quick:
            continue
        where = text.listed(text.context_name(row["context_tokens"]) for row in source.rows)
        each = text.listed(f"{row['n_in_inference']} of {row['n']}" for row in source.rows)
        held = all(row["n_in_inference"] >= FAMILIES / ALL_FAMILIES * row["n"] for row in source.rows)
        few = f"; {told}" if (told := leftout.computable(source.results)) else ""
        kinds[held].append(f"{source.results.named} ({each} at {where}{few})")
    return [
        f"Every timing check passes for at least {FAMILIES} of {ALL_FAMILIES} families, or that share of fewer, at "
        f"every context: {yes(held)} in {text.listed(named)}."
        for held, named in kinds.items()
        if named
    ]


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


def residual_of(one: folders.Results) -> float | None:
    """Median |residual| of the folder's cost line on held-out cells; None where it was not tested."""
    if not one.has(f"{PHASE}.csv", "predictions.csv"):
        return None
    return float(residuals.of_folder(one)["residual"].abs().median())
