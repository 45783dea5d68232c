"""The engine on a GPU. Skipped without one: CI has none, so they run by hand on a GPU before a release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from specdec_lib import DraftModel, autoregressive, load_pair, speculative  # noqa: E402
from specdec_lib.correctness import margin_rows  # noqa: E402
from specdec_lib.host import HostTraffic  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402
from specdec_lib.protocol import FORMULATIONS  # noqa: E402

PROMPT = [int(i) for i in torch.randint(0, 320, (300,), generator=torch.Generator().manual_seed(1))]


@contextmanager
def syncs(mode: str) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_fp32_tokens_equal_plain_greedy(name: str) -> None:
    pair = load_pair(name, "cuda", "fp32")
    plain = autoregressive(pair.target, PROMPT, 48).tokens
    for formulation in FORMULATIONS:
        for bonus in (True, False):
            for k in range(1, 9):
                done = speculative(
                    pair.target, DraftModel(pair.draft), PROMPT, 48, k, bonus, formulation=formulation
                )
                assert done.tokens == plain, (formulation, bonus, k)


def test_bf16_keeps_the_margin_rule() -> None:
    pair = load_pair("tiny-llama", "cuda", "bf16")
    rows = list(margin_rows(pair, {"random": PROMPT}, 48, 4, 0.5))
    assert rows and all(row["passed"] for row in rows), rows


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_round_waits_for_the_device_only_where_the_host_reads(
    formulation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_pair("tiny-llama", "cuda", "fp32")
    target = Prefilled.compute(pair.target, PROMPT, 48)
    draft = DraftModel(pair.draft, Prefilled.compute(pair.draft, PROMPT, 48))
    read = HostTraffic.read

    def fenced(self: HostTraffic, tensor: Any) -> list[int]:
        with syncs("default"):
            return read(self, tensor)

    monkeypatch.setattr(HostTraffic, "read", fenced)
    with syncs("error"):
        done = speculative(pair.target, draft, PROMPT, 48, formulation=formulation, prefilled=target)
        plain = autoregressive(pair.target, PROMPT, 48, prefilled=target)
    assert done.tokens == plain.tokens
    assert done.host_reads == len(done.rounds) and plain.host_reads == 1


@pytest.mark.parametrize(("dtype", "by_cudnn"), [("bf16", True), ("fp32", False)])
def test_cudnn_attends_in_prefill_only(dtype: str, by_cudnn: bool) -> None:
    """By name where it can (it has no FP32); a decoding block never calls a fused attention."""
    from torch.profiler import ProfilerActivity, profile

    def operations() -> set[str]:
        return {event.key for event in profiled.key_averages()}

    pair = load_pair("tiny-llama", "cuda", dtype)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        start = Prefilled.compute(pair.target, PROMPT, 8)
    assert ("aten::_scaled_dot_product_cudnn_attention" in operations()) == by_cudnn, operations()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        autoregressive(pair.target, PROMPT, 8, prefilled=start)
    assert not [name for name in operations() if "scaled_dot_product" in name]
