"""Which models a folder's numbers are of, in words, and what it means where they are random."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_lib.pairs import ALIASES, PAIRS
from specdec_lib.report import folders, text


def named(one: folders.Results) -> str:
    """The pair as a reader knows it; that it is synthetic stands in the folder's label already."""
    name = ALIASES.get(one.profile.pair, one.profile.pair)
    return PAIRS[name].title.removesuffix(" (synthetic)") if name in PAIRS else name


def setting(one: folders.Results) -> str:
    """Hardware and pair, for captions and lists: R is of both."""
    return f"{one.hardware}, {named(one)}"


def synthetic_told(shown: Iterable[folders.Results]) -> str:
    """What "(synthetic)" after a folder's name means, once per page; "" where no such folder is shown."""
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for one in shown:
        if one.synthetic:
            kinds[one.scripted].append(named(one))
    words = {
        True: "which proposals pass is scripted (imposed), so the acceptance is an assumption, not a finding",
        False: "the random models decide which proposals pass, so the acceptance means nothing",
    }
    each = [f"{text.listed(dict.fromkeys(pairs))}: {words[kind]}." for kind, pairs in kinds.items() if pairs]
    if not each:
        return ""
    start = "*(synthetic)* after the name of a folder: the models' weights are random, and the times valid all the same"
    return " ".join([f"{start}.", *each])
