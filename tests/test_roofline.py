"""Bytes from the shapes against the loaded model's; the GPU's state as text."""

from __future__ import annotations

import pytest

from specdec_lib.nvml import parse_smi, reasons
from specdec_lib.pairs import PAIRS, Pair
from specdec_lib.roofline import fused_launches, kv_bytes, step_bytes, weight_bytes


def test_bytes_are_those_of_the_loaded_model(tiny_pair: Pair, tiny_qwen2_pair: Pair) -> None:
    for pair in (tiny_pair, tiny_qwen2_pair):
        model = pair.target
        assert weight_bytes(model.config, 4) == model.step_bytes
        assert kv_bytes(model.config, 7, 4) == 7 * model.kv_bytes_per_token
        assert step_bytes(model.config, 7, 4) == model.step_bytes + 7 * model.kv_bytes_per_token


def test_the_published_sizes() -> None:
    """Section 2's numbers: bytes per decode step and per cached token, byte ratio of draft to target."""
    from specdec_lib.config import ModelConfig

    shapes = PAIRS["qwen2.5-shapes"].shapes
    assert shapes
    target, draft = (ModelConfig(**shape) for shape in shapes)
    assert (weight_bytes(target), weight_bytes(draft)) == (3_087_428_608, 988_065_536)
    assert (kv_bytes(target, 1), kv_bytes(draft, 1)) == (28_672, 12_288)
    assert (fused_launches(target), fused_launches(draft)) == (171, 147)


def test_nvidia_smi_line() -> None:
    state = parse_smi("NVIDIA H200, 580.1, 1980, 3201, 412.5, 41, 1024, 0x0000000000000004\n")
    assert state and state.throttled == ("power cap",) and state.memory_used_bytes == 1 << 30
    assert state.others is None and state.sm_mhz == 1980
    assert (
        parse_smi("NVIDIA H200, 580.1, [N/A], 3201, 412.5, 41, 1024, 0x0\n") is None and parse_smi("") is None
    )


@pytest.mark.parametrize(
    ("bits", "names"), [(0, ()), (1, ()), (0x48, ("hardware slowdown", "hardware thermal"))]
)
def test_throttle_reasons(bits: int, names: tuple[str, ...]) -> None:
    assert reasons(bits) == names
