"""Clocks. A timed run carries a start and a stop mark and nothing else; an instrumented one books every stage."""

from __future__ import annotations

from time import perf_counter

import torch

from .generation import STAGES


def now(device: torch.device) -> float:
    """Host seconds after everything queued on ``device`` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


class DeviceClock:
    """Seconds on the GPU's own clock from creation to ``stop``; read them after the device is idle. NaN on a CPU."""

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
        if cuda:
            self.marks[0].record()

    def stop(self) -> None:
        if self.marks:
            self.marks[1].record()

    @property
    def seconds(self) -> float:
        return self.marks[0].elapsed_time(self.marks[1]) / 1e3 if self.marks else float("nan")


class Stopwatch:
    """Start and stop marks; with ``instrument`` also laps that book the time since the last mark on a stage.

    Laps tile the run: their sum is the run's time. On a GPU each lap waits for the device, which is why an
    instrumented run is never a timed one.
    """

    def __init__(self, device: torch.device, instrument: bool) -> None:
        self.device, self.instrument = device, instrument
        self.stages: dict[str, float] = dict.fromkeys(STAGES, 0.0) if instrument else {}
        self.seconds = 0.0
        self.begin = self.last = now(device)
        self.clock = DeviceClock(device)

    def lap(self, stage: str) -> None:
        """Book the time since the last mark on ``stage``; does nothing in a timed run."""
        if self.instrument:
            time = now(self.device)
            self.stages[stage] += time - self.last
            self.last = time

    def stop(self) -> None:
        """End of the run; what no stage claimed is "other"."""
        self.clock.stop()
        end = now(self.device)
        self.seconds = end - self.begin
        if self.instrument:
            self.stages["other"] += end - self.last

    @property
    def device_seconds(self) -> float:
        """The run by the GPU's own clock, after ``stop``; NaN on a CPU."""
        return self.clock.seconds
