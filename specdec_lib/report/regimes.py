"""The regimes side by side: each folder's cost line at its own engine, and what follows from it at the same acceptance.

A regime is a folder: a pair on a machine in a mode. The published study is one more, by the audit of its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import (
    PUBLISHED_K,
    PUBLISHED_TOKENS,
    break_even_alpha,
    expected_counts,
    predicted_R,
)
from specdec_lib.errors import TableError, TableMissing
from specdec_lib.guesses import draft_costs
from specdec_lib.report import audit, compare, folders, published, style, text
from specdec_lib.report.costline import FIT, Line, lines
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean

Table = folders.Table
MODES = ("eager", "graphs", "compiled")  # each takes launches away from the one before
KS = range(1, 9)


@dataclass(frozen=True)
class Engine:
    """What a round of a SpecDec arm does."""

    formulation: str
    bonus: bool
    k: int

    def __str__(self) -> str:
        return f"{self.formulation}{', bonus' * self.bonus}, k = {self.k}"


@dataclass(frozen=True)
class Point:
    """A regime at one context, in AR steps: a draft forward ``c``, a verification with overhead ``v``."""

    source: str
    context: int
    engine: Engine
    c: float
    v: float
    layers: float  # the draft's share of the target's layers
    share: float  # and of the bytes that a step reads
    tokens: int
    line: Line | None = None  # None: the article gives no verification per block size
    results: folders.Results | None = None

    def R(self, alpha: float, engine: Engine | None = None) -> float:
        """R of the cost line at ``alpha``, of the regime's own engine or of another one."""
        e = engine or self.engine
        if self.line:
            return self.line.predicted_R(alpha, e.k, e.formulation, e.bonus, self.tokens)
        return predicted_R(self.c, self.v, e.k, alpha, e.formulation, e.bonus, new_tokens=self.tokens)

    def break_even(self) -> float | None:
        """The smallest alpha at which the regime's own engine pays."""
        e = self.engine
        if self.line:
            return self.line.break_even(e.k, e.formulation, e.bonus, self.tokens)
        return break_even_alpha(self.c, self.v, e.k, e.formulation, e.bonus, new_tokens=self.tokens)

    def best(self, alpha: float, formulation: str, bonus: bool) -> tuple[Engine, float] | None:
        """The k with the largest R at ``alpha``, and that R; None where verification is known at one k only."""
        if self.line is None:
            return None
        engines = [Engine(formulation, bonus, k) for k in KS]
        best = max(engines, key=lambda engine: (self.R(alpha, engine), -engine.k))
        return best, self.R(alpha, best)

    @property
    def way(self) -> str:
        """What c and v are read from, and of how many texts."""
        if self.results is None:
            return "by the audit of the published medians"
        if self.line:
            fit: Any = self.results.table(FIT, "cost-fit")
            n = fit[fit["context_tokens"] == self.context]["families_n"].max()
            return f"by the fit on {text.counted(n, 'development text')}"
        n = len(staged_cells(self.results, self.context))
        return f"by the stages of the confirmatory runs, medians over {text.families(n)}"

    @property
    def has_repair(self) -> bool:
        """A repair was measured, so the line may speak about the reference formulation."""
        return self.line.repair > 0 if self.line else self.engine.formulation == "reference"


def engine_of(one: folders.Results) -> Engine:
    """The SpecDec arm of a folder's confirmatory run."""
    return Engine(one.profile.formulation, one.profile.bonus, one.profile.k)


def ways(found: list[Point]) -> str:
    """For captions: how c and v of every source were estimated, at which contexts."""
    told: dict[str, dict[str, list[str]]] = {}
    for point in found:
        at = text.context_name(point.context)
        told.setdefault(point.way, {}).setdefault(point.source, []).append(at)
    each = (
        f"{way}: {', '.join(f'{source} at {text.listed(at)}' for source, at in by.items())}"
        for way, by in told.items()
    )
    return f"How c and v were estimated: {'; '.join(each)}."


