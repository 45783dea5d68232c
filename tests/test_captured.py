"""``mode=`` at the front door, without a GPU: which engine a call means, what is refused, when graphs are reused."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from specdec_lib import autoregressive, captured, errors, speculative
from specdec_lib.acceptance import Greedy, Imposed, Recorded, Relaxed, iid_passes
from specdec_lib.capture import Direct
from specdec_lib.graphs import GraphEngine, GraphGeneration
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft, Proposer, Scripted
from specdec_lib.weights import RandomWeights, random_weights
from tests.engine_tools import PROMPT, identities

NEW = 33
BITS = iid_passes(0.7, torch.rand(NEW, generator=torch.Generator().manual_seed(3)).tolist())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tiny_pair: Pair) -> Iterator[list[GraphEngine]]:
    """Engines that the front door makes, with functions in place of graphs; the target is left without any."""
    engines: list[GraphEngine] = []

    def make(*given: Any) -> GraphEngine:
        engines.append(GraphEngine(*given, capture=Direct))
        return engines[-1]

    captured.release(tiny_pair.target)
    monkeypatch.setattr(captured, "GraphEngine", make)
    yield engines
    captured.release(tiny_pair.target)


def refused(error: type[errors.SpecDecError], mention: str, call: Any) -> None:
    with pytest.raises(error) as raised:
        call()
    assert mention in str(raised.value)
    assert raised.value.expected and "eager" in raised.value.remedy, "says which mode works"


@pytest.mark.parametrize("k", [1, 4, 7])
@pytest.mark.parametrize("case", ["draft", "forced", "free", "free imposed", "scripted", "scripted imposed"])
def test_a_mode_gives_the_eager_rounds(case: str, k: int, tiny_pair: Pair, made: list[GraphEngine]) -> None:
    target, draft = tiny_pair.target, tiny_pair.draft
    text = autoregressive(target, PROMPT, NEW).tokens

    def run(mode: str) -> Any:
        proposer: Proposer = {
            "draft": lambda: DraftModel(draft),
            "forced": lambda: ForcedDraft(draft, text, BITS),
            "free": lambda: DraftFree(text),
            "scripted": lambda: Scripted(text),
        }[case.split()[0]]()
        rule = Imposed(text, BITS) if case == "forced" or "imposed" in case else None
        return speculative(target, proposer, PROMPT, NEW, k, acceptance=rule, mode=mode)

    found, wanted = run("graphs"), run("eager")
    assert found.tokens == wanted.tokens == text and found.rounds == wanted.rounds
    assert (found.mode, wanted.mode) == ("graphs", "eager") and isinstance(found, GraphGeneration)
    assert found.draft_calls == (k * len(found.rounds) if case in ("draft", "forced") else 0)
    assert len(made) == 1
    assert made[0].draft is (draft if case in ("draft", "forced") else None) and made[0].k == k


def test_both_arms_share_one_engine_and_prompts_of_any_length(
    tiny_pair: Pair, made: list[GraphEngine]
) -> None:
    """The plain step's own engine goes when one that speculates comes; after that nothing is captured again."""
    target, draft = tiny_pair.target, tiny_pair.draft
    for prompt in (PROMPT, PROMPT * 4, PROMPT[::-1], PROMPT * 100):
        plain = autoregressive(target, prompt, NEW).tokens
        start = Prefilled.compute(target, prompt, NEW)
        draft_start = Prefilled.compute(draft, prompt, NEW)
        for _ in range(2):
            ar = autoregressive(target, prompt, NEW, prefilled=start, mode="graphs")
            done = speculative(
                target, DraftModel(draft, draft_start), prompt, NEW, prefilled=start, mode="graphs"
            )
            assert ar.tokens == done.tokens == plain and ar.mode == done.mode == "graphs"
            assert done.draft_prefill_seconds == draft_start.seconds
    assert [(e.k, e.draft is draft) for e in made] == [(0, False), (4, True)]
    assert vars(target)["captured_engines"] == made[1:] and made[1].capacity == 2048


