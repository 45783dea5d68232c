"""The two ways to decode: one token per target call, or speculation. Each is one function.

Timing (both): the clock starts when the prefill's last logits are ready and stops when the last token is known on the
host. No forward runs after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .acceptance import Acceptance, Greedy
from .errors import InvalidPrompt, InvalidSetting, VocabularyMismatch, is_count
from .generation import Generation, Round
from .host import HostTraffic
from .model import DecoderModel, check_model
from .prefilled import Prefilled, check_room
from .proposers import Proposer
from .timing import Stopwatch

FORMULATIONS = ("repair-free", "reference")


@torch.inference_mode()
def autoregressive(
    target: DecoderModel,
    prompt: list[int] | str,
    max_new_tokens: int,
    eos: int | Iterable[int] | None = None,
    *,
    prefilled: Prefilled | None = None,
    instrument: bool = False,
    mode: str = "eager",
) -> Generation:
    """Greedy decoding, one target call per token: N tokens take N - 1 calls, the first comes from the prefill.

    ``prompt``: token ids, or text (needs ``target.tokenizer``). Without ``eos`` the tokens stay on the device until the
    end (one host read); with it every token is read. Raises ``InvalidPrompt``, ``InvalidSetting``, ``ContextTooLong``.

    ``mode``: "eager", or "graphs" and "compiled", which replay captured CUDA graphs (``captured``); never a fallback.
    """
    if mode != "eager":
        return captured_engine().autoregressive(
            target, prompt, max_new_tokens, eos, prefilled=prefilled, instrument=instrument, mode=mode
        )
    ids, stop = check_prompt(target, prompt), check_request(max_new_tokens, eos)
    start = prefilled or Prefilled.compute(target, ids, max_new_tokens)
    start.rewind(target, ids, max_new_tokens)
    cache, host, calls = start.cache, HostTraffic(), 0
    watch = Stopwatch(target.device, instrument)
    token = start.logits.argmax(-1)
    tokens, known = [token], host.read(token) if stop else []
    while len(tokens) < max_new_tokens and not (stop and known[-1] in stop):
        token = target.forward(token, cache).argmax(-1)
        calls += 1
        tokens.append(token)
        watch.lap("verify")
        if stop:
            known += host.read(token)
    output = known if stop else host.read(torch.cat(tokens))
    watch.stop()
    return Generation(
        tokens=output, seconds=watch.seconds, prefill_seconds=start.seconds, stage_seconds=watch.stages,
        host_reads=host.reads, host_copies=host.copies, host_bytes=host.bytes, target_calls=calls,
        device_seconds=watch.device_seconds,
    )  # fmt: skip


@torch.inference_mode()
def speculative(
    target: DecoderModel,
    proposer: Proposer,
    prompt: list[int] | str,
    max_new_tokens: int,
    k: int = 4,
    bonus: bool = True,
    acceptance: Acceptance | None = None,
    formulation: str = "repair-free",
    eos: int | Iterable[int] | None = None,
    *,
    prefilled: Prefilled | None = None,
    instrument: bool = False,
    host: HostTraffic | None = None,
    mode: str = "eager",
) -> Generation:
    """Speculative decoding (Leviathan et al. 2023; Chen et al. 2023), greedy by default, batch size 1.

    Each round: ``k`` proposals, one target call over the block, the longest accepted prefix plus the target's own
    next token is committed, both caches are brought to the committed text. With ``bonus`` a fully accepted round
    also commits the target's token after the last proposal. The two formulations differ in how the next round finds
    its footing:

    - "reference": after a rejection the replacement runs through both models alone (the repair). Between rounds the
      caches hold all committed tokens, only a bonus token waits for the next block.
    - "repair-free": the last committed token is the first row of the next block, so a rejection costs no call. Between
      rounds the caches hold all committed tokens but one.

    One host read per round. ``host``: a counter to share with a proposer or a rule that talks to the host itself.
    ``mode``: as in ``autoregressive``; the captured modes are repair-free with bonus.
    Raises ``InvalidPrompt``, ``InvalidSetting``, ``ContextTooLong``, ``VocabularyMismatch``.
    """
    ids, stop = check_prompt(target, prompt), check_request(max_new_tokens, eos)
    check_speculation(target, proposer, acceptance, k, bonus, formulation)
    if mode != "eager":
        return captured_engine().speculative(
            target, proposer, ids, max_new_tokens, k, bonus, acceptance, formulation, eos, prefilled=prefilled,
            instrument=instrument, mode=mode,
        )  # fmt: skip
    check_room(target, len(ids), max_new_tokens)
    accept = Greedy() if acceptance is None else acceptance
    # Before the target's prefill: a draft may have fewer positions and refuse, and so may a rule.
    accept.begin(max_new_tokens, target)
    proposer.begin(ids, max_new_tokens)
    start = prefilled or Prefilled.compute(target, ids, max_new_tokens)
    start.rewind(target, ids, max_new_tokens)
    cache, host, calls = start.cache, host or HostTraffic(), 0
    output: list[int] = []
    rounds: list[Round] = []

    watch = Stopwatch(target.device, instrument)
    # The target's prediction after its cache, [1, vocab]; valid while nothing is pending.
    saved = start.logits
    pending = saved.argmax(-1)[:0]  # committed tokens (none or one) that the target has not run yet
    while True:
        # 1. Propose. The last round shrinks to the room that is left; with a bonus one place is the target's.
        room = max_new_tokens - len(output)
        limit = min(k, room - bonus)
        proposals = on_device(proposer.propose(limit) if limit else pending[:0], limit, target, host)
        proposed = proposals.shape[0]
        watch.lap("draft")

        # 2. Verify in one block. Row j of its logits predicts the token *after* block[j], so with nothing pending the
        #    first proposal is checked against the saved logits, and with a pending token against that token's row.
        block = torch.cat((pending, proposals))
        logits = saved
        if block.shape[0]:
            logits = target.forward(block, cache)
            calls += 1
            if not pending.shape[0]:
                logits = torch.cat((saved, logits))
        watch.lap("verify")

        # 3. Accept, on the device, and tell the host once.
        accepted_count, tokens = accept(proposals, logits, len(output))
        accepted, *known = host.read(torch.cat((accepted_count.view(1), tokens)))
        emitted = accepted + (accepted < proposed or bonus or not proposed)
        known = known[:emitted]
        kept = cut_at(known, stop)
        # An EOS among the accepted: what follows it was never there.
        inside = known[kept - 1] in stop and kept <= accepted
        rounds.append(Round(kept, kept, kept, cut=int(bonus)) if inside else Round(proposed, accepted, kept))
        output += known[:kept]
        watch.lap("accept")
        if len(output) >= max_new_tokens or (stop and output[-1] in stop):
            break

        # 4. Roll both caches back to what was committed, and set up the next round.
        tokens = tokens[:emitted]
        proposer.commit(accepted, tokens, known)
        if formulation == "repair-free":
            cache.trim(proposed - emitted + 1)
            pending = tokens[-1:]
        else:
            cache.trim(proposed - accepted)
            pending = tokens[:0]
            if accepted < proposed:
                saved = target.forward(tokens[-1:], cache)
                calls += 1
            elif emitted > accepted:  # a bonus, or the token of a round without proposals
                pending = tokens[-1:]
            else:
                saved = logits[-1:]
            proposer.catch_up(leave=pending.shape[0])
        watch.lap("repair")
    watch.stop()
    return Generation(
        tokens=output, seconds=watch.seconds, prefill_seconds=start.seconds,
        draft_prefill_seconds=proposer.prefill_seconds, rounds=rounds, stage_seconds=watch.stages,
        host_reads=host.reads, host_copies=host.copies, host_bytes=host.bytes, target_calls=calls,
        draft_calls=proposer.calls, device_seconds=watch.device_seconds,
    )  # fmt: skip


def captured_engine() -> ModuleType:
    """The modes that replay captured graphs; imported when asked for, since eager decoding needs none of it."""
    from . import captured

    return captured


def cut_at(tokens: list[int], stop: frozenset[int]) -> int:
    """How many of ``tokens`` stand: all up to and including the first stop token."""
    return next((i + 1 for i, token in enumerate(tokens) if token in stop), len(tokens))


def on_device(
    proposals: Tensor | Iterable[int], limit: int, target: DecoderModel, host: HostTraffic
) -> Tensor:
    """Proposals as an int64 tensor on the target's device; ids given on the host are checked and copied over.

    What the ids of a tensor are is not asked on a GPU: that would be a host read.
    """
    if not isinstance(proposals, Tensor):
        ids = list(proposals)
        if not all(is_count(i, least=0) and i < target.config.vocab for i in ids):
            raise InvalidSetting(
                f"the proposer returned {ids}",
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


def check_prompt(target: DecoderModel, prompt: list[int] | str) -> list[int]:
    """Token ids of a prompt, or ``InvalidPrompt``; ``InvalidSetting`` for a target that is no model."""
    check_model(target, "target")
    if isinstance(prompt, str):
        if target.tokenizer is None:
            raise InvalidPrompt(
                "a text prompt, but the model has no tokenizer",
                expected="token ids, or a model from load_pair",
                remedy="encode the text yourself, or set target.tokenizer",
            )
        prompt = target.tokenizer.encode(prompt)
    ids: list[Any] = list(prompt) if isinstance(prompt, Iterable) else [prompt]
    vocab = target.config.vocab
    wrong = [i for i in ids if not is_count(i, least=0) or i >= vocab]
    if not ids or wrong:
        raise InvalidPrompt(
            "the prompt is empty" if not ids else f"token id {wrong[0]!r} in the prompt",
            expected=f"one or more integers from 0 to {vocab - 1}",
            remedy="encode the text with this model's own tokenizer",
        )
    return ids


def check_request(max_new_tokens: int, eos: int | Iterable[int] | None) -> frozenset[int]:
    """The set of stop tokens; ``InvalidSetting`` for a token count below 1 or a stop token that is no id."""
    if not is_count(max_new_tokens):
        raise InvalidSetting(
            f"max_new_tokens = {max_new_tokens!r}", expected="an integer >= 1", remedy="ask for a token"
        )
    stop = () if eos is None else tuple(eos) if isinstance(eos, Iterable) else (eos,)
    if not all(is_count(token, least=0) for token in stop):
        raise InvalidSetting(
            f"eos = {eos!r}", expected="a token id, or several", remedy="use tokenizer.eos_ids"
        )
    return frozenset(stop)


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
