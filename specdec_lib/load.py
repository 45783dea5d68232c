"""What else the machine did meanwhile, and what this process used. No torch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Snapshot:
    """Seconds since some start: wall clock, CPU of the whole machine, CPU of this process and its children."""

    wall: float
    machine: float
    own: float

    @classmethod
    def take(cls) -> Snapshot:
        """Now. ``machine`` counts all work and what a hypervisor took away (steal), in ticks of 10 ms."""
        cpu = psutil.cpu_times()
        busy = (
            cpu.user
            + cpu.system
            + sum(getattr(cpu, name, 0.0) for name in ("nice", "irq", "softirq", "steal"))
        )
        mine = os.times()
        return cls(time.perf_counter(), busy, sum(mine[:4]))


def others_share(before: Snapshot, after: Snapshot) -> float:
    """CPU time of others over the wall time between two snapshots: 0 on an idle machine, up to the number of cores."""
    others = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, others / (after.wall - before.wall))


# The system counts CPU time in ticks of 10 ms, and two counts are compared: less than this is not seen. A run on a GPU
# can take a few ticks in all.
UNSEEN_S = 0.02


def seen_share(share: float, seconds: float, device: object) -> float:
    """Of the others' share of a run, what the ticks show for sure: on a GPU, where runs are short, less two ticks."""
    return max(0.0, share - UNSEEN_S / seconds) if str(device).startswith("cuda") else share


_PROBE_STEPS = 8_000  # some 0.4 ms: long against the clock, short against how long a core stays as it is


@contextmanager
def on_free_core(device: object) -> Iterator[None]:
    """Run the body on the core that is the fastest now, where one thread drives the device: work on a GPU.

    A core of a virtual machine may share its units with a neighbour whom no counter shows. Eager runs then take up to
    twice as long, and captured ones, whose host reads and replays a slow core delays, a few percent. What decides is a
    loop of fixed work on every core, never a run's own time. Does nothing on a CPU, and where a process cannot choose
    its core.
    """
    if not str(device).startswith("cuda") or not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    try:
        with suppress(OSError):  # a system that has the call and refuses it
            os.sched_setaffinity(0, {min(sorted(allowed), key=_pace)})
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)


def _pace(core: int) -> float:
    """Seconds of the probing loop on one core, the shorter of two."""
    os.sched_setaffinity(0, {core})
    marks = [time.perf_counter()]
    for _ in range(2):
        for _ in range(_PROBE_STEPS):
            pass
        marks.append(time.perf_counter())
    return min(marks[1] - marks[0], marks[2] - marks[1])


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far (Linux counts KiB, macOS bytes)."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_mhz() -> float | None:
    """CPU clock now, or None where the system does not tell."""
    frequency = psutil.cpu_freq()
    return frequency.current if frequency and frequency.current else None
