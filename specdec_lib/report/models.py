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
    random = [one for one in shown if one.synthetic]
    if not random:
        return ""
    pairs = text.listed(dict.fromkeys(named(one) for one in random))
    imposed = all(one.scripted for one in random)
    which = (
        "which proposals pass is scripted (imposed)"
        if imposed
        else "which proposals pass is not a model's choice"
    )
    return (
        f"*(synthetic)* after the name of a folder: {pairs}; {which}. So its times are valid, and its acceptance is an "
        "assumption, not a finding."
    )
