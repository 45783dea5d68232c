"""The key-value cache: one preallocated buffer, a length, and an O(1) way back.

Rolling back *is* setting the length: rows beyond it are never read, and the next append overwrites them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from .errors import CacheError, CannotWrite, ContextTooLong
from .files import atomic_write

DIGEST = "sha256"  # of the tensors, among the metadata of a stored prefill


class KVCache:
    """Keys and values of one model, [layers, KV heads, capacity, head_dim] each.

    ``length`` counts the tokens held. The device keeps its own copy in ``position`` [1], moved by fills and adds only,
    so that a forward can be captured and replayed without the host telling it where it is.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if capacity < 1:
            raise CacheError(
                f"capacity {capacity}", expected="at least 1 token", remedy="allocate prompt + new tokens"
            )
        shape = (layers, kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.offsets = torch.arange(capacity, device=device)
        self.capacity, self.length = capacity, 0

    @property
    def bytes(self) -> int:
        """Bytes of the two buffers."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def reserve(self, rows: int) -> Tensor:
        """Positions [rows] of the next rows, as a device tensor; ``ContextTooLong`` when they do not fit."""
        if self.length + rows > self.capacity:
            raise ContextTooLong(
                f"{self.length} cached + {rows} new tokens",
                expected=f"at most {self.capacity} (the cache's capacity)",
                remedy="allocate the cache for prompt + new tokens",
            )
        return self.offsets[:rows] + self.position

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new rows, each [M, KV heads, head_dim]; return that layer's keys and values [KV, L, D].

        ``positions`` comes from ``reserve``. The length moves once, by ``advance``, after the last layer.
        """
        end = self.length + keys.shape[0]
        self.keys[layer].index_copy_(1, positions, keys.transpose(0, 1))
        self.values[layer].index_copy_(1, positions, values.transpose(0, 1))
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def advance(self, rows: int) -> None:
        """Count ``rows`` appended tokens as held."""
        self.length += rows
        self.position.add_(rows)

    def trim(self, n: int) -> None:
        """Drop the last ``n`` tokens, in O(1). Raises ``CacheError`` when there are not that many, or n < 0."""
        if not 0 <= n <= self.length:
            raise CacheError(
                f"cannot drop {n} of {self.length} cached tokens",
                expected=f"0 <= n <= {self.length}",
                remedy="a rollback larger than the cache is an engine fault: report it with the prompt and k",
            )
        self.length -= n
        self.position.sub_(n)

    def rewind(self, length: int) -> None:
        """Hold the first ``length`` tokens, whatever happened since. Raises ``CacheError`` beyond the capacity."""
        if not 0 <= length <= self.capacity:
            raise CacheError(
                f"cannot hold {length} tokens",
                expected=f"0 to {self.capacity} (the cache's capacity)",
                remedy="rewind to what was there before",
            )
        self.length = length
        self.position.fill_(length)

    def save(
        self, path: str | Path, logits: Tensor, of: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        """Store the first ``length`` tokens (all held ones) and the logits after them, whole or not at all.

        ``of``: what they belong to. The file holds a digest of its tensors. Raises ``CannotWrite``.
        """
        if length is not None and not 0 < length <= self.length:
            raise CacheError(
                f"cannot store {length} of {self.length} cached tokens",
                expected=f"1 to {self.length}",
                remedy="leave length out to store all",
            )
        held = slice(0, self.length if length is None else length)
        tensors = {
            "keys": self.keys[:, :, held].contiguous().cpu(),
            "values": self.values[:, :, held].contiguous().cpu(),
            "logits": logits.contiguous().cpu(),
        }
        try:
            atomic_write(path, save(tensors, {**(of or {}), DIGEST: _digest(tensors)}))
        except OSError as fault:
            raise CannotWrite(
                f"{Path(path).name} cannot be written: {fault.strerror or fault}",
                expected="a file in a folder that can be written to, and room on the disk",
                remedy="choose another path",
            ) from fault

    def load(self, path: str | Path, of: dict[str, str] | None = None) -> Tensor:
        """Fill this cache from ``save``'s file; return its logits.

        Raises ``CacheError`` for a damaged file, or one that was stored with another ``of``, and then leaves the cache
        as it was.
        """
        remedy = "delete the file, then compute the prefill and save it again"
        try:
            with safe_open(str(path), framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in ("keys", "values", "logits")}
                found = file.metadata() or {}
        except FileNotFoundError as fault:
            raise CacheError(
                f"{Path(path).name} is not there",
                expected="a prefill written by KVCache.save",
                remedy="compute the prefill and save it",
            ) from fault
        except (SafetensorError, OSError) as fault:
            raise CacheError(
                f"{Path(path).name} cannot be read: {fault}",
                expected="a prefill written by KVCache.save",
                remedy=remedy,
            ) from fault
        if found.pop(DIGEST, "") != _digest(tensors):
            raise CacheError(
                f"{Path(path).name} is damaged: its digest does not fit",
                expected="a prefill as KVCache.save wrote it",
                remedy=remedy,
            )
        if found != (of or {}):
            raise CacheError(
                f"{Path(path).name} belongs to {found or 'nothing that is known'}",
                expected=f"{of or 'no owner'}",
                remedy="load it for what it belongs to, or compute this one's prefill and save it elsewhere",
            )
        keys, values, logits = (tensor.to(self.keys.device) for tensor in tensors.values())
        length = keys.shape[2] if keys.dim() == 4 else 0
        fits = keys.shape == values.shape == (*self.keys.shape[:2], length, self.keys.shape[3])
        if not fits or not 0 < length <= self.capacity or keys.dtype != self.keys.dtype:
            raise CacheError(
                f"{Path(path).name} holds {keys.dtype} keys {tuple(keys.shape)} and values {tuple(values.shape)}",
                expected=f"{self.keys.dtype} {tuple(self.keys.shape)} with a length up to {self.capacity}",
                remedy=remedy,
            )
        self.keys[:, :, :length] = keys
        self.values[:, :, :length] = values
        self.rewind(length)
        return logits


def _digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of what would be stored without metadata."""
    return hashlib.sha256(save(tensors)).hexdigest()