def alphas(root: Path | None = None) -> dict[int, float]:
    """The published alpha per context: the one acceptance at which regimes are compared."""
    summary: Any = published.summary(root)
    return {int(row["context_tokens"]): row["alpha_median"] for row in summary.to_dict("records")}


def alpha_at(context: int, root: Path | None = None) -> float:
    """The published alpha of a context; of another context than the published ones, their mean."""
    known = alphas(root)
    return known.get(context, sum(known.values()) / len(known))


def points(root: Path | None = None) -> list[Point]:
    """The published regime, then every folder with a fitted cost line; contexts ascending."""
    shares, engine = audit.ratios(), Engine("reference", False, PUBLISHED_K)
    found = [
        Point(published.LABEL, int(row["context_tokens"]), engine, row["c_steps"], row["v_steps"],
              shares["layers"], shares["bytes"], PUBLISHED_TOKENS)
        for row in audit.rows(root)
    ]  # fmt: skip
    for one in fitted(root):
        found += folder_points(one)
    return found


def fitted(root: Path | None = None) -> list[folders.Results]:
    """The folders with a fitted cost line, or with stages of their confirmatory runs to read the costs from."""
    return [
        one for one in folders.joining(root)
        if one.has(FIT) or (one.contexts and one.stages is not None)
    ]  # fmt: skip


def folder_points(one: folders.Results) -> list[Point]:
    """A folder's points, contexts ascending: by the fitted line; where there is none, by the run's own stages."""
    by_context, engine, found = lines(one), engine_of(one), []
    for context in sorted({*by_context, *(one.contexts if one.stages is not None else ())}):
        line = by_context.get(context)
        guessed = draft_costs(one.provenance["models"], context)
        if line:
            c, v = line.c, line.verify(engine.k + (engine.formulation == "repair-free")) + line.overhead
        else:
            known = staged(one, context)
            c, v = known["draft forward"], known["verification"] + known["overhead"]
        found.append(
            Point(one.label, context, engine, c, v, guessed["layers"], guessed["bytes"], one.profile.new_tokens,
                  line, one)
        )  # fmt: skip
    return found


def staged(one: folders.Results, context: int) -> dict[str, float]:
    """Costs in AR steps from the instrumented SpecDec repeats of the confirmatory run, medians over families."""
    return {str(part): float(costs.median()) for part, costs in staged_cells(one, context).items()}


def spec_stages(one: folders.Results, context: int) -> Table | None:
    """The stages of a context's instrumented SpecDec repeats, or None: its table or these rows may be missing."""
    if one.stages is None:
        return None
    found = one.stages[(one.stages["context_tokens"] == context) & (one.stages["arm"] == "spec")]
    return None if found.empty else found


def staged_cells(one: folders.Results, context: int) -> pd.DataFrame:
    """Per family: a draft forward, a verification and a round's overhead, each in AR steps *of that family's runs*,
    which stand beside it in time: a host whose pace drifts moves both.

    The reference formulation times a round's last draft forward (all rounds but the last) under repair.
    """
    here: Any = one.runs[one.runs["context_tokens"] == context]
    runs = here[here["arm"] == "spec"]
    stages = spec_stages(one, context)
    if stages is None:
        file = f"stages-{context}.csv"
        error, lack = (
            (TableError, "has no row of the arm spec")
            if one.has(file)
            else (TableMissing, f"is not there, and confirmatory-{context}.csv is")
        )
        raise error(
            f"data/{one.name}/{file} {lack}.",
            expected="both tables of a context, whole, as the confirmatory phase writes them",
            remedy=f"{one.command or 'copy the folder again'} (finished jobs are kept)",
        )
    spent = stages.pivot_table(index="family", columns="stage", values="stage_s")
    counted = ["rounds_n", "target_calls_n", "draft_calls_n"]
    counts = runs.groupby("family")[counted].mean().loc[list(spent.index)]
    caught_up = (counts["rounds_n"] - 1) * (one.profile.formulation == "reference")
    blocks = counts["rounds_n"].where(counts["target_calls_n"] > counts["rounds_n"], counts["target_calls_n"])
    ar = here[here["arm"] == "ar"].groupby("family")["decode_s"].median()
    step = ar.loc[list(spent.index)] / (one.profile.new_tokens - 1)
    draft = spent["draft"] / (counts["draft_calls_n"] - caught_up) / step
    rest = spent["accept"] + spent["other"] + spent["repair"] * (one.profile.formulation == "repair-free")
    verification, overhead = spent["verify"] / blocks / step, rest / step / counts["rounds_n"]
    return pd.DataFrame({"draft forward": draft, "verification": verification, "overhead": overhead})


