"""What every kernel does before its own work: overlap with the kernel before it, and ask for weights ahead of time.

Programmatic dependent launch (compute capability 9.0 and later): a kernel may start while the one before it still runs.
It lets its own successor start (``gdc_launch_dependents``), loads what no kernel of this step writes (weights, older
cache rows, the position), and only then waits until everything before it is complete and visible (``gdc_wait``). Each
kernel waits before its first read of an activation and before its first write, so completion is transitive along the
chain. The first kernel of a step lets its successor start only after its own wait: nothing of a step runs ahead of the
last one.
"""

from __future__ import annotations

import functools
import os

import torch

OVERLAP = True  # a benchmark switches it off to time kernels one by one
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def overlaps(device: torch.device) -> bool:
    """Whether ``device`` has programmatic dependent launch."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def options(device: torch.device) -> dict[str, bool]:
    """Launch options of every kernel on ``device``: the kernel's own switch, and the driver's attribute."""
    return {"PDL": True, "launch_pdl": True} if OVERLAP and overlaps(device) else {"PDL": False}
