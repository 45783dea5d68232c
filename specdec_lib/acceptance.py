"""Acceptance rules: which prefix of the proposals stands, and which token follows it. All on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor


class Decision(NamedTuple):
    """``accepted``, [] int64: how many proposals stand. ``tokens`` [k + 1]: those, then the target's next."""

    accepted: Tensor
    tokens: Tensor


class Acceptance(Protocol):
    """A rule maps proposals [k] and the target's aligned logits [k + 1, vocab] to a decision.

    Aligned means: row i of the logits is the target's prediction for proposal i; row k predicts the token after all k.
    """

    def __call__(self, proposals: Tensor, logits: Tensor) -> Decision: ...


def longest_prefix(passes: Tensor) -> Tensor:
    """Length of the leading run of true values in ``passes`` [k], as a device scalar (no host read)."""
    return passes.long().cumprod(0).sum()


@dataclass(frozen=True)
class Greedy:
    """Accept while the proposal equals the target's argmax: the output is the target's own greedy text."""

    def __call__(self, proposals: Tensor, logits: Tensor) -> Decision:
        choices = logits.argmax(-1)
        accepted = longest_prefix(proposals == choices[: proposals.shape[0]])
        return Decision(accepted, choices)  # accepted proposals equal the choices: these are the output
