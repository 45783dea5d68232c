"""What this machine can run: ``make doctor``. Torch is asked only if installed, and nothing is fetched."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specdec_lib.design import Profile, load_design
from specdec_lib.errors import InvalidSetting, TableMissing, UnknownPair
from specdec_lib.pairs import find_pair
from specdec_lib.paths import DESIGN_FILE
from specdec_lib.pipeline.runner import require_traces
from specdec_lib.pipeline.table import steps
from specdec_lib.room import GIB, cores, fitting_contexts, needed_bytes

# Rough needs of a job on a CPU: weights of both models, caches at 8K and working memory. Measured peaks are in
# the results.
_NEEDS_GIB = {"smol": 3.0, "qwen2.5": 6.0, "qwen2.5-shapes": 6.0}


@dataclass(frozen=True)
class Machine:
    """What was found. Sizes in bytes; ``gpu_free`` is 0 without a GPU."""

    cores: int
    memory: int
    memory_free: int
    disk_free: int
    gpu: str
    gpu_free: int
    driver: str
    torch: str
    triton: bool
    chromium: str


def look(root: Path) -> Machine:
    """Ask the system; takes a second or two, for torch."""
    import psutil

    memory = psutil.virtual_memory()
    version, gpu, gpu_free = "", "", 0
    if importlib.util.find_spec("torch"):
        import torch

        version = str(torch.__version__)
        if torch.cuda.is_available():
            gpu = torch.cuda.get_device_name(0)
            gpu_free = torch.cuda.mem_get_info(0)[0]
    return Machine(
        cores=cores(),
        memory=memory.total,
        memory_free=memory.available,
        disk_free=shutil.disk_usage(root).free,
        gpu=gpu,
        gpu_free=gpu_free,
        driver=_driver(),
        torch=version,
        triton=importlib.util.find_spec("triton") is not None,
        chromium=next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""),
    )


def report(root: Path, machine: Machine | None = None) -> Iterator[str]:
    """Lines to print: the machine, the weights, and each profile with its estimate and what it lacks here."""
    found = machine or look(root)
    yield "This machine"
    yield f"  cores            {found.cores}"
    yield f"  memory           {found.memory / GIB:.1f} GiB, {found.memory_free / GIB:.1f} GiB free"
    yield f"  disk             {found.disk_free / GIB:.1f} GiB free"
    gpu = f"{found.gpu}, {found.gpu_free / GIB:.1f} GiB free" if found.gpu else "none that torch sees"
    yield f"  GPU              {gpu}"
    yield f"  NVIDIA driver    {found.driver or 'none'}"
    yield f"  Python           {platform.python_version()}"
    yield f"  torch            {found.torch or 'not installed'}"
    yield f"  Triton           {'installed' if found.triton else 'not installed (for GPU kernels only)'}"
    yield f"  Chromium         {'found' if found.chromium else 'none: the browser tests are skipped'}"
    yield "Weights"
    for name, state in _weights(root):
        yield f"  {name:<16} {state}"
    yield "Profiles (make runs PROFILE=...)"
    design = load_design(root / DESIGN_FILE)
    width = max(map(len, design.profiles))
    for name in design.profiles:
        profile = design.profile(name)
        lacks = missing(profile, found) + _traces(root, profile)
        verdict = "can run here" if not lacks else "cannot run here: " + "; ".join(lacks)
        yield f"  {name:<{width}} {_duration(profile.total_minutes)}; {verdict}. {profile.title}."


def missing(profile: Profile, machine: Machine) -> list[str]:
    """What ``machine`` lacks for ``profile``, or the profile itself; nothing when it can run."""
    lacks = []
    try:
        find_pair(profile.pair)
        steps(profile)
    except (UnknownPair, InvalidSetting) as error:
        lacks.append(str(error).splitlines()[0].rstrip("."))
    need = _NEEDS_GIB.get(profile.pair, 1.0)
    if not machine.torch:
        lacks.append("torch is not installed")
    if profile.device == "cuda":
        if not machine.gpu:
            lacks.append("no GPU")
        elif machine.gpu_free < needed_bytes(profile):
            fitting = ", ".join(map(str, fitting_contexts(profile, machine.gpu_free))) or "none"
            lacks.append(
                f"{needed_bytes(profile) / GIB:.1f} GiB of free GPU memory needed, there are "
                f"{machine.gpu_free / GIB:.1f}; of its contexts {fitting} would fit"
            )
        if profile.mode == "compiled" and not machine.triton:
            lacks.append("Triton is not installed")
    elif machine.memory_free < need * GIB:
        lacks.append(f"{need:g} GiB of free memory needed")
    if profile.threads > machine.cores:
        lacks.append(f"threads = {profile.threads}, cores: {machine.cores}")
    return lacks


def _traces(root: Path, profile: Profile) -> list[str]:
    try:
        require_traces(root, profile)
    except TableMissing as error:
        return [str(error).splitlines()[0].rstrip(".")]
    return []


def _duration(minutes: float) -> str:
    return f"about {minutes / 60:.1f} h" if minutes >= 90 else f"about {max(1, round(minutes))} min"


def _weights(root: Path) -> Iterator[tuple[str, str]]:
    models = Path(os.environ.get("SPECDEC_MODELS") or root / "data" / "models")
    target = models / "smollm2-135m-instruct" / "model.safetensors"
    draft = root / "data" / "models" / "smol-draft"
    yield "smol target", "present" if target.is_file() else "fetched from PyPI on first use (98 MB)"
    there = any(draft.glob("*.safetensors"))
    yield "smol draft", "present" if there else "missing: restore data/models/smol-draft from git"
    folders = [os.environ.get(name, "") for name in ("SPECDEC_QWEN_TARGET", "SPECDEC_QWEN_DRAFT")]
    ready = all(folder and Path(folder).is_dir() for folder in folders)
    hub = "from the Hugging Face hub, or SPECDEC_QWEN_TARGET and SPECDEC_QWEN_DRAFT"
    yield "qwen2.5", "local folders given" if ready else hub


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if not program:
        return ""
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi does not answer"
    said = done.stdout.strip().splitlines()
    return said[0] if done.returncode == 0 and said else "nvidia-smi fails"
