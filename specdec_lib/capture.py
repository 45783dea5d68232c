"""Capturing and replaying CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from .errors import RunInProgress

P = ParamSpec("P")
Result = TypeVar("Result")


def alone(run: Callable[Concatenate[Any, P], Result]) -> Callable[Concatenate[Any, P], Result]:
    """One run of an engine at a time, by its lock ``idle``: a second thread's replays would write into the same caches.
    Raises ``RunInProgress``."""

    @wraps(run)
    def guarded(engine: Any, *args: P.args, **settings: P.kwargs) -> Result:
        if not engine.idle.acquire(blocking=False):
            raise RunInProgress(
                "this engine decodes in another thread",
                expected="one run at a time: every run writes into the captured caches",
                remedy="wait for it, load a pair for each thread, or use mode='eager'",
            )
        try:
            return run(engine, *args, **settings)
        finally:
            engine.idle.release()

    return guarded


class Replayable(Protocol):
    """Work that can be repeated without the host; ``replays`` counts how often it was."""

    replays: int

    def replay(self) -> None: ...


class Captured:
    """A function captured in a CUDA graph. ``pool`` is shared by all graphs of an engine.

    ``seconds``: warm-up (which compiles kernels) and capture. ``work`` must be harmless to run once beforehand.
    """

    def __init__(self, work: Callable[[], None], pool: Any) -> None:
        start = perf_counter()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph, self.replays = torch.cuda.CUDAGraph(), 0
        with torch.cuda.graph(self.graph, pool=pool):
            work()
        torch.cuda.synchronize()
        self.seconds = perf_counter() - start

    def replay(self) -> None:
        self.replays += 1
        self.graph.replay()


class Direct:
    """Runs the function where a CUDA graph would be replayed: an engine's logic on a machine without a GPU. Its times
    say nothing about a GPU.
    """

    def __init__(self, work: Callable[[], None], pool: Any) -> None:
        work()
        self.work, self.replays = work, 0

    def replay(self) -> None:
        self.replays += 1
        self.work()
