"""The one place where the host reads the device or sends it tokens. What does not pass here is not counted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class HostTraffic:
    """Counts reads and host-to-device copies during decoding, and the bytes of both.

    On a GPU a read waits for everything queued before it. On a CPU both are plain memory accesses: only the counts
    mean something there.
    """

    def __init__(self) -> None:
        self.reads = self.copies = self.bytes = 0

    def read(self, tensor: Tensor) -> list[int]:
        """The integers of a 1-D device tensor, as one read."""
        self.reads += 1
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor.tolist()

    def copy(self, ids: Sequence[int], device: torch.device) -> Tensor:
        """Token ids as an int64 tensor on ``device``, as one copy."""
        tensor = torch.tensor(ids, dtype=torch.int64, device=device)
        self.copies += 1
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor
