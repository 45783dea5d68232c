"""The synthesis' chain of evidence: a sentence per chapter, from its own data, and the boundary of it all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from specdec_lib.costfit import in_sample_residuals
from specdec_lib.report import (
    acceptance,
    compare,
    costline,
    curve,
    dial,
    flips,
    folders,
    freedraft,
    mechanisms,
    models,
    places,
    residuals,
    style,
    synthesis,
    text,
)
from specdec_lib.report.style import number
from specdec_lib.variants import PHASES

Table = folders.Table
_APART = 0.2  # R of one work in two phases of a folder differs by more: its times are unsteady
_WORK = ["context_tokens", "family", "formulation", "bonus", "k", "rounds_n", "target_calls_n", "draft_calls_n",
         "host_reads_n"]  # fmt: skip


def show_step(name: str, root: Path | None = None) -> None:
    """The sentence of one chapter, per folder that has its data."""
    if name == "results":
        text.say(models.synthetic_told(folders.measured(root)), *_results(root))
        return
    having = mechanisms.having(name, root)
    text.say(*(f"`{one.label}`: {STEPS[name](one)}" for one in having if not one.quick))
    if not having:
        text.say(mechanisms.missing(name, root)[0])


def _results(root: Path | None) -> list[str]:
    told = []
    for source in compare.sources(root):
        who = "As published" if source.results is None else f"In `{source.label}`"
        told.append(f"{who} speculative decoding {text.verdict_overview(source.rows)}.")
    return told


def control_plane(one: folders.Results) -> str:
    """Host reads per round, and what they cost."""
    frame = mechanisms.by_variant(one, "control-plane")
    naive, device = (frame[frame["variant"] == v]["reads_per_round"] for v in ("naive", "device"))
    gain = mechanisms.gain(one, "control-plane", "device", "naive")
    told = factor_told(gain, "that multiplies the speed by")
    return f"host reads per round go from {text.change(naive, device)} (naive to device-side); {told}."


def factor_told(gain: Table, found: str, of: str = "") -> str:
    """Rows of :func:`mechanisms.gain` in words: the factors that show a difference after ``found``, then the others.
    ``of``: whose factor it is, where no sentence before says so."""
    clear: list[str] = []
    lost: list[str] = []
    for row in gain.to_dict("records"):
        (clear if mechanisms.told_apart(row) else lost).append(mechanisms.gain_told(row))
    told = [f"{found} {text.listed(clear)}"] * bool(clear)
    s = "s" * (len(lost) > 1)
    return "; ".join(
        [
            *told,
            *[f"the factor{s}{of} {text.listed(lost)}{',' * bool(of)} cannot be told from 1"] * bool(lost),
        ]
    )


def acceptance_found(one: folders.Results) -> str:
    """Alpha, and how near the refused tokens were."""
    proposals = one.table(acceptance.FILE, "proposals")
    alpha = places.counted_alpha(places.positions(proposals))
    first = acceptance.shares(proposals).set_index("population").loc[acceptance.FIRST]
    return (
        f"a proposal that is reached stands in {text.percent(alpha)} of cases; of the first refused ones "
        f"{text.percent(first['gap_share'])} ({int(first['gap_n'])} of {int(first['n'])}) were within "
        f"{acceptance.GAP:g} logit."
    )


def relaxed(one: folders.Results) -> str:
    """What the largest tolerance does to acceptance and R."""
    frame = mechanisms.by_variant(one, "relaxed")
    ends = [frame[frame["setting"] == frame["setting"].agg(end)] for end in ("min", "max")]
    names = [mechanisms.labelled(part["variant"].iloc[0], part["label"].iloc[0]) for part in ends]
    accepted, R = (text.change(*(part[column] for part in ends)) for column in ("acceptance", "R_GM"))
    return (
        f"from {names[0]} to {names[1]} acceptance goes from {accepted} and R_GM from {R} over the contexts; "
        f"{over_mechanism(frame)}."
    )


def over_mechanism(frame: Table) -> str:
    """Over how many families R_GM of a mechanism phase is: they are not those of the results."""
    sizes = frame.groupby("context")["n"].max()
    return synthesis.mechanism_only({int(context): int(n) for context, n in sizes.items()})


def one_variant(phase: str, *variants: str) -> Callable[[folders.Results], str]:
    """R_GM of some variants at every context."""

    def told(one: folders.Results) -> str:
        frame, parts = mechanisms.by_variant(one, phase), []
        odd = freedraft.above_ceiling(mechanisms.by_family(one, phase), one.profile.new_tokens)
        odd = set(zip(odd["variant"], odd["context_tokens"], strict=True))
        for variant in variants:
            part = frame[frame["variant"] == variant]
            if part.empty:
                continue
            each = text.listed(
                f"{number(row['R_GM'])} at {text.context_name(row['context'])}"
                + " (above the ceiling that its rounds set: unsteady times, no R)"
                * ((variant, row["context"]) in odd)
                for row in part.to_dict("records")
            )
            k = text.listed(map(str, sorted({int(k) for k in part["k"]})))
            name = mechanisms.labelled(variant, part["label"].iloc[0])
            parts.append(f"{name}, k = {k}: R_GM = {each}")
        return f"{'; '.join(parts)}; {over_mechanism(frame)}." if parts else "not run with this engine."

    return told


def dial_found(one: folders.Results) -> str:
    """Where R reaches 1, by each of the two ways to find it: they are two values of one quantity."""
    cells = mechanisms.by_family(one, dial.PHASE)
    frame, lines = curve.curve(cells), costline.lines(one)
    by_bits: dict[int, float | None] = {}
    by_line: dict[int, float | None] = {}
    for context, part in frame.groupby("context_tokens", sort=True):
        by_bits[int(context)] = curve.crossing(list(part["alpha"]), list(part["R_GM"]))
        if line := lines.get(int(context)):
            by_line[int(context)] = curve.break_even(part, line, one.profile.new_tokens)
    told = (
        f"where R of {curve.engine_of(frame)} reaches 1 (synthetic): measured by imposed bits "
        f"{curve.over_contexts(by_bits)}"
    )
    if not by_line:
        return f"{told}."
    # The line counts what is expected of an alpha, a run what its few bits were.
    return (
        f"{told}; by the cost line {curve.over_contexts(by_line)}. The first holds the luck of the few bits that were "
        "drawn, the second does not."
    )


def formulations(one: folders.Results) -> str:
    """What the better formulation and the bonus give together."""
    gain = mechanisms.gain(one, "formulations", "repair-free, bonus", "reference")
    if gain.empty:
        return "only one formulation was run."
    label = "synthetic" if one.synthetic else "real"
    found = f"against the reference engine ({label}) repair-free with bonus ({label}) multiplies the speed by"
    of = f" of repair-free with bonus ({label}) against the reference engine ({label}),"
    return f"{factor_told(gain, found, of)}."


def numerics(one: folders.Results) -> str:
    """Where a block first differs from a step, and how many choices flip."""
    table, parts = one.table("numerics.csv", "numerics"), []
    for dtype, part in table.groupby("dtype", sort=False):
        first = part[part["first_to_differ"]]["operation"].value_counts()
        mostly = "mostly " * (len(first) > 1)
        where = (
            f"a block first differs from a step {mostly}in {first.index[0]}"
            if len(first)
            else "nothing differs"
        )
        flipped = bool(part["flips_n"].fillna(0).sum())
        where_flips = f"at {flips.positions_told(part)} positions at least" if flipped else "nowhere"
        parts.append(f"in {str(dtype).upper()} {where}, and the choice flips {where_flips}")
    return "; ".join(parts) + "."


def cost_model(one: folders.Results) -> str:
    """The residual out of sample."""
    inside = in_sample_residuals(one.table("costs.csv", "costs"))
    return residuals.verdict_sentences(residuals.of_folder(one), inside)[0]


STEPS: dict[str, Callable[[folders.Results], str]] = {
    "control-plane": control_plane,
    "acceptance": acceptance_found,
    "relaxed": relaxed,
    "all-accept": one_variant("all-accept", "all accepted", "all accepted, bonus"),
    "draft-free": one_variant("draft-free", "draft-free, bonus"),
    "dial": dial_found,
    "formulations": formulations,
    "numerics": numerics,
    "cost-model": cost_model,
}


def show_boundary(root: Path | None = None) -> None:
    """What was measured where: the claim reaches no further. And where one folder's phases disagree."""
    frame = boundary(root)
    if len(frame):
        style.table(frame, caption="What the mechanism chapters were measured on.")
        text.say(beside_sentence(root), *(phases_apart(one) for one in measured(root)))
    else:
        text.say(*mechanisms.missing("cost-model", root))


