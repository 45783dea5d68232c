"""CUDA graphs captured per round and position, as published, and what each kind of cache makes of their pools.

A graph holds on to every address it writes: memory that one capture allocates belongs to that graph for its life. With
a preallocated cache that is a step's activations; a cache that concatenates allocates its whole content anew, and with
it every graph holds a copy of all keys and values.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cache import KVCache
from .model import DecoderModel
from .nvml import read_gpu
from .pairs import Pair

DRAFT, VERIFY = "draft chain", "verification"


class Kind(NamedTuple):
    """A cache: does it grow by concatenation, hold the KV heads once per query head, keep every step's tensors?"""

    name: str
    concatenates: bool = False
    expands: bool = False
    keeps: bool = False


KINDS = (
    Kind("preallocated"),
    Kind("concatenating", True),
    Kind("concatenating, KV heads expanded", True, True),
    Kind("concatenating, KV heads expanded, every step kept", True, True, True),
)


class ConcatenatingCache(KVCache):
    """A cache that grows by concatenation, as a dynamic cache does, starting from the content of another."""

    def __init__(self, like: KVCache, heads: int, kind: Kind) -> None:
        self.__dict__ |= like.__dict__
        self.repeats = heads // like.keys.shape[1] if kind.expands else 1
        held = slice(0, like.length)
        self.held = [
            tuple(t[layer, :, held].repeat_interleave(self.repeats, 0) for t in (like.keys, like.values))
            for layer in range(like.keys.shape[0])
        ]
        self.kept: list[Any] | None = [] if kind.keeps else None

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        new = (t.transpose(0, 1).repeat_interleave(self.repeats, 0) for t in (keys, values))
        joined = tuple(torch.cat((old, t), 1) for old, t in zip(self.held[layer], new, strict=True))
        self.held[layer] = joined
        if self.kept is not None:
            self.kept.append(joined)
        return joined[0], joined[1]


@dataclass
class Pools:
    """Bytes of every captured graph's own pool. ``base``: reserved before the first; ``exhausted``: memory ran out.

    ``gpu_used``: what NVML says the whole card holds at the end, None where it says nothing.
    """

    sizes: dict[str, list[int]] = field(default_factory=lambda: {DRAFT: [], VERIFY: []})
    base: int = 0
    exhausted: bool = False
    gpu_used: int | None = None

    @property
    def captured(self) -> int:
        return sum(map(len, self.sizes.values()))

    @property
    def mean(self) -> float:
        """Bytes per graph, over both kinds of graph alike; NaN where none was captured."""
        known = [sum(sizes) / len(sizes) for sizes in self.sizes.values() if sizes]
        return sum(known) / len(known) if known else float("nan")


def chain(model: DecoderModel, cache: KVCache, rows: Tensor, steps: int) -> Tensor:
    """``steps`` draft forwards, the first over ``rows``, each other on the argmax of the one before; the cache keeps
    its length."""
    token = rows
    for _ in range(steps):
        token = model.forward(token, cache, last_only=True).argmax(-1)
    cache.trim(rows.shape[0] + steps - 1)
    return token


def verify(model: DecoderModel, cache: KVCache, block: Tensor) -> Tensor:
    """One target forward over ``block``; the cache keeps its length."""
    choices = model.forward(block, cache).argmax(-1)
    cache.trim(block.shape[0])
    return choices


def placed(cache: KVCache, length: int) -> KVCache:
    """The cache, saying that it holds ``length`` tokens; what they are does not matter to time and memory."""
    cache.rewind(length)
    return cache


def clear() -> None:
    """Give unused memory back, so that what is reserved is what is needed."""
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def memory_cap(limit: int, device: torch.device) -> Iterator[None]:
    """At most ``limit`` bytes reserved by this process within; an earlier, lower cap stays."""
    index = torch.cuda.current_device() if device.index is None else device.index
    before = torch.cuda.get_per_process_memory_fraction(index)
    total = torch.cuda.get_device_properties(index).total_memory
    torch.cuda.set_per_process_memory_fraction(min(before, limit / total), index)
    try:
        yield
    finally:
        clear()
        torch.cuda.set_per_process_memory_fraction(before, index)


@torch.inference_mode()
def capture_rounds(pair: Pair, kind: Kind, length: int, rounds: int, k: int) -> Pools:
    """Capture one draft chain and one verification per round, each with a pool of its own, until all are captured or
    memory runs out. The first round follows ``length`` tokens, and all accept everything.
    """
    found, kept = Pools(), []
    block = torch.zeros(k + 1, dtype=torch.int64, device=pair.target.device)
    room = length + rounds * (k + 1) + k + 1
    caches = {DRAFT: pair.draft.new_cache(room), VERIFY: pair.target.new_cache(room)}

    def work(name: str, model: DecoderModel, run: Callable[..., Tensor], *given: Any) -> None:
        cache = caches[name]
        used = ConcatenatingCache(cache, model.config.heads, kind) if kind.concatenates else cache
        kept.append((run(model, used, *given), used))

    works = {DRAFT: (pair.draft, chain, block[:1], k), VERIFY: (pair.target, verify, block)}
    try:
        for name, given in works.items():  # outside a graph first: libraries set themselves up
            placed(caches[name], length)
            work(name, *given)
        kept.clear()
        clear()
        found.base = torch.cuda.memory_reserved()
        for number in range(rounds):
            for name, given in works.items():
                placed(caches[name], length + number * (k + 1))
                torch.cuda.empty_cache()
                before, graph = torch.cuda.memory_reserved(), torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    work(name, *given)
                kept.append(graph)
                found.sizes[name].append(torch.cuda.memory_reserved() - before)
    except torch.cuda.OutOfMemoryError:
        found.exhausted = True
    state = read_gpu()
    found.gpu_used = state.memory_used_bytes if state else None
    kept.clear()
    caches.clear()
    clear()
    return found
