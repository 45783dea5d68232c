"""The published CUDA-graph experiment, repeated: local speed-ups, and graphs captured per round and position.

Published: graphs speed the draft chain up 3.7-6.0x and the verification 1.4-2.6x, but 26 of them, one draft chain and
one verification per round and position, with pools of about 2.0 and 0.89 GiB, do not fit into 8 GB: out of memory at 8
of 26.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from specdec_lib.cache import KVCache
from specdec_lib.capture import Captured
from specdec_lib.graphs import GraphEngine
from specdec_lib.model import DecoderModel

GIB, MIB = 1 << 30, 1 << 20
K, ROUNDS = 4, 13
Row = tuple[str, str, Any, str]


def chain(model: DecoderModel, cache: KVCache, token: Tensor, steps: int) -> Tensor:
    """``steps`` one-token forwards, each on the argmax of the one before; the cache keeps its length afterwards."""
    for _ in range(steps):
        token = model.forward(token, cache).argmax(-1)
    cache.trim(steps)
    return token


def local_speedups(
    pair: Any, engine: GraphEngine, prompt: list[int], start: Callable[..., Any], host: Callable[..., list[float]],
    events: Callable[..., list[float]],
) -> Iterator[Row]:  # fmt: skip
    """Draft chain and verification: eager against captured plain forward and captured fused kernels."""
    plain = GraphEngine(pair.target, pair.draft, K, "graphs")
    block = torch.tensor(prompt[: K + 1], device="cuda")
    target, draft = start(2048).cache, start(2048, "draft").cache

    def verify() -> None:
        pair.target.forward(block, target)
        target.trim(K + 1)

    with torch.inference_mode():
        eager = {
            "draft chain": host(lambda: chain(pair.draft, draft, block[:1], K)),
            "verification": host(verify),
        }
        for name, times in eager.items():
            yield f"{name}, k = {K}", "eager", times, "ms"
        for mode, captured in (("graphs", plain), ("compiled", engine)):
            captured.state.begin(prompt, 0)
            at, propose = captured.state.committed, captured.propose
            assert propose

            def draft_chain(e: GraphEngine = captured, step: Any = propose.step, at: Tensor = at) -> None:
                for i in range(K):
                    e.state.propose(i, step(e.state.block[i : i + 1], at, i - 1, last_only=True))

            works = {
                "draft chain": draft_chain,
                "verification": lambda e=captured: e.verify.step(block, e.state.committed, -1),
            }
            for name, work in works.items():
                graph = Captured(lambda w=work: (w(), None)[1], torch.cuda.graph_pool_handle())
                times = events(graph.replay)
                yield f"{name}, k = {K}", mode, times, "ms"
                base = sorted(eager[name])[len(eager[name]) // 2]
                yield f"{name}, speed-up over eager", mode, [base / ms for ms in times], "x"


class ConcatenatingCache(KVCache):
    """A cache that grows by concatenation, as a dynamic cache does; ``expand`` repeats the KV heads for every query
    head.

    It holds on to what it concatenated, so every step of a chain allocates a whole new cache.
    """

    def __init__(self, like: KVCache, heads: int, expand: bool) -> None:
        self.__dict__ |= like.__dict__
        self.repeats = heads // like.keys.shape[1] if expand else 1
        held = slice(0, like.length)
        self.held = [
            tuple(t[layer, :, held].repeat_interleave(self.repeats, 0) for t in (like.keys, like.values))
            for layer in range(like.keys.shape[0])
        ]

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        new = (t.transpose(0, 1).repeat_interleave(self.repeats, 0) for t in (keys, values))
        joined = tuple(torch.cat((old, t), 1) for old, t in zip(self.held[layer], new, strict=True))
        self.held[layer] = joined
        return joined[0], joined[1]


def per_position(pair: Any, prompt: list[int], new: int) -> Iterator[Row]:
    """Capture one draft chain and one verification per round, each with a pool of its own, under an 8 GiB cap.

    The number captured until memory ran out, and the pool of each; three kinds of cache. A cache that concatenates
    makes a captured graph hold copies of all keys and values.
    """
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(8 * GIB / total)
    for kind in ("preallocated", "concatenating", "concatenating, KV heads expanded"):
        pools: dict[str, list[float]] = {"draft chain": [], "verification": []}
        kept: list[Any] = []
        outcome = "all captured"
        try:
            with torch.inference_mode():
                caches = {
                    "draft": pair.draft.new_cache(len(prompt) + new + 8),
                    "target": pair.target.new_cache(len(prompt) + new + 8),
                }
                block = torch.tensor(prompt[: K + 1], device="cuda")
                for number in range(ROUNDS):
                    for name, role in (("draft chain", "draft"), ("verification", "target")):
                        cache, model = caches[role], getattr(pair, role)
                        cache.length = len(prompt) + number * (K + 1)
                        cache.position.fill_(cache.length)

                        def work(
                            name: str = name, cache: KVCache = cache, model: Any = model, kind: str = kind,
                            kept: list[Any] = kept, block: Tensor = block,
                        ) -> None:  # fmt: skip
                            used = cache
                            if kind != "preallocated":
                                used = ConcatenatingCache(cache, model.config.heads, "expanded" in kind)
                            if name == "draft chain":
                                kept.append((chain(model, used, block[:1], K), used))
                            else:
                                kept.append((model.forward(block, used), used))
                                used.trim(K + 1)

                        if number == 0:
                            work()
                            kept.clear()
                            gc.collect()
                            torch.cuda.empty_cache()
                        torch.cuda.synchronize()
                        before = torch.cuda.memory_reserved()
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph):
                            work()
                        kept.append(graph)
                        pools[name].append((torch.cuda.memory_reserved() - before) / MIB)
        except torch.cuda.OutOfMemoryError:
            outcome = "out of memory"
        count = sum(map(len, pools.values()))
        yield "graphs per position, captured", f"{kind}, 8 GiB cap: {outcome}", count, f"of {2 * ROUNDS}"
        for name, sizes in pools.items():
            if sizes:
                yield f"pool per graph, {name}", kind, sizes, "MiB"
        mean = sum(map(sum, pools.values())) / max(count, 1)
        yield "all 26 would take", kind, mean * 2 * ROUNDS / 1024, "GiB"
        kept.clear()
        caches = {}
        gc.collect()
        torch.cuda.empty_cache()
