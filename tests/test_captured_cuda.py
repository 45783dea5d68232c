"""``mode=`` at the front door on a GPU, and the phase "graphs". Skipped without one: run by hand before a release."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from specdec_lib import autoregressive, captured, load_pair, speculative  # noqa: E402
from specdec_lib.acceptance import Imposed, iid_passes  # noqa: E402
from specdec_lib.graph_phase import measure  # noqa: E402
from specdec_lib.graphs import GraphGeneration  # noqa: E402
from specdec_lib.modes import MODES  # noqa: E402
from specdec_lib.per_position import KINDS, capture_rounds, clear, memory_cap  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft, Proposer  # noqa: E402

PROMPT = [int(i) for i in torch.randint(0, 320, (300,), generator=torch.Generator().manual_seed(1))]
NEW = 48


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_fp32_equals_eager_for_every_k_and_prompt(name: str, mode: str) -> None:
    """One engine per k; a prompt of another length needs no new graphs."""
    pair = load_pair(name, "cuda", "fp32")
    target, draft = pair.target, pair.draft
    passes = iid_passes(0.77, torch.rand(NEW, generator=torch.Generator().manual_seed(2)).tolist())
    for prompt in (PROMPT, PROMPT[:70], PROMPT * 4):
        plain = autoregressive(target, prompt, NEW).tokens
        ar = autoregressive(target, prompt, NEW, mode=mode)
        assert ar.tokens == plain and ar.mode == mode and 0 < ar.device_seconds <= ar.seconds * 1.01
        for k in range(1, 9):
            cases: list[tuple[Proposer, Any]] = [
                (DraftModel(draft), None),
                (ForcedDraft(draft, plain, passes), Imposed(plain, passes)),
                (DraftFree(plain, "cuda"), Imposed(plain, [True] * NEW)),
            ]
            for proposer, rule in cases if k in (1, 4, 7) else cases[:1]:
                found = speculative(target, proposer, prompt, NEW, k, acceptance=rule, mode=mode)
                wanted = speculative(target, proposer, prompt, NEW, k, acceptance=rule)
                assert found.tokens == plain == wanted.tokens and found.rounds == wanted.rounds, (k, rule)
                assert isinstance(found, GraphGeneration) and found.surplus == 0 and found.mode == mode
    engines = vars(target)["captured_engines"]
    assert sorted(e.k for e in engines) == sorted([*range(1, 9), 1, 4, 7]), "none was captured twice"
    captured.release(target)
    assert not vars(target)["captured_engines"]


@pytest.mark.parametrize("mode", MODES)
def test_rounds_of_the_front_door_never_wait_for_the_device(mode: str) -> None:
    pair = load_pair("tiny-llama", "cuda", "fp32")
    done = speculative(pair.target, DraftModel(pair.draft), PROMPT, NEW, mode=mode)
    timed = speculative(pair.target, DraftModel(pair.draft), PROMPT, NEW, mode=mode, instrument=True)
    (engine,) = vars(pair.target)["captured_engines"]
    assert engine.round
    for work in ([engine.round], list(engine.stages().values())):
        with torch.inference_mode():  # as the engine's own methods: its tensors were made under it
            engine.state.begin(PROMPT, NEW)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(len(done.rounds) + 1):
                for part in work:
                    part.replay()
            engine.step.replay()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert engine.state.committed.tolist() == [len(PROMPT) + NEW]
    assert timed.tokens == done.tokens and timed.rounds == done.rounds
    assert sum(timed.stage_seconds.values()) == pytest.approx(timed.seconds, rel=0.02)
    assert min(timed.stage_seconds[stage] for stage in ("draft", "verify", "accept")) > 0


def test_bf16_draft_free_commits_the_script_whatever_the_target_says() -> None:
    pair = load_pair("tiny-qwen2", "cuda", "bf16")
    script, start = [7] * NEW, Prefilled.compute(pair.target, PROMPT, NEW)
    rule = Imposed(script, [True] * NEW)
    for mode in MODES:
        done = speculative(
            pair.target, DraftFree(script, "cuda"), PROMPT, NEW, acceptance=rule, prefilled=start, mode=mode
        )
        assert done.tokens == script and done.acceptance == 1 and done.draft_calls == 0


def test_the_phase_measures_every_part_and_records_where_memory_ends() -> None:
    pair = load_pair("tiny-llama", "cuda", "bf16")
    spec: dict[str, Any] = {
        "contexts": [96, 160], "new_tokens": 16, "k": 4, "ks": [1, 4], "alphas": [0.77], "cap_bytes": 8 << 30,
    }  # fmt: skip
    rows = measure(spec, pair)["rows"]
    assert {row["part"] for row in rows} == {"steps", "local", "per position", "position-independent"}
    assert {row["outcome"] for row in rows} == {"measured"} and all(row["n"] > 0 for row in rows)
    captured_n = {
        row["value"] for row in rows if row["part"] == "per position" and row["quantity"] == "graphs captured"
    }
    assert captured_n == {8.0}, "4 rounds, two graphs each"
    assert {row["mode"] for row in rows if row["quantity"] == "R"} == set(MODES)

    clear()
    with memory_cap(torch.cuda.memory_reserved() + (96 << 20), pair.target.device):
        full = capture_rounds(pair, KINDS[3], 3000, 40, 4)
    assert full.exhausted and 0 < full.captured < 80
    again = capture_rounds(pair, KINDS[0], 3000, 4, 4)
    assert not again.exhausted and again.captured == 8, "nothing is left of the failed one"
