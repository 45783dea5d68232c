"""The synthesis' chain of evidence: one sentence per chapter, from that chapter's data, and the boundary "
"of it all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from specdec_lib.costfit import in_sample_residuals
from specdec_lib.predictions import residuals_table
from specdec_lib.report import (
    acceptance,
    compare,
    curve,
    dial,
    flips,
    folders,
    mechanisms,
    places,
    residuals,
    style,
    synthesis,
    text,
)
from specdec_lib.report.style import number

Table = folders.Table


def show_step(name: str, root: Path | None = None) -> None:
    """The sentence of one chapter, per folder that has its data."""
    if name == "results":
        text.say(*_results(root))
        return
    having = mechanisms.having(name, root)
    text.say(*(
        "" if one.quick else f"`{one.label}`: {STEPS[name](one)}" for one in having
    ))  # fmt: skip
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
    gain = mechanisms.gain(one, "control-plane", "device", "naive")["gain"]
    return (
        f"host reads per round go from {text.change(naive, device)} (naive to device-side); that "
        f"multiplies the speed by {text.span(gain)}."
    )


def acceptance_found(one: folders.Results) -> str:
    """Alpha, and how near the refused tokens were."""
    proposals = mechanisms.read(one, acceptance.FILE, "proposals")
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
        for variant in variants:
            part = frame[frame["variant"] == variant]
            if part.empty:
                continue
            each = text.listed(
                f"{number(row['R_GM'])} at {text.context_name(row['context'])}"
                for row in part.to_dict("records")
            )
            parts.append(f"{mechanisms.labelled(variant, part['label'].iloc[0])}: R_GM = {each}")
        return f"{'; '.join(parts)}; {over_mechanism(frame)}." if parts else "not run with this engine."

    return told


def dial_found(one: folders.Results) -> str:
    """Where R reaches 1, by each of the two ways to find it: they are two values of one quantity."""
    cells = mechanisms.by_family(one, dial.PHASE)
    frame, lines = curve.curve(cells), curve.fitted(one, cells)
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
    each = text.listed(
        f"{number(row['gain'])} at {text.context_name(row['context'])}" for row in gain.to_dict("records")
    )
    return f"repair-free with bonus ({label}) is faster than the reference engine ({label}) by a factor of {each}."


def numerics(one: folders.Results) -> str:
    """Where a block first differs from a step, and how many choices flip."""
    table, parts = mechanisms.read(one, "numerics.csv", "numerics"), []
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
    predictions = mechanisms.read(one, "predictions.csv", "predictions")
    frame = residuals_table(predictions, mechanisms.by_family(one, "cost-model"))
    inside = in_sample_residuals(mechanisms.read(one, "costs.csv", "costs"))
    return residuals.verdict_sentences(frame, inside)[0]


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
    """What was measured where: the claim reaches no further."""
    frame = boundary(root)
    if len(frame):
        style.table(frame, caption="What the mechanism chapters were measured on.")
    else:
        text.say(*mechanisms.missing("cost-model", root))


def boundary(root: Path | None = None) -> Table:
    """One row per folder with mechanism tables."""
    found = {one.name: one for phase in STEPS for one in mechanisms.having(phase, root)}
    rows = []
    for one in found.values():
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
                "families": ", ".join(f"{n} at {text.context_name(int(c))}" for c, n in cells.items()),
            }
        )
    return pd.DataFrame(rows)
