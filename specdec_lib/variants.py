"""The variants that the mechanism phases compare, each changing one factor. A new phase is one entry of ``PHASES``."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .errors import InvalidSetting

# What a reader must know before quoting a number. "real": the study's own text and acceptance. "not exact": the output
# may leave the target's. "oracle": something is given that no real system knows. "synthetic": acceptance is imposed.
Label = Literal["real", "not exact", "oracle", "synthetic"]
# The decoder's operations in the order of the forward; a projection's input is the output of the one before it.
OPERATIONS = (
    "norm",
    "qkv",
    "rope",
    "attention",
    "o",
    "mlp norm",
    "gate/up",
    "activation",
    "down",
    "final norm",
    "head",
)
LABELS: tuple[Label, ...] = ("real", "not exact", "oracle", "synthetic")


@dataclass(frozen=True)
class Variant:
    """One way to decode. ``setting`` is delta for the rule "relaxed", alpha for the trace "iid".

    ``proposer``: "none" is AR, "draft" the real draft, "naive" the same through the host, "forced" pays for the draft
    but proposes by the trace, "free" proposes the target's own text. ``k`` None is the design's.
    """

    name: str
    label: Label = "real"
    proposer: Literal["none", "draft", "naive", "forced", "free"] = "draft"
    rule: Literal["greedy", "naive", "relaxed", "all", "imposed"] = "greedy"
    trace: Literal["none", "recorded", "all", "iid"] = "none"
    k: int | None = None
    bonus: bool = False
    formulation: str = "reference"
    setting: float | None = None


AR = Variant("ar", proposer="none")
DELTAS = (0.0, 0.5, 1.0, 2.0, 4.0)
ALPHAS = (0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0)
KS = (1, 2, 4, 6, 8)


def _engine(name: str, formulation: str, bonus: bool, k: int | None = None) -> Variant:
    return Variant(name, formulation=formulation, bonus=bonus, k=k)


def _all_accept(name: str, bonus: bool, formulation: str = "reference") -> Variant:
    return Variant(name, "synthetic", "forced", "imposed", "all", bonus=bonus, formulation=formulation)


def _free(name: str, bonus: bool, formulation: str = "reference") -> Variant:
    # Imposed, not greedy: in BF16 a block may flip a near-tie, and after that no recorded candidate would ever fit.
    return Variant(name, "oracle", "free", "imposed", "all", bonus=bonus, formulation=formulation)


def _dial(name: str, trace: Literal["recorded", "iid"], alpha: float | None) -> Variant:
    return Variant(
        name, "synthetic", "forced", "imposed", trace, bonus=True, formulation="repair-free", setting=alpha
    )


# AR is the first variant of every phase.
PHASES: dict[str, tuple[Variant, ...]] = {
    "control-plane": (Variant("device"), Variant("naive", proposer="naive", rule="naive")),
    "relaxed": tuple(
        Variant(f"delta {delta:g}", "not exact" if delta else "real", rule="relaxed", setting=delta)
        for delta in DELTAS
    ),
    "all-accept": (
        _all_accept("all accepted", False),
        _all_accept("all accepted, bonus", True),
        Variant("draft's text", "oracle", rule="all"),
    ),
    "draft-free": (_free("draft-free", False), _free("draft-free, bonus", True)),
    "dial": (
        *(_dial(f"alpha {alpha:g}", "iid", alpha) for alpha in ALPHAS),
        _dial("recorded trace", "recorded", None),
        _engine("real draft", "repair-free", True),
    ),
    "formulations": (
        _engine("reference", "reference", False),
        _engine("reference, bonus", "reference", True),
        _engine("repair-free", "repair-free", False),
        _engine("repair-free, bonus", "repair-free", True),
    ),
    "cost-model": (
        _engine("reference", "reference", False),
        _engine("reference, bonus", "reference", True),
        *(_engine(f"repair-free, bonus, k = {k}", "repair-free", True, k) for k in KS),
        _all_accept("all accepted, bonus", True, "repair-free"),
        _free("draft-free, bonus", True, "repair-free"),
    ),
}


def resolved(phase: str, k: int, new_tokens: int) -> tuple[Variant, ...]:
    """AR and the phase's variants with the design's k filled in.

    Raises ``InvalidSetting`` for an unknown phase, a k beyond the run, a negative delta, an alpha that is none.
    """
    if phase not in PHASES:
        raise InvalidSetting(f"No mechanism phase {phase!r}.", expected="one of " + ", ".join(PHASES))
    found = (AR, *(dataclasses.replace(v, k=v.k or k) for v in PHASES[phase]))
    check_variants(found, new_tokens)
    return found


def check_variants(variants: Iterable[Variant], new_tokens: int) -> None:
    """Refuse settings that no run can have, before anything is measured."""
    for v in variants:
        if v.k is not None and not 1 <= v.k <= new_tokens - v.bonus:
            raise InvalidSetting(
                f"{v.name}: k = {v.k} with {new_tokens} new tokens.",
                expected=f"1 to {new_tokens - v.bonus}: what is left of the run{' beside the bonus' * v.bonus}",
                remedy="choose a smaller k, or generate more tokens",
            )
        if v.rule == "relaxed" and not (v.setting is not None and v.setting >= 0):
            raise InvalidSetting(f"{v.name}: delta = {v.setting}.", expected="a logit gap >= 0")
        if v.trace == "iid" and not (v.setting is not None and 0 <= v.setting <= 1):
            raise InvalidSetting(f"{v.name}: alpha = {v.setting}.", expected="a probability from 0 to 1")


def passes_of(variant: Variant, recorded: Sequence[bool], family: str, context: int) -> list[bool]:
    """The bits that a variant imposes or, for the real draft, those that were recorded.

    The i.i.d. bits of a cell come from one row of uniforms, the same for every alpha, so that they nest: raising
    alpha only adds passes.
    """
    if variant.trace == "iid":
        assert variant.setting is not None
        seed = int(hashlib.sha256(f"{family} {context}".encode()).hexdigest()[:12], 16)
        return [bool(u < variant.setting) for u in np.random.default_rng(seed).random(len(recorded))]
    if variant.trace == "all" or variant.proposer == "free":
        return [True] * len(recorded)
    return list(recorded)
