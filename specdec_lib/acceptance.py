"""Acceptance rules: which prefix of the proposals stands, and which token follows it. All on the device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .errors import InvalidSetting, is_count
from .model import DecoderModel


class Decision(NamedTuple):
    """``accepted``, [] int64: how many proposals stand. ``tokens`` [k + 1]: those, then the target's next."""

    accepted: Tensor
    tokens: Tensor


class Acceptance:
    """Base of all rules. Only ``__call__`` must be written; it may not read the device."""

    def begin(self, max_new_tokens: int, target: DecoderModel) -> None:
        """Get ready for a run; refuse here what could fail later. Not part of the timed region."""

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        """Decide on ``proposals`` [k] by the target's aligned ``logits`` [k + 1, vocab].

        Aligned: row i of the logits is the target's prediction for proposal i; row k predicts the token after all k.
        ``position`` counts the tokens emitted before this round.
        """
        raise NotImplementedError(f"{type(self).__name__} must define __call__(proposals, logits, position)")


def longest_prefix(passes: Tensor) -> Tensor:
    """Length of the leading run of true values in ``passes`` [k], as a device scalar (no host read)."""
    return passes.long().cumprod(0).sum()


class Greedy(Acceptance):
    """Accept while the proposal equals the target's argmax: the output is the target's own greedy text."""

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        choices = logits.argmax(-1)
        accepted = longest_prefix(proposals == choices[: proposals.shape[0]])
        return Decision(accepted, choices)  # accepted proposals equal the choices: these are the output


class Relaxed(Acceptance):
    """Accept while the target's top logit exceeds the proposal's by at most ``delta``.

    Not exact: the output may leave the target's greedy text. ``delta`` = 0 is greedy (but a tie for the top passes),
    ``math.inf`` accepts everything: the all-accept oracle that commits the draft's text.
    """

    def __init__(self, delta: float) -> None:
        if not isinstance(delta, int | float) or isinstance(delta, bool) or not delta >= 0:
            raise InvalidSetting(
                f"delta = {delta!r}",
                expected="a logit gap >= 0",
                remedy="0 accepts the target's own choice only",
            )
        self.delta = float(delta)

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        k = proposals.shape[0]
        top, choices = logits.max(-1)
        gap = top[:k] - logits[:k].gather(1, proposals.unsqueeze(1)).squeeze(1)
        accepted = longest_prefix(gap <= self.delta)
        kept = torch.arange(k + 1, device=logits.device) < accepted
        return Decision(accepted, torch.where(kept, torch.cat((proposals, choices[k:])), choices))


class Imposed(Acceptance):
    """Accept by a trace, whatever the target says, and commit given tokens. Synthetic: label its numbers.

    ``passes[i]``: whether a proposal for output position i stands. ``tokens``: the text to commit, the target's own
    recorded one. With a proposer that proposes ``tokens`` where ``passes`` holds (``ForcedDraft``), both caches hold
    exactly the committed text, so that every forward is the one a real run would make.
    """

    def __init__(self, tokens: Sequence[int], passes: Sequence[bool]) -> None:
        self.tokens, self.passes = listed(tokens, "the script"), listed(passes, "the trace")

    def begin(self, max_new_tokens: int, target: DecoderModel) -> None:
        check_trace(self.tokens, self.passes, max_new_tokens, target.config.vocab)
        self.script = torch.tensor(self.tokens, device=target.device)
        self.bits = torch.tensor(self.passes, device=target.device)

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        k = proposals.shape[0]
        own = logits.argmax(-1)  # paid for, as in a real run; the trace decides
        given = self.script[position : position + k + 1]  # one short where the script ends with the run
        return Decision(
            longest_prefix(self.bits[position : position + k]), torch.cat((given, own[given.shape[0] :]))
        )


class Recorded(Acceptance):
    """Another rule, with a note for every proposal: the target's rank, probability and logit gap of it.

    For diagnosis, not for timing. ``rows()`` gives one dict per proposal after the run.
    """

    def __init__(self, rule: Acceptance) -> None:
        if not isinstance(rule, Acceptance):
            raise InvalidSetting(
                f"the rule to record is a {type(rule).__name__}",
                expected="an Acceptance, such as Greedy()",
                remedy="derive a rule of your own from Acceptance",
            )
        self.rule = rule
        self.seen: list[tuple[int, Decision, Tensor, Tensor]] = []

    def begin(self, max_new_tokens: int, target: DecoderModel) -> None:
        self.rule.begin(max_new_tokens, target)
        self.seen = []

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        decision = self.rule(proposals, logits, position)
        rows = logits[: proposals.shape[0]].float()
        own = rows.gather(1, proposals.unsqueeze(1))
        rank = (rows > own).sum(-1) + 1  # a tie for the top is rank 1
        gap = rows.max(-1).values - own.squeeze(1)
        chance = (own - rows.logsumexp(-1, keepdim=True)).exp().squeeze(1)
        self.seen.append((position, decision, torch.stack((rank.double(), chance, gap)), proposals))
        return decision

    def rows(self) -> list[dict[str, float | int | bool]]:
        """``round``, ``block_position`` (1..k), ``position`` (output), ``token``, ``rank`` (1 = top), ``probability``,
        ``gap`` (top logit minus the proposal's), ``accepted``, and ``reached``: all before it in its round stood."""
        found: list[dict[str, float | int | bool]] = []
        for number, (position, (count, _), values, proposals) in enumerate(self.seen):
            accepted = int(count)
            ranks, chances, gaps = values.tolist()
            for i, token in enumerate(proposals.tolist()):
                found.append(
                    {
                        "round": number, "block_position": i + 1, "position": position + i, "token": token,
                        "rank": int(ranks[i]), "probability": chances[i], "gap": gaps[i],
                        "accepted": i < accepted, "reached": i <= accepted,
                    }
                )  # fmt: skip
        return found


def listed(values: Any, what: str) -> list[Any]:
    """``values`` as a list; ``InvalidSetting`` for what is none, such as None or a single id."""
    with contextlib.suppress(TypeError):  # a tensor without dimensions says that it can be iterated over
        if isinstance(values, Iterable) and not isinstance(values, str | bytes):
            return list(values)
    raise InvalidSetting(
        f"{what} is a {type(values).__name__}",
        expected="a list with one entry per output position",
        remedy="give a list, such as autoregressive(...).tokens",
    )


def check_trace(tokens: Sequence[int], passes: Sequence[bool], needed: int, vocab: int) -> None:
    """Refuse a script or a trace that is shorter than the run, or holds what is no token id."""
    if min(len(tokens), len(passes)) < needed:
        raise InvalidSetting(
            f"a trace of {len(passes)} bits over {len(tokens)} tokens for a run of {needed}",
            expected=f"at least {needed} of both",
            remedy="record the trace over as many tokens as the run emits",
        )
    if not all(isinstance(bit, bool) for bit in passes):
        raise InvalidSetting(
            "a trace holds what is no bool",
            expected="True or False per position: whether its proposal stands",
            remedy="use plain bools, such as passes.tolist() of an array's",
        )
    if not all(is_count(token, least=0) and token < vocab for token in tokens):
        raise InvalidSetting(
            "a scripted token is no id of the target",
            expected=f"0 to {vocab - 1}",
            remedy="record it with this pair",
        )


def iid_passes(alpha: float, uniforms: Sequence[float]) -> list[bool]:
    """A synthetic trace: position i passes if ``uniforms[i]`` < ``alpha``. The same uniforms nest over alpha."""
    if not isinstance(alpha, int | float) or math.isnan(alpha) or not 0 <= alpha <= 1:
        raise InvalidSetting(f"alpha = {alpha!r}", expected="a probability from 0 to 1", remedy="choose one")
    return [uniform < alpha for uniform in uniforms]
