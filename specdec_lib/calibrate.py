"""``dtype = auto``: which of BF16 and FP32 this machine runs faster, found in about one second."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_BUDGET_S = 0.2  # per timed product; four of them and their set-up make about one second
_ROWS, _WIDTH, _OUT = 512, 576, 1536  # the prefill product: rows of a chunk times a matrix of the smol target
_BANK = 96  # matrices of [_OUT, _WIDTH] walked through by the decode product: 340 MB in FP32, beyond any cache


def auto_dtype(device: str | torch.device = "cpu") -> tuple[str, dict[str, float]]:
    """("bf16" or "fp32", timings in seconds under keys such as ``decode_bf16_s``; empty on CUDA).

    On CUDA always BF16. On a CPU BF16 only where it is faster for both a prefill-like product (512 rows) and a
    decode-like one (one row over more weights than the caches hold): without matrix units for BF16 it can be many
    times slower. Uses the engine's own `Projection`, with the thread count now set.
    """
    if torch.device(device).type == "cuda":
        return "bf16", {}
    timings: dict[str, float] = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        prefill, decode = _products(dtype)
        timings[f"prefill_{name}_s"] = _best(prefill)
        timings[f"decode_{name}_s"] = _best(decode)
    faster = all(timings[f"{phase}_bf16_s"] < timings[f"{phase}_fp32_s"] for phase in ("prefill", "decode"))
    return ("bf16" if faster else "fp32"), timings


def _products(dtype: torch.dtype) -> tuple[Callable[[], object], Callable[[], object]]:
    """The two timed products; each call of the second walks once through the bank of matrices."""
    from specdec_lib.projection import Projection  # the engine's own product: what is timed is what will run

    with torch.inference_mode():
        weight = torch.full((_OUT, _WIDTH), 0.01, dtype=dtype)
        bank = [Projection(weight.clone(), None) for _ in range(_BANK)]
        rows, row = torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(1, _WIDTH, dtype=dtype)
    return (lambda: bank[0](rows)), (lambda: [projection(row) for projection in bank])


@torch.inference_mode()
def _best(product: Callable[[], object]) -> float:
    """Shortest of the runs that fit the budget, in seconds; the first run only counts when it is the only one."""
    start = time.perf_counter()
    product()
    best = first = time.perf_counter() - start
    runs = 0
    while time.perf_counter() - start < _BUDGET_S:
        begin = time.perf_counter()
        product()
        lap = time.perf_counter() - begin
        best = lap if runs == 0 else min(best, lap)
        runs += 1
    return best if runs else first
