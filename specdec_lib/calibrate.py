"""Device and dtype as a reader may give them, and the calibration behind ``dtype = auto``."""

from __future__ import annotations

import time
from typing import Any

import torch

from .errors import InvalidSetting
from .projection import Projection

_BUDGET_S = 0.4  # per kind of product, shared by the two dtypes; set-up makes it about a second in all
_ROWS, _WIDTH, _OUT = 512, 576, 1536  # rows of a prompt chunk times a matrix of the smol target
_BANK = (
    48  # matrices that one decode product walks through: 85 MB in BF16, 170 MB in FP32, beyond usual caches
)
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def parse_dtype(dtype: Any) -> str:
    """The name "auto" (for None too), "bf16" or "fp32"; torch dtypes are named. Raises `InvalidSetting`."""
    name = {"None": "auto", "torch.bfloat16": "bf16", "torch.float32": "fp32"}.get(str(dtype), dtype)
    if name not in ("auto", *_DTYPES):
        expected = "auto, bf16, fp32, torch.bfloat16 or torch.float32"
        raise InvalidSetting(f"dtype {dtype!r}", expected=expected, remedy="choose one of these")
    return name


def parse_device(device: Any) -> torch.device:
    """A CPU or an existing CUDA device; None is CUDA when there is one. Raises `InvalidSetting`."""
    try:
        place = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    except (RuntimeError, TypeError):
        place = None
    if place is None or place.type not in ("cpu", "cuda") or (place.type == "cpu" and place.index):
        raise InvalidSetting(
            f"device {device!r}", expected="cpu, cuda or cuda:N", remedy="choose one of these"
        )
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise InvalidSetting(
            f"device {device!r}: torch sees {torch.cuda.device_count()} CUDA devices",
            expected="a device that exists",
            remedy="use device='cpu', or install a CUDA build of torch",
        )
    return place


def auto_dtype(device: str | torch.device = "cpu") -> tuple[str, dict[str, float]]:
    """("bf16" or "fp32", timings in seconds under keys such as ``decode_bf16_s``; empty on CUDA).

    On CUDA always BF16. On a CPU BF16 only where it is faster for both a prefill-like product (512 rows) and
    a decode-like one (one row over more weights than the caches hold): without matrix units for BF16 it can
    be many times slower. What is timed is the engine's own `Projection`, on one thread: with several, a
    single busy core slows either product up to fifty-fold and would decide. Call it once per profile and pass
    the answer on.
    """
    if torch.device(device).type == "cuda":
        return "bf16", {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timings = _timings()
    finally:
        torch.set_num_threads(threads)
    faster = all(timings[f"{phase}_bf16_s"] < timings[f"{phase}_fp32_s"] for phase in ("prefill", "decode"))
    return ("bf16" if faster else "fp32"), timings


@torch.inference_mode()
def _timings() -> dict[str, float]:
    """Shortest run of both products in both dtypes, in seconds."""
    banks = {
        name: [Projection(torch.full((_OUT, _WIDTH), 0.01, dtype=dtype), None) for _ in range(_BANK)]
        for name, dtype in _DTYPES.items()
    }
    timings: dict[str, float] = {}
    for phase, rows, width in (("prefill", _ROWS, 1), ("decode", 1, _BANK)):
        inputs = {name: torch.ones(rows, _WIDTH, dtype=dtype) for name, dtype in _DTYPES.items()}
        best = dict.fromkeys(_DTYPES, float("inf"))
        laps, start = 0, time.perf_counter()
        # the dtypes take turns, so that a disturbance hits both; the first turn warms up and is not counted
        while laps < 2 or time.perf_counter() - start < _BUDGET_S:
            for name, bank in banks.items():
                begin = time.perf_counter()
                for projection in bank[:width]:
                    projection(inputs[name])
                if laps:
                    best[name] = min(best[name], time.perf_counter() - begin)
            laps += 1
        timings |= {f"{phase}_{name}_s": seconds for name, seconds in best.items()}
    return timings