def measured(root: Path | None = None) -> list[folders.Results]:
    """The folders with mechanism tables."""
    return list({one.name: one for phase in STEPS for one in mechanisms.having(phase, root)}.values())


def beside_sentence(root: Path | None = None) -> str:
    """What the chapters cite that has no row of its own: the published tables, and folders of results alone."""
    rows = {one.name for one in measured(root)}
    others = [source.results for source in compare.sources(root)]
    named = [one.named for one in others if one is not None and one.name not in rows]
    also = f", and the results (no mechanism tables) of {text.listed(named)}" if named else ""
    return f"Cited beside these rows: the published tables of the article{also}."


def phases_apart(one: folders.Results) -> str:
    """Where phases of one folder that did the same work on the same text give another R; "" where none do."""
    tables = [phase for phase in STEPS if phase in PHASES and one.has(f"{phase}.csv")]
    if len(tables) < 2:
        return ""
    cells: Table = pd.concat([mechanisms.by_family(one, phase) for phase in tables], ignore_index=True)
    told, cases = [], 0
    for work, part in cells.groupby(_WORK, sort=False):
        R = part.groupby("phase", sort=False)["R"].median()
        cases += len(R) > 1
        if R.max() > (1 + _APART) * R.min():
            context, family, formulation, bonus, k, *_ = work
            each = text.listed(f"{number(value)} ({phase})" for phase, value in R.items())
            engine = f"{formulation}{', bonus' * bool(bonus)}, k = {int(k)}"
            told.append(f"{family} at {text.context_name(int(context))} ({engine}): {each}")
    if not told:
        return ""
    return (
        f"In {one.named} phases that did the same work on the same text give an R that differs by more than "
        f"{text.percent(_APART, 0)} in {len(told)} of {text.counted(cases, 'case')}: {'; '.join(told)}. Times of that "
        "folder compare within one phase only."
    )


def boundary(root: Path | None = None) -> Table:
    """One row per folder with mechanism tables."""
    rows = []
    for one in measured(root):
        plan = one.profile.mechanisms
        cells = plan.families if plan else {}
        rows.append(
            {
                "data": one.label,
                "hardware": one.hardware,
                "pair": one.profile.pair,
                "SpecDec": one.setup,
                "new tokens": one.profile.new_tokens,
                "k": one.profile.k,
                "families": ", ".join(f"{n} at {text.context_name(c)}" for c, n in cells.items()),
            }
        )
    return pd.DataFrame(rows)
