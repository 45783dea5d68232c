"""The one place where the host reads the device. What is not read here is not known on the host."""

from __future__ import annotations

from torch import Tensor


class HostReads:
    """Counts reads. On a GPU each one waits for everything queued before it."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, tensor: Tensor) -> list[int]:
        """The integers of a 1-D device tensor, as one read."""
        self.count += 1
        return tensor.tolist()
