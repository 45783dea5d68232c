"""What the engine asks of a proposer and an acceptance rule, and what it makes of their answers when they break it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .acceptance import Acceptance, Decision
from .errors import InvalidSetting, VocabularyMismatch, is_count
from .host import HostTraffic
from .model import DecoderModel
from .proposers import Proposer

FORMULATIONS = ("repair-free", "reference")


def check_speculation(
    target: DecoderModel,
    proposer: Proposer,
    acceptance: Acceptance | None,
    k: int,
    bonus: bool,
    formulation: str,
) -> None:
    """Refuse a k, a rule, a formulation or a draft that cannot work, before any work is done."""
    if not isinstance(proposer, Proposer):
        raise InvalidSetting(
            f"the proposer is a {type(proposer).__name__}",
            expected="a Proposer, such as DraftModel(pair.draft)",
            remedy="wrap a model as DraftModel(model); derive a proposer of your own from Proposer",
        )
    if acceptance is not None and not isinstance(acceptance, Acceptance):
        raise InvalidSetting(
            f"the acceptance rule is a {type(acceptance).__name__}",
            expected="an Acceptance, such as Greedy()",
            remedy="derive a rule of your own from Acceptance",
        )
    if not is_count(k):
        raise InvalidSetting(
            f"k = {k!r}",
            expected="an integer >= 1",
            remedy="choose a whole number; k = 0 is autoregressive()",
        )
    if not isinstance(bonus, bool):
        raise InvalidSetting(
            f"bonus = {bonus!r}", expected="True or False", remedy="write bonus=True or leave it out"
        )
    if formulation not in FORMULATIONS:
        raise InvalidSetting(
            f"formulation = {formulation!r}",
            expected=" or ".join(map(repr, FORMULATIONS)),
            remedy="write one of these, or leave it out",
        )
    if proposer.largest_id >= target.config.vocab:
        raise InvalidSetting(
            f"the proposer holds token id {proposer.largest_id}",
            expected=f"ids from 0 to {target.config.vocab - 1}",
            remedy="propose only tokens that the target has",
        )
    if proposer.vocab is not None and proposer.vocab != target.config.vocab:
        raise VocabularyMismatch(
            f"the draft has {proposer.vocab} tokens, the target {target.config.vocab}",
            expected="one tokenizer for both",
            remedy="use a draft of the target's family, loaded through load_pair",
        )


def on_device(
    proposals: Tensor | Iterable[int], limit: int, target: DecoderModel, host: HostTraffic
) -> Tensor:
    """Proposals as an int64 tensor on the target's device; ids given on the host are checked and copied over.

    What the ids of a tensor are is not asked on a GPU: that would be a host read.
    """
    if not isinstance(proposals, Tensor):
        ids = list(proposals) if isinstance(proposals, Iterable) else None
        if ids is None or not all(is_count(i, least=0) and i < target.config.vocab for i in ids):
            raise InvalidSetting(
                f"the proposer returned {proposals if ids is None else ids}",
                expected=f"ids from 0 to {target.config.vocab - 1}",
                remedy="propose only tokens that the target has",
            )
        proposals = host.copy(ids, target.device)
    elif (
        proposals.dtype != torch.int64 or proposals.dim() != 1 or proposals.device.type != target.device.type
    ):
        raise InvalidSetting(
            f"the proposer returned a tensor {list(proposals.shape)} of {proposals.dtype} on {proposals.device}",
            expected=f"[at most {limit}] of torch.int64 on {target.device}",
            remedy="return such a tensor, or a list of ids",
        )
    if proposals.shape[0] > limit:
        raise InvalidSetting(
            f"the proposer returned {proposals.shape[0]} tokens",
            expected=f"at most {limit}",
            remedy="respect propose(k)",
        )
    return proposals


def check_decision(decision: Decision, proposed: int, target: DecoderModel) -> None:
    """Refuse what is no ``Decision`` on ``proposed`` tokens. Its values are the device's: ``check_accepted``."""
    parts = list(decision) if isinstance(decision, tuple | list) else []
    if not (
        len(parts) == 2
        and all(isinstance(part, Tensor) and part.device.type == target.device.type for part in parts)
        and parts[0].dtype in (torch.int32, torch.int64)
        and parts[0].numel() == 1
        and parts[1].dtype == torch.int64
        and parts[1].shape == (proposed + 1,)
    ):
        shown = [
            f"{list(part.shape)} of {part.dtype} on {part.device}" if isinstance(part, Tensor) else repr(part)
            for part in parts
        ]
        raise InvalidSetting(
            f"the acceptance rule returned {', '.join(shown) or repr(decision)}",
            expected=f"Decision(accepted [], tokens [{proposed + 1}]), both torch.int64 on {target.device}",
            remedy="count on the device; pad tokens behind the target's own with anything",
        )


def check_accepted(accepted: int, proposed: int, tokens: list[int], vocab: int) -> None:
    """Refuse a decision, now that the host knows it, that no round can follow: once per round, on the host's ints."""
    if not 0 <= accepted <= proposed or not all(0 <= token < vocab for token in tokens):
        raise InvalidSetting(
            f"the acceptance rule accepted {accepted} of {proposed} proposals and commits {tokens}",
            expected=f"0 to {proposed} accepted, and ids from 0 to {vocab - 1}",
            remedy="mend the rule: accepted proposals first, then the target's next token",
        )
