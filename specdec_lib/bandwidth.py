"""The measured read bandwidth: one definition for every device, so that shares of it can be compared."""

from __future__ import annotations

from statistics import median

import torch

from .timing import now

BUFFER_BYTES = 512 * 2**20  # larger than any cache here; on a GPU large enough to hide the launch


@torch.inference_mode()
def read_bandwidth(device: str | torch.device = "cpu", repeats: int = 11) -> float:
    """Bytes per second at which ``device`` reads memory: a 512 MiB FP32 buffer summed, median over ``repeats``.

    A sum reads each byte once and writes almost nothing, which is what a decode step does with its weights. The
    buffer holds ones: on some GPUs an all-zero buffer reads faster than data does.
    """
    device = torch.device(device)
    buffer = torch.ones(BUFFER_BYTES // 4, dtype=torch.float32, device=device)
    for _ in range(2):
        buffer.sum()
    times = []
    for _ in range(repeats):
        start = now(device)
        buffer.sum()
        times.append(now(device) - start)
    return BUFFER_BYTES / median(times)
