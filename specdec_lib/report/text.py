"""Sentences that the data choose. No number of the report is typed, and no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specdec_lib.report.style import number

MEASURE = "make book"
_VERDICTS = {
    "pays": "speculative decoding pays, of decoding alone",
    "does not": "speculative decoding does not pay",
    "undecided": "the data do not decide",
    "no interval": "there is no interval and so no verdict",
}


def say(*paragraphs: str) -> None:
    """Show paragraphs (Markdown) in the page."""
    from IPython.display import Markdown, display

    if shown := [paragraph for paragraph in paragraphs if paragraph]:
        display(Markdown("\n\n".join(shown)))


def not_measured(what: str, command: str = MEASURE) -> str:
    """What stands where data of the reader's machine would; ``command`` makes them."""
    return f"**Not measured here:** {what}. To measure: `{command}`."


def context_name(tokens: Any) -> str:
    """2048 -> "2K"; a length that is no multiple of 1,024 in full."""
    return f"{int(tokens) // 1024}K" if tokens % 1024 == 0 else number(int(tokens))


def listed(items: Iterable[str], last: str = "and") -> str:
    """ "a, b and c"; "" for none."""
    *head, tail = list(items) or [""]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def counted(n: Any, noun: str, plural: str = "") -> str:
    """ "1 family", "4 families": the count with its noun."""
    return f"{number(int(n))} {noun if n == 1 else plural or noun + 's'}"


def families(n: Any) -> str:
    """The count of families, in words."""
    return counted(n, "family", "families")


def span(values: Iterable[float], unit: str = "", digits: int = 3) -> str:
    """ "0.5 to 0.6": the range of ``values``; one value if they look equal; missing ones do not count."""
    known = [float(value) for value in values if value is not None and value == value]
    if not known:
        return "not measured"
    low, high = number(min(known), digits=digits), number(max(known), unit, digits)
    return high if low == number(max(known), digits=digits) else f"{low} to {high}"


def change(before: Iterable[float], after: Iterable[float], digits: int = 3) -> str:
    """ "7.14–7.98 to 1.00": from one range to another. A range is one word here, as "to" is taken."""
    return " to ".join(span(values, digits=digits).replace(" to ", "–") for values in (before, after))


def in_all(n: int, noun: str, plural: str = "") -> str:
    """ "in the one cell", "in all 12 cells": every one of ``n``."""
    return f"in the one {noun}" if n == 1 else f"in all {counted(n, noun, plural)}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent: 0.608 -> "60.8 %"."""
    if share is None or share != share:
        return "not measured"
    return f"{share * 100:.{digits}f}\u00a0%"


def signed(share: float) -> str:
    """A shift as per cent with its sign: -0.0123 -> "-1.2 %"; never "-0.0"."""
    return f"{round(share * 100, 1) + 0.0:+.1f}\u00a0%"


FEW = 4  # families under which the study states no interval


def estimate(row: Mapping[str, Any]) -> str:
    """R_GM with its interval, or alone where there is none: "0.531 [0.424, 0.606]", in one unbroken line.

    Where too few families passed the checks it is R_GM of all of them, and says so.
    """
    if _of_all(row):
        return f"{number(row['R_GM_all'])} (all\u00a0families)"
    if row["R_GM"] is None or row["R_GM"] != row["R_GM"]:
        return "none"
    if row["low"] is None or row["low"] != row["low"]:
        return number(row["R_GM"])
    digits = _digits(row["low"], row["high"])
    mean, low, high = (number(row[name], digits=digits) for name in ("R_GM", "low", "high"))
    return f"{mean}\u00a0[{low},\u00a0{high}]"


def estimates(rows: Iterable[Mapping[str, Any]]) -> str:
    """ "0.531 [0.424, 0.606] at 2K and 0.6 at 4K": every context's :func:`estimate`."""
    return listed(f"{estimate(row)} at {context_name(row['context_tokens'])}" for row in rows)


def _digits(low: float, high: float) -> int:
    """Three, or as many as show on which side of 1 an interval lies: "[1.00, 1.00]" would hide it."""
    near = low if low > 1 else high if high < 1 else None
    return next((n for n in range(3, 9) if near is None or float(number(near, digits=n)) != 1), 9)


def described_only(row: Mapping[str, Any]) -> bool:
    """So few families passed the timing checks that R_GM over them says nothing: what describes the context is R_GM of
    all. Rows of the mechanism phases, which have no inference, are none of these."""
    return "n_in_inference" in row and row["low"] != row["low"] and row["n_in_inference"] < min(FEW, row["n"])


def _of_all(row: Mapping[str, Any]) -> bool:
    """Whether :func:`estimate` gives R_GM of all families, too few of them having passed the checks."""
    return row["low"] is not None and described_only(row)


def verdict_sentence(row: Mapping[str, Any], repeats: int | None = None) -> str:
    """One context's finding in a sentence; ``row`` is one of the schema "summary".

    "pays" only if the whole interval lies above 1, "does not" only if below; else undecided, or none.
    """
    start = f"At {context_name(row['context_tokens'])} tokens {_VERDICTS[row['verdict']]}"
    if row["R_GM"] is None or row["R_GM"] != row["R_GM"]:
        return f"{start}: no family passed every timing check."
    passed = families(row["n_in_inference"])
    why = f"R_GM is {estimate(row)} over {passed} in inference"
    if _of_all(row):
        why = f"R_GM is {estimate(row)}, {passed} passed every check"
    if row["verdict"] == "undecided":
        return f"{start}: {why}, and the interval contains 1."
    if row["verdict"] == "no interval":
        few = f" with {counted(repeats, 'repeat')} each" if repeats else ""
        return f"{start}: {why}{few}."
    return f"{start}: {why}."


def verdict_overview(rows: Iterable[Mapping[str, Any]], what: str = " (decoding alone)") -> str:
    """All contexts of one source in a sentence: "does not pay at 2K and 4K; is undecided at 8K".

    ``what`` pays, in brackets; "" where the sentence around it says so.
    """
    words = {"pays": f"pays{what}", "does not": "does not pay", "undecided": "is undecided"}
    told: dict[str, list[str]] = {}
    for row in rows:
        word = words.get(row["verdict"]) or f"gets no verdict ({_without_verdict(row)})"
        told.setdefault(word, []).append(context_name(row["context_tokens"]))
    return "; ".join(f"{word} at {listed(found)}" for word, found in told.items())


def _without_verdict(row: Mapping[str, Any]) -> str:
    """Why a context has no interval: by the checks, where enough families ran, else by the design."""
    passed, enough = row.get("n_in_inference", FEW), row.get("n", 0) >= FEW
    if enough and passed < FEW:
        return f"{passed or 'none'} of {row['n']} families passed the timing checks"
    return "too few repeats or families"
