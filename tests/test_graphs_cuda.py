"""Captured graphs on a GPU. Skipped without one: CI has none, so they run by hand on a GPU before a release."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from specdec_lib import autoregressive, load_pair, speculative  # noqa: E402
from specdec_lib.acceptance import Imposed, iid_passes  # noqa: E402
from specdec_lib.correctness import forced  # noqa: E402
from specdec_lib.errors import OutOfDeviceMemory  # noqa: E402
from specdec_lib.graphs import GraphEngine  # noqa: E402
from specdec_lib.modes import MODES  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402
from specdec_lib.proposers import DraftModel, ForcedDraft  # noqa: E402

PROMPT = [int(i) for i in torch.randint(0, 320, (300,), generator=torch.Generator().manual_seed(1))]
NEW = 48
GIB = 1 << 30


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_fp32_tokens_and_rounds_equal_eager(name: str, mode: str) -> None:
    """Every k, greedy and imposed; replays are counted, and no round is replayed in vain."""
    pair = load_pair(name, "cuda", "fp32")
    plain = autoregressive(pair.target, PROMPT, NEW).tokens
    passes = iid_passes(0.77, torch.rand(NEW, generator=torch.Generator().manual_seed(2)).tolist())
    for k in range(1, 9):
        engine = GraphEngine(pair.target, pair.draft, k, mode, capacity=512)
        assert engine.graphs == 2
        ar = engine.autoregressive(PROMPT, NEW)
        assert ar.tokens == plain and ar.replays == NEW - 1 and ar.host_reads == 1
        assert 0 < ar.device_seconds <= ar.seconds * 1.01
        found = engine.speculative(PROMPT, NEW)
        wanted = speculative(pair.target, DraftModel(pair.draft), PROMPT, NEW, k)
        assert found.tokens == plain and found.rounds == wanted.rounds, k
        assert found.replays == len(found.rounds) and found.surplus == 0 and found.mode == mode
        assert found.host_reads <= len(found.rounds) and found.host_copies == 0
        imposed = engine.speculative(PROMPT, NEW, script=plain, passes=passes)
        wanted = speculative(
            pair.target,
            ForcedDraft(pair.draft, plain, passes),
            PROMPT,
            NEW,
            k,
            acceptance=Imposed(plain, passes),
        )
        assert imposed.tokens == plain and imposed.rounds == wanted.rounds


@pytest.mark.parametrize("mode", MODES)
def test_bf16_keeps_the_margin_rule(mode: str) -> None:
    """Every token is the eager M = 1 argmax, or within half a logit of it, under teacher forcing."""
    pair = load_pair("tiny-llama", "cuda", "bf16")
    start = Prefilled.compute(pair.target, PROMPT, NEW)
    for k in (2, 4, 8):
        tokens = GraphEngine(pair.target, pair.draft, k, mode, capacity=512).speculative(PROMPT, NEW).tokens
        logits = forced(pair.target, start, PROMPT, tokens, 1)
        chosen = logits.gather(1, torch.tensor(tokens, device=logits.device).unsqueeze(1)).squeeze(1)
        assert float((logits.max(-1).values - chosen).max()) < 0.5


def test_fused_rows_do_not_depend_on_their_neighbours() -> None:
    """BF16, bit for bit: one row at a time and a block of eight; so greedy text is the same for every k up to 7."""
    from specdec_lib.fused import FusedDecoder

    pair = load_pair("tiny-qwen2", "cuda", "bf16")
    ids = torch.tensor(PROMPT[:8], device="cuda")
    position = torch.tensor([100], device="cuda")
    found = []
    for rows in (1, 8):
        cache = pair.target.new_cache(256)
        pair.target.forward(torch.tensor(PROMPT[:100], device="cuda"), cache)
        decoder = FusedDecoder(pair.target, cache)
        logits = torch.zeros(8, 320, device="cuda")
        for at in range(0, 8, rows):
            decoder.step(ids[at : at + rows], position, at, logits=logits[at : at + rows])
        found.append(logits)
    assert torch.equal(*found)
    texts = {
        tuple(GraphEngine(pair.target, pair.draft, k, capacity=512).speculative(PROMPT, NEW).tokens)
        for k in range(1, 8)
    }
    assert texts == {
        tuple(GraphEngine(pair.target, None, 0, capacity=512).autoregressive(PROMPT, NEW).tokens)
    }


@pytest.mark.parametrize("mode", MODES)
def test_a_round_never_waits_for_the_device(mode: str) -> None:
    pair = load_pair("tiny-llama", "cuda", "fp32")
    engine = GraphEngine(pair.target, pair.draft, 4, mode, capacity=512)
    done = engine.speculative(PROMPT, NEW)
    engine.state.begin(PROMPT, NEW)
    assert engine.round
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(len(done.rounds) + 2):  # the last two are surplus
            engine.round.replay()
        engine.step.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    end = len(PROMPT) + NEW
    assert engine.state.text[
        len(PROMPT) : end
    ].tolist() == done.tokens and engine.state.committed.tolist() == [end]
    assert not engine.state.text[end:].any()


def test_one_engine_serves_all_contexts() -> None:
    pair = load_pair("tiny-qwen2", "cuda", "fp32")
    engine = GraphEngine(pair.target, pair.draft, 4, capacity=4096)
    for length in (2, 64, 1000, 4096 - NEW):
        prompt = (PROMPT * 14)[:length]
        plain = autoregressive(pair.target, prompt, NEW).tokens
        assert engine.autoregressive(prompt, NEW).tokens == plain
        assert engine.speculative(prompt, NEW).tokens == plain


def test_both_models_and_all_graphs_fit_8_gib() -> None:
    """Qwen2.5 shapes, BF16, 8K; at most 256 MiB of graph memory. Too little memory is a named outcome."""
    total = torch.cuda.get_device_properties(0).total_memory
    if total < 12 * GIB:
        pytest.skip("needs 12 GiB to make the random weights")
    pair: Any = load_pair("qwen2.5-shapes", "cuda", "bf16")
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(8 * GIB / total)
    try:
        prompt = (PROMPT * 28)[: 8192 - NEW]
        engine = GraphEngine(pair.target, pair.draft, 4)
        assert engine.pool_bytes <= 256 << 20
        assert len(engine.speculative(prompt, NEW).tokens) == NEW
        assert torch.cuda.memory_reserved() <= 8 * GIB
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 1) / total)
        with pytest.raises(OutOfDeviceMemory, match="eager"):
            GraphEngine(pair.target, pair.draft, 4, capacity=32000)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
