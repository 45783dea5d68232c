"""Does a profile fit this machine, its cores and its GPU's memory? Known before anything is loaded. No torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .design import Design, Profile
from .errors import InvalidSetting, NoCudaDevice, OutOfDeviceMemory
from .pairs import ALIASES, PAIRS
from .roofline import kv_bytes, weight_bytes

GIB = 1 << 30
# CUDA's own context, the activations of a prefill chunk, logits, captured graphs.
WORK_BYTES = int(0.9 * GIB)
GRAIN = 2048  # captured caches are a multiple of it
_SMOL: dict[str, Any] = dict(
    kind="llama", hidden=576, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49_152, qkv_bias=False
)  # fmt: skip
_SHAPES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "smol": ({**_SMOL, "layers": 30}, {**_SMOL, "layers": 4}),
    **{name: spec.shapes for name, spec in PAIRS.items() if spec.shapes},
}
_SHAPES["qwen2.5"] = _SHAPES["qwen2.5-shapes"]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_cores(profile: Profile) -> None:
    """Raise ``InvalidSetting`` if the profile pins more threads than there are cores: they would wait for each other,
    and the times would tell nothing about the design."""
    if profile.threads <= (there := cores()):
        return
    raise InvalidSetting(
        f"profile {profile.name!r} has threads = {profile.threads}; cores that this process may use: {there}",
        expected=f"threads of at most {there}, or 0 for every core, where the profile is measured here",
        remedy="measure it on a machine with as many cores, or choose another profile (`make doctor` lists them); in a "
        "profile of your own change its threads in design.toml",
    )


def require_gpu(profile: Profile) -> None:
    """Raise ``NoCudaDevice`` if the profile is measured on a GPU and torch sees none: before weights are fetched."""
    if profile.device != "cuda":
        return
    import torch  # takes a second or two, and only these profiles ask

    if not torch.cuda.is_available():
        raise NoCudaDevice(
            f"profile {profile.name!r} is measured on a GPU, and torch sees none",
            expected="an NVIDIA GPU with its driver, and a build of torch for CUDA",
            remedy="choose a profile with device = 'cpu' (`make doctor` lists what can run here), or see the page "
            '"Run it on your 8 GB GPU"',
        )


def needed_bytes(profile: Profile, context: int | None = None) -> int:
    """GPU memory that a job of ``profile`` takes at ``context`` (its longest, if not given).

    Weights of both models, the caches of a prompt and its new tokens (in a captured mode a second time, in the graphs'
    own caches), and working memory. Known pairs only: a reader's own checkpoints give just the working memory.
    """
    context = context or max(profile.contexts)
    total, width = WORK_BYTES, 4 if profile.dtype == "fp32" else 2
    for shape in _SHAPES.get(ALIASES.get(profile.pair, profile.pair), ()):
        config: Any = SimpleNamespace(**shape)
        total += weight_bytes(config, width) + kv_bytes(config, context, width)
        if profile.captured:
            total += kv_bytes(config, -(-context // GRAIN) * GRAIN, width)
    return total


def free_bytes() -> int | None:
    """Free memory of the first GPU, or None where nvidia-smi does not say."""
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    query = [program, "--id=0", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return int(done.stdout.strip()) << 20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def fitting_contexts(profile: Profile, room: int) -> tuple[int, ...]:
    """The contexts of ``profile`` that ``room`` bytes are enough for."""
    return tuple(context for context in profile.contexts if needed_bytes(profile, context) <= room)


def require_room(design: Design, profile: Profile) -> None:
    """Raise ``OutOfDeviceMemory``, with what would fit, if the GPU's free memory or the profile's own cap is too small.

    Where nothing tells the free memory, nothing is refused: a job's own outcome then says it.
    """
    if profile.device != "cuda":
        return
    free, need = free_bytes(), needed_bytes(profile)
    cap = None if profile.memory_cap_gib is None else int(profile.memory_cap_gib * GIB)
    room = min((size for size in (free, cap) if size is not None), default=need)
    if need <= room:
        return
    others = [name for name in design.profiles if name != profile.name and _fits(design.profile(name), room)]
    contexts = ", ".join(map(str, fitting_contexts(profile, room)))
    raise OutOfDeviceMemory(
        f"profile {profile.name!r} needs about {need / GIB:.1f} GiB of GPU memory, and there are {room / GIB:.1f} GiB"
        + (
            f" under its cap of {profile.memory_cap_gib:g} GiB"
            if cap is not None and room == cap
            else " free"
        ),
        expected=f"at least {need / GIB:.1f} GiB",
        remedy=f"end what else uses the GPU; of this profile's contexts, {contexts or 'none'} would fit"
        + (f"; other profiles that would: {', '.join(others)}" if others else ""),
    )


def _fits(profile: Profile, room: int) -> bool:
    return profile.device != "cuda" or needed_bytes(profile) <= room
