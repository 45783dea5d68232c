"""The results page: verdicts, families, prefill, acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_lib.report import compare, figures, folders, landing, leftout, models, style, text
from specdec_lib.report.style import number


def show_verdicts(found: list[compare.Source], root: Path | None = None) -> None:
    """The headline figure, the table behind it and a verdict sentence per context and source."""
    style.use_style()
    csv = compare.files(found)
    text.say(models.synthetic_told(compare.ours(found)))
    style.figure(figures.headline(found), alt=landing.alt(found), caption=landing.caption(found), csv=csv)
    caption = "The result per context. The interval is of the families in inference, as R_GM is."
    style.table(compare.table(found, compare.VERDICTS, setup=True), caption=caption, csv=csv)
    text.say(*verdicts(found), compare.agreement(found), *_missing(found, root))


def verdicts(found: list[compare.Source]) -> list[str]:
    """One paragraph per source: its verdict at every context."""
    return [
        f"**{source.label}.** " + " ".join(text.verdict_sentence(row, source.repeats) for row in source.rows)
        for source in found
    ]


def show_times(found: list[compare.Source]) -> None:
    """Medians and R with prefill."""
    caption = (
        "Medians and ratios over all measured families, of decoding alone and with both arms' prefill added."
    )
    style.table(compare.table(found, compare.TIMES), caption=caption, csv=compare.files(found))
    text.say(*prefill_sentences(found), *prefill_verdicts(found))


def prefill_verdicts(found: list[compare.Source]) -> list[str]:
    """Whether what pays still pays with prefill, per source."""
    return [f"**{source.label}.** {told}" for source in found if (told := compare.prefill_told(source))]


def prefill_sentences(found: list[compare.Source]) -> list[str]:
    """What adding prefill does to R, per measured source."""
    lines = []
    for source in found:
        if source.results is None:
            continue
        pairs = [(row["R_GM"], row["R_GM_with_prefill"]) for row in source.rows if row["R_GM"] == row["R_GM"]]
        words = [_moved(*pair) for pair in pairs]
        each = [
            f"{number(plain)} to {number(with_prefill)}{'' if len(set(words)) == 1 else f' ({word})'}"
            for (plain, with_prefill), word in zip(pairs, words, strict=True)
        ]
        if pairs:
            how = f" {words[0]}" if len(set(words)) == 1 else ""
            lines.append(
                f"In {source.results.named} counting the prefill moves R_GM of the families in "
                f"inference{how}: {text.listed(each)}. {prefill_readings(source.results)}"
            )
    return lines


def prefill_readings(one: folders.Results) -> str:
    """What stands behind the prefill of each context: one time, from so many readings, some of them cold."""
    from specdec_lib.analysis import prefills

    read: Any = prefills(one.runs)
    single = read[read["arm"] == "ar"].groupby("context_tokens")["whole_s"]
    each = text.listed(number(value * 1000, "ms") for value in single.median())
    cold = float((single.max() / single.median()).max())
    return (
        f"AR's prefill is {each}, the median of {text.counted(int(single.count().min()), 'reading')} per context; the "
        f"slowest took {number(cold)} times the median."
    )


def _moved(plain: float, with_prefill: float) -> str:
    """Where the prefill takes a ratio."""
    if (plain - 1) * (with_prefill - 1) < 0:
        return "across 1"
    return "towards 1" if abs(with_prefill - 1) < abs(plain - 1) else "away from 1"


def show_forest(found: list[compare.Source], root: Path | None = None) -> None:
    """One forest plot per folder: a panel of its own stays readable, however many there are."""
    style.use_style()
    for source in found:
        one = source.results
        if one is None:
            continue
        cells = {context: one.cells(context) for context in one.contexts}
        alt = f"R per family in {source.label}. " + "; ".join(
            f"{text.context_name(context)}: {text.span(part['R'])}, {int((part['R'] < 1).sum())} of "
            f"{len(part)} below 1"
            for context, part in cells.items()
        )
        caption = (
            f"{source.label}: {source.hardware}; {source.setup}. R per family: quotient of the medians over "
            f"{source.repeats} repeats, {text.families(one.families['family'].nunique())}. Hollow: a timing check "
            f"failed. {line_told(source)}"
        )
        style.figure(figures.forest(source), alt=alt, caption=caption, csv=one.runs_csv)
        text.say(" ".join(family_sentence(source.label, part) for part in cells.values()))
    text.say(*_missing(found, root))


def line_told(source: compare.Source) -> str:
    """For which contexts the figure of the families has a line: for those that have some in inference."""
    drawn = [bool(row["R_GM"] == row["R_GM"]) for row in source.rows]
    if not any(drawn):
        return "No line: no family is in inference."
    at = zip(source.rows, drawn, strict=True)
    where = text.listed(text.context_name(row["context_tokens"]) for row, there in at if there)
    return f"Lines: R_GM of the context's families in inference{f' (at {where} only)' * (not all(drawn))}."


def family_sentence(label: str, cells: Any) -> str:
    """How many families are slower, and the two ends, at one context."""
    known = cells[cells["R"].notna()]
    slower = int((known["R"] < 1).sum())
    best, worst = known.loc[known["R"].idxmax()], known.loc[known["R"].idxmin()]
    count = f"{slower} of {text.families(len(known))} {'is' if slower == 1 else 'are'} slower"
    if slower in (0, len(known)):
        count = "Every family is slower" if slower else "No family is slower"
    return (
        f"**{label}, {text.context_name(known['context_tokens'].iloc[0])}.** {count} with speculation. The "
        f"best is "
        f"{best['family']} (R = {number(best['R'])}), the worst {worst['family']} (R = {number(worst['R'])})."
    )


def show_acceptance(found: list[compare.Source]) -> None:
    """Acceptance never alone: with alpha, tokens per round, rounds, target calls and R."""
    caption = (
        "Medians over all measured families. Published alpha and tokens per round follow from the published "
        "acceptance; published rounds and target calls are the middle of the stated range."
    )
    frame = compare.table(found, compare.ACCEPTANCE, setup=True)
    style.table(frame, caption=caption, csv=compare.files(found))
    text.say(*acceptance_sentences(found))


def acceptance_sentences(found: list[compare.Source]) -> list[str]:
    """Acceptance, what it yields per round and whether that was enough."""
    lines = []
    for source in found:
        if source.results is None:
            continue
        loops: Any = source.results.families["repeated_ngram_share"]
        above = [text.context_name(row["context_tokens"]) for row in source.rows if row["R_GM_all"] > 1]
        where = f"{text.listed(above)} only" if above else "any context"
        where = "every context" if len(above) == len(source.rows) else where
        enough = f"{'enough' if above else 'not enough'} for R_GM over all families above 1 at {where}"
        if source.results.quick:  # described and not judged
            enough = f"R_GM over all families is {text.span(row['R_GM_all'] for row in source.rows)}"
        looped = (
            "The median share of repeated 4-grams in the target's own output is "
            f"{text.percent(float(loops.median()))}; a text that loops flatters every proposer."
        )
        looped = "Acceptance was imposed." if source.results.scripted else looped
        lines.append(
            f"In {source.results.named} acceptance is "
            f"{text.span(row['acceptance_median'] for row in source.rows)} and a round yields "
            f"{text.span(row['tokens_per_round_median'] for row in source.rows)} tokens: {enough}. {looped}"
        )
    return lines


def show_finding(found: list[compare.Source], root: Path | None = None) -> None:
    """The verdicts in short, what was left out for them, and how they stand to the published ones."""
    ours = [source for source in found if source.results and not source.results.quick]
    text.say(
        *(f"In {source.results.named} speculative decoding {text.verdict_overview(source.rows)}."
          for source in ours if source.results),
        *leftout.left_out(found), compare.agreement(found),
    )  # fmt: skip
    if not ours:
        text.say(*_missing(found, root))


def _missing(found: list[compare.Source], root: Path | None) -> list[str]:
    return [compare.missing_committed(found, root), compare.missing_local(found)]