IN_STEPS = "draft forward in plain steps"  # of the phase "graphs"


def paired(one: folders.Results) -> dict[int, float]:
    """A draft forward in AR steps by context, from single eager steps in pairs; empty where the folder has none.

    Two steps of a pair lie within milliseconds: of all estimates the one that a drifting host moves least.
    """
    found: Any = one.optional("graphs")
    if found is None:
        return {}
    rows = found[(found["quantity"] == IN_STEPS) & (found["mode"] == "eager") & found["value"].notna()]
    return {int(c): float(v) for c, v in zip(rows["context_tokens"], rows["value"], strict=True)}


def ar_step_s(one: folders.Results, context: int) -> float:
    """An AR step of the confirmatory run; of the fit, where the run has no such context."""
    if context in one.contexts:
        return float(one.summary_at(context)["ar_median_s"]) / (one.profile.new_tokens - 1)
    fit: Any = one.table(FIT, "cost-fit")
    here = fit[(fit["component"] == "ar step") & (fit["context_tokens"] == context)]
    return float(here["cost_s"].iloc[0])


def edge(engine: Engine, alpha: float, new_tokens: int) -> Callable[[float], float]:
    """The v at which R = 1 for a given c, a repair costing one step: a straight line in the plane of c and v."""
    counts = expected_counts(alpha, engine.k, new_tokens, engine.formulation, engine.bonus)
    blocks = sum(counts.blocks.values())
    return lambda c: (new_tokens - 1 - counts.draft_forwards * c - counts.repairs) / blocks


def margin_sentences(root: Path | None = None) -> list[str]:
    """For every measured GPU folder: what a draft forward and a verification cost, and which alpha that asks for."""
    told = []
    for one in fitted(root):
        rows = {row["context_tokens"]: row for row in one.summary.to_dict("records")} if one.contexts else {}
        found = [point for point in folder_points(one) if point.context in rows]
        if not found or not one.cuda or one.quick:
            continue
        even = [point.break_even() for point in found]
        never = [text.context_name(p.context) for p, at in zip(found, even, strict=True) if at is None]
        pays = f"it pays from alpha = {text.span(at for at in even if at is not None)} on"
        asked = f"{pays}{f' (no alpha pays at {text.listed(never)})' * bool(never)}"
        asked = "no alpha pays" if len(never) == len(even) else asked
        had = "imposed" if one.scripted else "found"
        told.append(
            f"In {one.named} ({one.mode}, k = {one.profile.k}) a draft forward costs {text.span(p.c for p in found)} "
            f"and a verification {text.span(p.v for p in found)} AR steps: {asked}; the runs {had} "
            f"{text.span(rows[p.context]['alpha_median'] for p in found)}."
        )
    return told


# -- the tables


def show_overview(root: Path | None = None) -> None:
    """Baseline, costs, result and checks of every regime in one table, and the verdicts in sentences."""
    found = compare.sources(root)
    frame = overview(found, root)
    each = " ".join(
        f"{source.label}: {source.hardware}; {source.setup}; {source.spread}." for source in found
    )
    caption = f"Every regime. c and v in AR steps, as in the cost lines below, v with a round's overhead inside. {each}"
    style.table(frame, caption=caption, csv=compare.files(found))
    verdicts = {source.label: text.verdict_overview(source.rows) for source in found}
    text.say(*(f"**{label}.** Speculative decoding {verdict}." for label, verdict in verdicts.items()))
    text.say(*twin_sentences(root), compare.missing_committed(found, root), compare.missing_local(found))