def test_capacities(tiny_pair: Pair, made: list[GraphEngine]) -> None:
    """Rounded up, at most the positions. In mode "graphs" one engine each: none serves what needs less room."""
    target = tiny_pair.target
    for need, mode, capacity, count in (
        (2049, "graphs", 4096, 1), (100, "graphs", 2048, 2), (2048, "graphs", 2048, 2), (4096, "graphs", 4096, 2),
    ):  # fmt: skip
        engine = captured.engine_for(target, None, 2, mode, need)
        assert engine.capacity == capacity and len(made) == count
    config = dataclasses.replace(target.config, max_positions=100)
    few = DecoderModel(config, random_weights(config, RandomWeights(0), torch.device("cpu")), name="few")
    assert captured.engine_for(few, None, 2, "graphs", 50).capacity == 100
    assert captured.engine_for(target, few, 2, "graphs", 50).capacity == 100
    with pytest.raises(errors.ContextTooLong, match="few"):
        speculative(target, DraftModel(few), PROMPT * 9, NEW, mode="graphs")


def test_compiled_grows_and_serves_what_is_shorter(
    tiny_pair: Pair, made: list[GraphEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels need no capacity of their own: one engine, captured again only for more room. (Its plain twin
    stands in for it here.)"""
    target, draft = tiny_pair.target, tiny_pair.draft

    def make(target: Any, draft: Any, k: int, mode: str, capacity: int) -> GraphEngine:
        engine = GraphEngine(target, draft, k, "graphs", capacity, Direct)
        engine.mode = mode
        made.append(engine)
        return engine

    monkeypatch.setattr(captured, "GraphEngine", make)
    for need, k, capacity, count in (
        (100, 0, 2048, 1), (100, 4, 2048, 2), (3000, 4, 4096, 3), (100, 4, 4096, 3), (100, 0, 4096, 3),
        (100, 2, 2048, 4), (4000, 0, 4096, 4),
    ):  # fmt: skip
        engine = captured.engine_for(target, draft if k else None, k, "compiled", need)
        assert engine.capacity == capacity and len(made) == count
    assert [e.k for e in vars(target)["captured_engines"]] == [4, 2]


def test_full_memory_lets_other_engines_go_once(
    tiny_pair: Pair, made: list[GraphEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny_pair.target
    captured.engine_for(target, None, 1, "graphs", 100)
    calls: list[int] = []
    make = captured.GraphEngine

    def full(*given: Any) -> Any:
        calls.append(len(vars(target)["captured_engines"]))
        if calls[-1] or given[2] == 9:
            raise errors.OutOfDeviceMemory("full", expected="room", remedy="use mode='eager'")
        return make(*given)

    monkeypatch.setattr(captured, "GraphEngine", full)
    assert captured.engine_for(target, None, 2, "graphs", 100).k == 2
    assert calls == [1, 0] and [e.k for e in vars(target)["captured_engines"]] == [2]
    captured.release(target)
    refused(errors.OutOfDeviceMemory, "full", lambda: captured.engine_for(target, None, 9, "graphs", 100))


def test_an_instrumented_run_books_every_stage(tiny_pair: Pair, made: list[GraphEngine]) -> None:
    """Between two timed runs that it does not disturb; the same rounds, and parts that sum to the whole."""
    target, draft = tiny_pair.target, tiny_pair.draft
    start = Prefilled.compute(
        target, PROMPT, NEW
    )  # given, so that it is brought into the captured caches but once
    proposer = DraftModel(draft, Prefilled.compute(draft, PROMPT, NEW))
    timed = speculative(target, proposer, PROMPT, NEW, prefilled=start, mode="graphs")
    found = speculative(target, proposer, PROMPT, NEW, prefilled=start, mode="graphs", instrument=True)
    again = speculative(target, proposer, PROMPT, NEW, prefilled=start, mode="graphs")
    assert found.tokens == timed.tokens == again.tokens and found.rounds == timed.rounds == again.rounds
    assert isinstance(found, GraphGeneration) and found.replays == len(found.rounds)
    assert not timed.stage_seconds and not again.stage_seconds
    identities(dataclasses.replace(found, host_reads=len(found.rounds)), bonus=True)
    stages = found.stage_seconds
    assert min(stages[name] for name in ("draft", "verify", "accept")) > 0 and stages["repair"] == 0
    assert sum(stages.values()) == pytest.approx(found.seconds, rel=0.02)
    ar = autoregressive(target, PROMPT, NEW, mode="graphs", instrument=True)
    assert sum(ar.stage_seconds.values()) == pytest.approx(ar.seconds, rel=0.02)
    assert ar.stage_seconds["verify"] > 0 and ar.tokens == timed.tokens
    assert len(made) == 1


class Mine(DraftModel):
    """A reader's proposer."""


def test_what_only_the_eager_mode_runs(tiny_pair: Pair, made: list[GraphEngine]) -> None:
    target, draft = tiny_pair.target, tiny_pair.draft
    text, own = [5] * NEW, DraftModel(draft)

    def run(proposer: Proposer, **given: Any) -> Any:
        return partial(speculative, target, proposer, PROMPT, NEW, mode="graphs", **given)

    trace = Imposed(text, BITS)
    for mention, call in (
        ("eos", run(own, eos=2)),
        ("bonus = False", run(own, bonus=False)),
        ("reference", run(own, formulation="reference")),
        ("Relaxed", run(own, acceptance=Relaxed(1.0))),
        ("Recorded", run(own, acceptance=Recorded(Greedy()))),
        ("Mine", run(Mine(draft))),
        ("ForcedDraft with Greedy", run(ForcedDraft(draft, text, BITS))),
        ("DraftModel with Imposed", run(own, acceptance=trace)),
        ("Scripted", run(Scripted(lambda at, k: [1] * k))),
        ("different traces", run(ForcedDraft(draft, text, [True] * NEW), acceptance=trace)),
        ("different traces", run(ForcedDraft(draft, [6] * NEW, BITS), acceptance=trace)),
        ("different traces", run(DraftFree([6] * NEW), acceptance=trace)),
        ("k = 16", run(own, k=16)),
        ("one token", partial(speculative, target, own, [5], 3, mode="graphs")),
        ("one token", partial(autoregressive, target, [5], 3, mode="graphs")),
        ("eos", partial(autoregressive, target, PROMPT, 3, eos=[2], mode="graphs")),
    ):
        refused(errors.InvalidPrompt if mention == "one token" else errors.InvalidSetting, mention, call)


@pytest.mark.parametrize("mode", ["graph", "cuda", "", None])
def test_unknown_modes(mode: Any, tiny_pair: Pair) -> None:
    for call in (
        partial(autoregressive, tiny_pair.target, PROMPT, 3, mode=mode),
        partial(speculative, tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, 3, mode=mode),
    ):
        refused(errors.InvalidSetting, f"mode = {mode!r}", call)
        with pytest.raises(errors.InvalidSetting, match="'eager' or 'graphs' or 'compiled'"):
            call()


@pytest.mark.parametrize("mode", ["graphs", "compiled"])
def test_without_a_cuda_device(mode: str, tiny_pair: Pair) -> None:
    """Refused, and never run in another mode."""
    for call in (
        partial(autoregressive, tiny_pair.target, PROMPT, 3, mode=mode),
        partial(speculative, tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, 3, mode=mode),
    ):
        refused(errors.NoCudaDevice, mode, call)


def test_without_triton(tiny_pair: Pair, made: list[GraphEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain graphs need none; the fused kernels say so."""
    for name in [
        name for name in sys.modules if name.startswith(("specdec_lib.fused", "specdec_lib.kernels."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)  # type: ignore[arg-type]
    assert len(autoregressive(tiny_pair.target, PROMPT, 3, mode="graphs").tokens) == 3
    refused(
        errors.TritonMissing, "triton", partial(autoregressive, tiny_pair.target, PROMPT, 3, mode="compiled")
    )
