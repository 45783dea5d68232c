"""The two ways to decode: one token per target call, or speculation. Each is one function.

Timing (both): the clock starts when the prefill's last logits are ready and stops when the last token is known on the
host. No forward runs after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

import torch

from .acceptance import Acceptance, Greedy
from .generation import Generation, Round
from .host import HostTraffic
from .model import DecoderModel
from .prefilled import Prefilled, check_alone, prefilled_for
from .proposers import Proposer
from .protocol import check_accepted, check_decision, check_speculation, on_device
from .request import check_prompt, check_request, check_room
from .timing import Stopwatch


@torch.inference_mode()
def autoregressive(
    target: DecoderModel,
    prompt: Sequence[int] | str,
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
    ids = check_prompt(target, prompt)
    stop = check_request(target, max_new_tokens, eos)
    if mode != "eager":
        return captured_engine().autoregressive(
            target, ids, max_new_tokens, stop, prefilled=prefilled, instrument=instrument, mode=mode
        )
    start = prefilled_for(target, ids, max_new_tokens, prefilled)
    cache, host, calls = start.cache, HostTraffic(), 0
    watch = Stopwatch(target.device, instrument)
    token = start.logits.argmax(-1)
    tokens, known = [token], host.read(token) if stop else []
    while len(tokens) < max_new_tokens and not (stop and known[-1] in stop):
        check_alone(cache, start.length + calls)
        token = target.forward(token, cache).argmax(-1)
        calls += 1
        tokens.append(token)
        watch.lap("verify")
        if stop:
            known += host.read(token)
    output = known if stop else host.read(torch.cat(tokens))
    watch.stop()
    check_alone(cache, start.length + calls)
    return Generation(
        tokens=output, seconds=watch.seconds, prefill_seconds=start.seconds, stage_seconds=watch.stages,
        host_reads=host.reads, host_copies=host.copies, host_bytes=host.bytes, target_calls=calls,
        device_seconds=watch.device_seconds,
    )  # fmt: skip


@torch.inference_mode()
def speculative(
    target: DecoderModel,
    proposer: Proposer,
    prompt: Sequence[int] | str,
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
    ids = check_prompt(target, prompt)
    stop = check_request(target, max_new_tokens, eos)
    check_speculation(target, proposer, acceptance, k, bonus, formulation)
    if mode != "eager":
        return captured_engine().speculative(
            target, proposer, ids, max_new_tokens, k, bonus, acceptance, formulation, stop, prefilled=prefilled,
            instrument=instrument, mode=mode,
        )  # fmt: skip
    check_room(target, len(ids), max_new_tokens)
    accept = Greedy() if acceptance is None else acceptance
    # Before the target's prefill: a draft may have fewer positions and refuse, and so may a rule.
    accept.begin(max_new_tokens, target)
    proposer.begin(list(ids), max_new_tokens)
    start = prefilled_for(target, ids, max_new_tokens, prefilled)
    cache, host, calls = start.cache, host or HostTraffic(), 0
    output: list[int] = []
    rounds: list[Round] = []

    watch = Stopwatch(target.device, instrument)
    # The target's prediction after its cache, [1, vocab]; valid while nothing is pending.
    saved = start.logits.clone()  # a rule may write into what it is given
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
        check_alone(cache, start.length + len(output) - pending.shape[0])
        logits = saved
        if block.shape[0]:
            logits = target.forward(block, cache)
            calls += 1
            if not pending.shape[0]:
                logits = torch.cat((saved, logits))
        watch.lap("verify")

        # 3. Accept, on the device, and tell the host once.
        decision = accept(proposals, logits, len(output))
        check_decision(decision, proposed, target)
        accepted_count, tokens = decision
        accepted, *known = host.read(torch.cat((accepted_count.view(1), tokens)))
        emitted = accepted + (accepted < proposed or bonus or not proposed)
        known = known[:emitted]
        check_accepted(accepted, proposed, known, target.config.vocab)
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
