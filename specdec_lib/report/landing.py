"""The landing page: the headline figure and the answer, both from data."""

from __future__ import annotations

from pathlib import Path

from specdec_lib.report import (
    answer,
    compare,
    completeness,
    figures,
    leftout,
    models,
    regimes,
    style,
    synthesis,
    text,
)


def show(root: Path | None = None) -> None:
    """Headline figure, the answer per source, and what is not measured."""
    found = compare.sources(root)
    style.use_style()
    each = "\n".join(f"- {told}" for told in compare.headline(found))
    text.say(answer.in_short(found), each, models.synthetic_told(compare.ours(found)))
    style.figure(figures.headline(found), alt=alt(found), caption=caption(found), csv=compare.files(found))
    text.say(compare.agreement(found), *leftout.left_out(found))
    limits = [*synthesis.limit_sentences(root), *regimes.margin_sentences(root)]
    text.say("**What sets the limit.**", *(f"- {told}" for told in limits))
    lacking = [told for one, told in completeness.each(root) if not one.committed]
    text.say(compare.missing_committed(found, root), compare.missing_local(found), *lacking)


def alt(found: list[compare.Source]) -> str:
    """The headline figure in words."""
    points = [
        f"{source.label} at {text.context_name(row['context_tokens'])}: {text.estimate(row)}"
        for source in found
        for row in source.rows
    ]
    start = "R_GM, the geometric mean of AR time over SpecDec time, with its interval; above 1 is faster."
    return f"{start} {'; '.join(points)}"


def caption(found: list[compare.Source]) -> str:
    """What the headline figure shows: hardware, precision, n and spread of every source."""
    each = [f"{source.label}: {source.hardware}; {source.setup}; {source.spread}." for source in found]
    return (
        "R_GM, the geometric mean over prompt families of AR time / SpecDec time for 64 new tokens; bars are "
        "intervals over families, hollow markers have none; where too few families passed the timing checks, "
        f"R_GM of all. {' '.join(each)}"
    )
