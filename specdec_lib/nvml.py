"""The GPU's clocks, power, throttle reasons, other processes. No torch; None where there is no NVML."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

# NVML's bits that slow the clocks down; idle and application settings are left out.
REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip
QUERY = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,clocks_throttle_reasons.active"


@dataclass(frozen=True)
class GpuState:
    """One reading. ``throttled``: reasons now; ``others``: processes on the GPU that are not this one, None if
    unknown."""

    name: str
    driver: str
    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    memory_used_bytes: int
    throttled: tuple[str, ...]
    others: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def reasons(bits: int) -> tuple[str, ...]:
    """Names of the set bits that slow the clocks down."""
    return tuple(name for bit, name in REASONS.items() if bits & bit)


def read_gpu(index: int = 0) -> GpuState | None:
    """The state of GPU ``index`` through pynvml, else nvidia-smi; None where neither answers."""
    try:
        return _through_pynvml(index)
    except ImportError:
        return _through_smi(index)


def _through_pynvml(index: int) -> GpuState | None:
    import pynvml as nvml  # type: ignore[import-not-found]

    try:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            pids = [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
            others = sum(pid != os.getpid() for pid in pids)
        except nvml.NVMLError:
            others = None
        return GpuState(
            name=_text(nvml.nvmlDeviceGetName(gpu)),
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            sm_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            memory_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            power_w=nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            temperature_c=nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
            memory_used_bytes=int(nvml.nvmlDeviceGetMemoryInfo(gpu).used),
            throttled=reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
            others=others,
        )
    except nvml.NVMLError:
        return None


def _through_smi(index: int) -> GpuState | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--id={index}", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_smi(done.stdout)


def parse_smi(line: str) -> GpuState | None:
    """A line of ``nvidia-smi --query-gpu``; None where a field is not a number (such as "[N/A]")."""
    try:
        name, driver, sm, memory, power, temperature, used, bits = (part.strip() for part in line.split(","))
        return GpuState(
            name, driver, int(sm), int(memory), float(power), int(temperature), int(used) << 20,
            reasons(int(bits, 16)), None,
        )  # fmt: skip
    except ValueError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def gpu_columns(device: str, event_s: float) -> dict[str, Any]:
    """What a timed run on ``device`` records about the GPU, read right after it; nothing on a CPU."""
    if not device.startswith("cuda"):
        return {}
    import torch  # only here: who gets this far has it

    state = read_gpu()
    return {
        "device_event_s": event_s,
        "throttled": None if state is None else bool(state.throttled),
        "other_gpu_processes_n": None if state is None else state.others,
        "gpu_mhz": None if state is None else state.sm_mhz,
        "gpu_power_w": None if state is None else state.power_w,
        "gpu_peak_bytes": torch.cuda.max_memory_allocated(device),
    }
