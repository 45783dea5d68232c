"""Where results come from: code, design, packages and machine, written beside them. No torch is imported."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from . import paths
from .errors import TableError
from .files import atomic_write
from .jobs import engines, outcomes
from .nvml import read_gpu

if TYPE_CHECKING:
    from .study import Study

PACKAGES = ("torch", "transformers", "triton", "numpy", "scipy", "pandas", "tokenizers", "safetensors")
MACHINE = "machine.json"
_DESCRIBED = ("git", "machine", "packages", "gpu_at_start")  # what `describe` gives
COMMIT = "SPECDEC_COMMIT"  # names the commit of a copy that has no history of its own


def write_provenance(study: Study) -> dict[str, Any]:
    """Write ``provenance.json`` into the study's data folder and return it.

    The first run of a folder fixes "started"; later runs renew the rest. Machine, packages and commit are those that
    measured: where the folder has them recorded (:func:`record_machine`) those, else what the file says already, where
    no job was measured since, else those of now. Holds no path, user or host name.
    """
    path = study.folder / "provenance.json"
    known = _known(path)
    today = datetime.now(UTC).date().isoformat()
    by = engines(study.folder)
    record = {
        "profile": study.profile.name,
        "title": study.profile.title,
        "design_hash": study.design_hash,
        "analysis_hash": study.design.analysis_hash(),
        "engine_hash": paths.engine_hash(),
        "measured_by": by,
        "started": known.get("started", today),
        "renewed": today,
        **(
            recorded_machine(study.folder)
            or _kept(study, known, by)
            or describe(study.folder.name, study.threads)
        ),
        "device": {key: value for key, value in study.machine.items() if key != "models"},
        "models": study.machine["models"],
    }
    if full := outcomes(study.folder, "out_of_memory"):
        record["out_of_memory"] = full
    atomic_write(path, json.dumps(record, indent=1, sort_keys=False) + "\n")
    return record


def _known(path: Path) -> dict[str, Any]:
    """What the file says so far; nothing where there is none. Raises ``TableError`` for one that is damaged."""
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise TableError(
            f"data/{path.parent.name}/{path.name} is damaged: it holds no JSON object",
            expected="the record as it was written",
            remedy="restore it with git if it is there; else delete it, and it is written anew from the jobs",
        )
    return known


def _kept(study: Study, known: dict[str, Any], by: dict[str, int]) -> dict[str, Any] | None:
    """What ``known`` says of the machine that measured, or None where jobs came since, from this process or another."""
    if any(study.measured) or known.get("measured_by") != by:
        return None
    found = {name: known[name] for name in _DESCRIBED if name in known}
    return found if "machine" in found else None


def describe(folder: str, threads: int) -> dict[str, Any]:
    """What a result of ``data/<folder>`` depends on besides the design: the commit, this machine, the packages."""
    gpu = read_gpu()
    return {
        "git": git_state(folder),
        "machine": machine(threads),
        "packages": {name: v for name in PACKAGES if (v := version(name))},
    } | ({} if gpu is None else {"gpu_at_start": gpu.as_dict()})


def record_machine(folder: Path, threads: int) -> None:
    """Write down beside the jobs what measures them, for tables that are made from them elsewhere."""
    today = datetime.now(UTC).date().isoformat()
    content = {"measured": today, **describe(folder.name, threads)}
    atomic_write(folder / MACHINE, json.dumps(content, indent=1) + "\n")


def recorded_machine(folder: Path) -> dict[str, Any] | None:
    """What :func:`record_machine` wrote, or None."""
    path = folder / MACHINE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def git_state(folder: str) -> dict[str, Any]:
    """Commit, and whether tracked files outside ``data/<folder>`` differ from it; "unknown" outside a checkout.

    A copy without that history names its commit in ``SPECDEC_COMMIT``; nothing is known of differences then.
    """
    if named := os.environ.get(COMMIT):
        return {"commit": named, "dirty": None}

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=paths.project_root(), capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    # Results are what is being written; everything else is a source.
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude)data/{folder}")
    return {
        "commit": commit or os.environ.get(COMMIT, "unknown"),
        "dirty": None if changes is None else bool(changes),
    }


def machine(threads: int) -> dict[str, Any]:
    """What the CPU side of a result depends on."""
    frequency = psutil.cpu_freq()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cores": psutil.cpu_count(logical=True),
        "threads_used": threads,
        "memory_bytes": psutil.virtual_memory().total,
        "cpu_mhz": frequency.current if frequency else None,
        "governor": read_first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo_off": read_first("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "virtual": "hypervisor" in (cpu_flags() or ()),
        "instructions": sorted(
            set(cpu_flags() or ()) & {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"}
        ),
        "python": platform.python_version(),
        "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    return cpu_info("model name") or platform.processor() or "unknown"


def cpu_flags() -> list[str] | None:
    """Instruction set flags, where Linux lists them."""
    flags = cpu_info("flags") or cpu_info("Features")
    return flags.split() if flags else None


def cpu_info(key: str) -> str | None:
    """The first value of ``key`` in Linux' /proc/cpuinfo."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return None
    lines = (line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    return next((value.strip() for name, value in lines if name.strip() == key), None)


def read_first(path: str) -> str | None:
    """First line of a system file, or None where there is none."""
    file = Path(path)
    return file.read_text().strip().splitlines()[0] if file.is_file() else None


def version(package: str) -> str | None:
    """Installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