def twin_sentences(root: Path | None = None) -> list[str]:
    """Folders that differ in hardware or run alone, at their own acceptance: how near means are, and families."""
    told = []
    for one, other in combinations([one for one in folders.measured(root) if not one.scripted], 2):
        if (one.profile.pair, one.mode, engine_of(one)) != (other.profile.pair, other.mode, engine_of(other)):
            continue
        both = one.families.merge(other.families, on=["context_tokens", "family"]).dropna(
            subset=["R_x", "R_y"]
        )
        apart = ", each on its own hardware" if machine_of(one) != machine_of(other) else " in two runs"
        for context, part in both.groupby("context_tokens", sort=True):
            means = text.listed(number(geometric_mean(part[R])) for R in ("R_x", "R_y"))
            off = (part["R_y"] / part["R_x"] - 1) * 100
            told.append(
                f"{one.named} and {other.named} ran the same pair, texts, engine and k{apart}: at "
                f"{text.context_name(context)} R_GM over {text.families(len(part))} is {means}, while a "
                f"single family's R differs by {text.span(off, '%')} from the one to the other."
            )
    return told


def overview(found: list[compare.Source], root: Path | None = None) -> pd.DataFrame:
    """One row per (context, source)."""
    known = {(point.source, point.context): point for point in points(root)}
    rows = []
    for source, row in compare.by_context(found):
        context = row["context_tokens"]
        point = known.get((source.label, context))
        steps = (source.results.profile.new_tokens - 1) if source.results else PUBLISHED_TOKENS
        rows.append(
            {
                "context": text.context_name(context),
                "source": source.label,
                "R_GM": text.estimate(row),
                "verdict": row["verdict"],
                "passed the checks": f"{row['n_in_inference']} of {row['n']}",
                "R_GM, all families": row.get("R_GM_all", "not stated"),
                "c": number(point.c) if point else "no fit",
                "v": number(point.v) if point else "no fit",
                "AR step, ms": row["ar_median_s"] / steps * 1e3,
                "acceptance": row["acceptance_median"],
                "SpecDec": source.setup,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def cost_table(found: list[Point], root: Path | None = None) -> pd.DataFrame:
    """What each cost line says at the published acceptance: R of the own engine, break-even, the best k."""
    rows = []
    for point in sorted(found, key=lambda point: point.context):
        alpha, at = alpha_at(point.context, root), point.break_even()
        best = point.best(alpha, point.engine.formulation, point.engine.bonus)
        beyond = "" if point.line or point.results is None else " (by its stages)"
        beyond = " (extrapolated)" if point.line and point.line.extrapolated else beyond
        rows.append(
            {
                "context": text.context_name(point.context) + beyond,
                "source": point.source,
                "R by the line": point.R(alpha),
                "break-even alpha": "none pays" if at is None else "every alpha" if at == 0 else number(at),
                "best k, R there": f"{best[0].k}, {number(best[1])}" if best else "one k known",
                "c": point.c,
                "share of layers": point.layers,
                "share of bytes": point.share,
                "v": point.v,
                "SpecDec": str(point.engine),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def machine_of(one: folders.Results) -> tuple[str, str]:
    """Folders with the same pair on the same device differ in nothing but how the engine runs."""
    device = one.provenance.get("device", {})
    machine = one.provenance.get("machine", {})
    name = device.get("device_name", "cpu") if one.cuda else machine.get("cpu", "cpu")
    return one.profile.pair, str(name)


def ladders(root: Path | None = None) -> list[list[folders.Results]]:
    """Folders of one pair on one machine that differ in mode, in the order in which launches go."""
    groups: dict[tuple[str, str], dict[str, folders.Results]] = {}
    for one in fitted(root):
        groups.setdefault(machine_of(one), {}).setdefault(one.mode, one)
    ordered = [[by_mode[mode] for mode in MODES if mode in by_mode] for by_mode in groups.values()]
    return [ladder for ladder in ordered if len(ladder) > 1]
