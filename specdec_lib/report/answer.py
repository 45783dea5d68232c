"""What the regimes answer, ahead of their tables: where the loss comes back and what makes it a gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_lib.report import carried, compare, regimes, text
from specdec_lib.report.compare import Source
from specdec_lib.report.style import number


def show(root: Path | None = None) -> None:
    """The answer, and whether the prediction came true."""
    text.say(*sentences(root))


def sentences(root: Path | None = None) -> list[str]:
    """One sentence per kind of outcome that some folder has, and one on the prediction."""
    kinds: dict[str, list[str]] = {}
    for source in compare.sources(root):
        if source.results and not source.results.quick:
            kinds.setdefault(outcome(source), []).append(_named(source))
    opening = {
        "lost": "As in the published study, though by another amount, speculative decoding does not pay in",
        "gained": "It becomes a gain, of decoding alone, in",
        "below": "R is below 1 at every context, but too few cells passed the timing checks for more than a "
        "description, in",
        "open": "The question stays open in",
    }
    told = [f"{start} {text.listed(kinds[kind])}." for kind, start in opening.items() if kind in kinds]
    if sides := carried.bytes_held(root):
        words = {
            "above": "above that share",
            "below": "below that share",
            "both": "on both sides of that share",
        }
        missed = [f"{word} in {text.listed(sides[side])}" for side, word in words.items() if side in sides]
        where = f": c lies {', and '.join(missed)}" if missed else ""
        told.append(
            "The prediction that a draft forward costs its share of the bytes once nothing is launched came true in "
            f"{number(len(sides.get('held', [])))} of {text.counted(sum(map(len, sides.values())), 'folder')} without "
            f"launches{where}."
        )
    return told


def in_short(found: list[Source]) -> str:
    """One sentence ahead of all others: where it pays at every context, where it does not, where neither is shown."""
    kinds: dict[str, list[str]] = {}
    for source in found:
        if source.results is None or not source.results.quick:
            name = "as published" if source.results is None else f"in {source.results.named}"
            kinds.setdefault(_KIND[outcome(source)], []).append(name)
    words = {
        "pays": "it pays, of decoding alone,",
        "does not": "it does not pay",
        "neither": "neither is shown",
    }
    told = [f"{start} {text.listed(kinds[kind])}" for kind, start in words.items() if kind in kinds]
    return f"**In short**, at every context measured: {'; '.join(told)}."


_KIND = {"gained": "pays", "lost": "does not", "below": "neither", "open": "neither"}


def outcome(source: Source) -> str:
    """ "lost" or "gained": the verdict of every context; "below": described as slower at every one; else "open"."""
    verdicts = {row["verdict"] for row in source.rows}
    if verdicts in ({"pays"}, {"does not"}):
        return "gained" if verdicts == {"pays"} else "lost"
    described = all(text.described_only(row) and _R(row) < 1 for row in source.rows)
    return "below" if described else "open"


def _named(source: Source) -> str:
    assert source.results
    one = source.results
    where = f"{one.mode} on a GPU" if one.cuda else "a CPU"
    # R_GM of all families is another number than that of the inference
    apart: dict[str, list[dict[str, Any]]] = {}
    for row in source.rows:
        apart.setdefault("of all families" if text.described_only(row) else "in inference", []).append(row)
    each = (f"{text.span(map(_R, rows))}{_at(rows, of) * (len(apart) > 1)}" for of, rows in apart.items())
    values = text.listed(each)
    return f"{one.named} ({where}, {regimes.engine_of(one)}: {values})"


def _at(rows: list[dict[str, Any]], of: str) -> str:
    return f" {of} at {text.listed(text.context_name(row['context_tokens']) for row in rows)}"


def _R(row: dict[str, Any]) -> float:
    """R_GM of the inference; of all families where only these describe the context."""
    return float(row["R_GM_all"] if text.described_only(row) else row["R_GM"])
