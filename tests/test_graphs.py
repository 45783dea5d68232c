"""The graph engine's logic on CPU tensors: the same rounds as the eager engine, with functions in place of graphs."""

from __future__ import annotations

import dataclasses
from threading import Thread
from typing import Any

import pytest
import torch

from specdec_lib.acceptance import Imposed, iid_passes
from specdec_lib.capture import Direct
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.device_state import DecodeState
from specdec_lib.errors import ContextTooLong, InvalidPrompt, InvalidSetting, NoCudaDevice, RunInProgress
from specdec_lib.graphs import GraphEngine
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft
from tests.engine_tools import PROMPT, identities, make_draft

NEW = 33


def engine(pair: Pair, draft: Any, k: int, capacity: int = len(PROMPT) + NEW) -> GraphEngine:
    return GraphEngine(pair.target, draft, k, "graphs", capacity, Direct)


@pytest.mark.parametrize("which", ["own", "target", "unrelated"])
@pytest.mark.parametrize("k", range(1, 9))
def test_rounds_equal_the_eager_engine(which: str, k: int, tiny_pair: Pair) -> None:
    """Tokens and rounds, with no room behind the last token: the last slots of the cache."""
    draft = make_draft(tiny_pair, which)
    wanted = speculative(tiny_pair.target, DraftModel(draft), PROMPT, NEW, k)
    found = engine(tiny_pair, draft, k).speculative(PROMPT, NEW)
    assert found.tokens == wanted.tokens and found.rounds == wanted.rounds
    assert found.target_calls == found.replays == len(found.rounds) and found.surplus == 0
    assert found.draft_calls == k * len(found.rounds)
    assert found.host_reads <= len(found.rounds) and found.host_copies == 0
    # The engine reads less than once per round; the other identities are the eager engine's.
    identities(dataclasses.replace(found, host_reads=len(found.rounds)), bonus=True)


def test_plain_decoding_reads_once(tiny_pair: Pair) -> None:
    found = engine(tiny_pair, None, 0).autoregressive(PROMPT, NEW)
    assert found.tokens == autoregressive(tiny_pair.target, PROMPT, NEW).tokens
    assert found.replays == found.target_calls == NEW - 1 and found.host_reads == 1


@pytest.mark.parametrize("k", [1, 3, 4, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.77, 1.0])
def test_an_imposed_trace_gives_the_eager_engines_rounds(k: int, alpha: float, tiny_pair: Pair) -> None:
    uniforms = torch.rand(NEW, generator=torch.Generator().manual_seed(k)).tolist()
    passes = iid_passes(alpha, uniforms)
    tokens = autoregressive(tiny_pair.target, PROMPT, NEW).tokens
    wanted = speculative(
        tiny_pair.target, ForcedDraft(tiny_pair.draft, tokens, passes), PROMPT, NEW, k,
        acceptance=Imposed(tokens, passes),
    )  # fmt: skip
    running = engine(tiny_pair, tiny_pair.draft, k)
    found = running.speculative(PROMPT, NEW, script=tokens, passes=passes)
    assert found.tokens == wanted.tokens == tokens and found.rounds == wanted.rounds
    # The target's own judgement of what was proposed: here it agrees with the trace, round by round.
    assert [min(n, r.proposed) for n, r in zip(found.natural, found.rounds, strict=True)] == [
        r.accepted for r in found.rounds
    ]
    # The same engine, without the trace: the draft's own proposals again.
    free = running.speculative(PROMPT, NEW)
    assert free.rounds == speculative(tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, k).rounds


@pytest.mark.parametrize("k", [1, 4, 8])
def test_draft_free(k: int, tiny_pair: Pair) -> None:
    tokens = autoregressive(tiny_pair.target, PROMPT, NEW).tokens
    wanted = speculative(tiny_pair.target, DraftFree(tokens), PROMPT, NEW, k)
    found = engine(tiny_pair, None, k).speculative(PROMPT, NEW, script=tokens)
    assert found.tokens == tokens and found.rounds == wanted.rounds and found.draft_calls == 0


def test_surplus_replays_change_nothing(tiny_pair: Pair) -> None:
    running = engine(tiny_pair, tiny_pair.draft, 4)
    done = running.speculative(PROMPT, NEW)
    state = running.state
    before = [t.clone() for t in (state.text, state.committed, state.rounds, state.tail, state.block[:1])]
    for _ in range(3):
        assert running.round
        running.round.replay()
        running.step.replay()
    after = (state.text, state.committed, state.rounds, state.tail, state.block[:1])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert running.speculative(PROMPT, NEW).tokens == done.tokens


def test_one_engine_serves_every_context(tiny_pair: Pair) -> None:
    """Contexts in any order, given and computed prefills; what an earlier run left in the caches does not show."""
    running = engine(tiny_pair, tiny_pair.draft, 3, capacity=128)
    for prompt in (PROMPT * 4, PROMPT, PROMPT[::-1] * 3, PROMPT):
        wanted = autoregressive(tiny_pair.target, prompt, NEW).tokens
        start = Prefilled.compute(tiny_pair.target, prompt, NEW)
        for _ in range(2):
            assert running.speculative(prompt, NEW, prefilled=start).tokens == wanted
            assert running.autoregressive(prompt, NEW, prefilled=start).tokens == wanted


@pytest.mark.parametrize("accepted", range(5))
def test_commit_round_by_hand(accepted: int) -> None:
    """k = 4 with room for all, for three tokens, and for one."""
    for room, emitted in ((9, accepted + 1), (3, min(accepted, 2) + 1), (1, 1), (0, 0)):
        state = DecodeState(16, 4, 100, torch.device("cpu"))
        state.begin([7, 8], room)
        choices = torch.tensor([11, 12, 13, 14, 15])
        state.first[0] = 11
        state.block[1:] = choices[:4]
        if accepted < 4:
            state.block[accepted + 1] = 99
        state.commit_round(choices)
        assert state.committed.tolist() == [2 + emitted] and state.rounds.tolist() == [int(room > 0)]
        assert state.text.tolist()[: 2 + emitted + 1] == [7, 8, *choices.tolist()[:emitted], 0]
        assert state.tail.tolist() == [7, 8, *choices.tolist()][emitted : emitted + 2]
        assert state.log[0].tolist() == [max(min(4, room - 1), 0), max(emitted - 1, 0), emitted, accepted]


def test_bad_requests_are_named(tiny_pair: Pair) -> None:
    target, draft = tiny_pair.target, tiny_pair.draft
    with pytest.raises(NoCudaDevice, match="eager"):
        GraphEngine(target, draft)
    for settings in (dict(mode="eager"), dict(k=16), dict(k=-1), dict(k=True), dict(capacity=0)):
        with pytest.raises(InvalidSetting):
            GraphEngine(target, draft, **{"mode": "graphs", "capture": Direct, **settings})  # type: ignore
    with pytest.raises(ContextTooLong):
        GraphEngine(target, draft, mode="graphs", capacity=5000, capture=Direct)
    running = engine(tiny_pair, draft, 2)
    with pytest.raises(ContextTooLong, match="captured"):
        running.autoregressive(PROMPT, NEW + 1)
    with pytest.raises(InvalidPrompt, match="two"):
        running.speculative([5], 3)
    for wrong in (dict(script=[1] * NEW), dict(passes=[True] * NEW), dict(script=[1], passes=[True])):
        with pytest.raises(InvalidSetting):
            running.speculative(PROMPT, NEW, **wrong)  # type: ignore
    with pytest.raises(InvalidSetting):
        engine(tiny_pair, None, 2).speculative(PROMPT, NEW)


def test_a_second_run_beside_the_first_is_refused(tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine(tiny_pair, tiny_pair.draft, 4)
    begin, refused = one.state.begin, []

    def meanwhile(*given: Any) -> None:
        def other() -> None:
            with pytest.raises(RunInProgress, match="decodes in another thread"):
                one.autoregressive(PROMPT, NEW)
            refused.append(True)

        patched.undo()  # the other run, if it is let in, begins as usual
        thread = Thread(target=other)
        thread.start()
        thread.join()
        begin(*given)

    with monkeypatch.context() as patched:
        patched.setattr(one.state, "begin", meanwhile)
        done = one.speculative(PROMPT, NEW)
    assert refused
    assert done.tokens == autoregressive(tiny_pair.target, PROMPT, NEW).tokens, "the first is not touched"
    with pytest.raises(InvalidSetting):
        one.speculative(PROMPT, 0)
    assert one.autoregressive(PROMPT, NEW).tokens == done.tokens, "free again, also after an error"
