"""Checkpoint tensors under their Hugging Face names: read from safetensors, or seeded random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .config import ModelConfig
from .errors import UnsupportedModel, WeightsDamaged
from .sources import find_folder, weight_files

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_FLOATS = {"BF16", "F16", "F32"}
_AGAIN = "fetch this file again"


@dataclass(frozen=True)
class RandomWeights:
    """Seeded random weights; ``noise`` adds independent numbers of that share of each tensor's own spread.

    With the same seed, noise 0 is a target and noise > 0 a draft that agrees with it often but not always.
    """

    seed: int
    noise: float = 0.0


def load_weights(
    source: str | Path | RandomWeights,
    config: ModelConfig,
    *,
    device: str | torch.device = "cpu",
    given: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """All tensors of ``config.shapes()`` by Hugging Face name.

    ``source``: a folder, a hub id or `RandomWeights`. ``given``: tensors that the checkpoint leaves out
    because it shares them with another model. Tensors of a file keep their stored dtype, and matrices are
    views of the mapped file; random ones are BF16 on ``device``. Raises `WeightsMissing`, `WeightsDamaged`
    (unreadable, missing tensor, wrong shape) or `UnsupportedModel` (quantised, or tensors that the forward
    would not use) before it reads.
    """
    if isinstance(source, RandomWeights):
        return random_weights(config, source, device)
    return _read(find_folder(source), config, dict(given or {}))


def check_folder(folder: Path, config: ModelConfig, given: Collection[str] = ()) -> None:
    """Check names, shapes and dtypes of a folder's tensors against ``config``, from the headers alone."""
    with ExitStack() as stack:
        _check(folder, config, _open(folder, stack), given)


def _open(folder: Path, stack: ExitStack) -> dict[str, tuple[Path, Any]]:
    """Tensor name -> (file, open handle) over all files of a folder."""
    where: dict[str, tuple[Path, Any]] = {}
    for path in weight_files(folder):
        try:
            handle = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:  # a cut file fails here: its header tells the full length
            raise WeightsDamaged(
                f"{path} cannot be read: {error}", expected="a complete safetensors file", remedy=_AGAIN
            ) from error
        where |= {name: (path, handle) for name in handle.keys()}  # noqa: SIM118 (not a dict)
    return where


def _check(
    folder: Path, config: ModelConfig, where: dict[str, tuple[Path, Any]], given: Collection[str]
) -> None:
    shapes = config.shapes()
    for name, shape in shapes.items():
        if name in given:
            continue
        if name not in where:
            raise WeightsDamaged(
                f"{folder}: tensor {name} is missing",
                expected=f"shape {shape}, as config.json says",
                remedy="fetch the weights again, or check that config.json belongs to them",
            )
        path, handle = where[name]
        part = handle.get_slice(name)
        if tuple(part.get_shape()) != shape:
            raise WeightsDamaged(
                f"{path}: tensor {name} has shape {tuple(part.get_shape())}",
                expected=f"{shape}, as config.json says",
                remedy="fetch the weights again, or check that config.json belongs to them",
            )
        if part.get_dtype() not in _FLOATS:
            raise UnsupportedModel(
                f"{path}: tensor {name} is stored as {part.get_dtype()}",
                expected="BF16, F16 or F32",
                remedy="use the unquantised checkpoint",
            )
    # a tied checkpoint may repeat its head; old Llama files carry a rotary table that is computed here
    unused = [
        name
        for name in where
        if name not in shapes and name != HEAD and not name.endswith("rotary_emb.inv_freq")
    ]
    if unused:
        raise UnsupportedModel(
            f"{folder}: tensor {min(unused)} and {len(unused) - 1} more have no use here",
            expected="only the tensors of a plain Llama or Qwen2 decoder",
            remedy="use a checkpoint without adapters, quantisation or extra heads",
        )


def _read(folder: Path, config: ModelConfig, given: dict[str, Tensor]) -> dict[str, Tensor]:
    with ExitStack() as stack:
        where = _open(folder, stack)
        _check(folder, config, where, given)

        def read(name: str) -> Tensor:
            tensor = where[name][1].get_tensor(name)
            # The model repacks matrices but may keep these as they are: a view would hold the whole file in
            # memory, and break when the file changes.
            return tensor.clone() if tensor.ndim == 1 or name in (EMBEDDING, HEAD) else tensor

        return {name: given[name] if name in given else read(name) for name in config.shapes()}


def random_weights(
    config: ModelConfig, rule: RandomWeights, device: str | torch.device = "cpu"
) -> dict[str, Tensor]:
    """Seeded BF16 tensors: matrices N(0, 1 / fan-in), norms 1 + N(0, 0.1), biases and embedding N(0, 0.02).

    1 / fan-in keeps activations near 1 at any width (at 1,536 it is the usual initialiser's 0.02). Each
    tensor has a generator of its own, seeded from its name, so the numbers do not depend on the order. They
    are drawn on ``device``: a CPU and a GPU give different, equally reproducible numbers.
    """
    device = torch.device(device)
    return {name: _random(name, shape, rule, device) for name, shape in config.shapes().items()}


def _random(name: str, shape: tuple[int, ...], rule: RandomWeights, device: torch.device) -> Tensor:
    is_norm, is_small = len(shape) == 1 and "norm" in name, len(shape) == 1 or name == EMBEDDING
    spread = 0.1 if is_norm else 0.02 if is_small else shape[-1] ** -0.5

    def normal(label: str) -> Tensor:
        seed = int.from_bytes(hashlib.sha256(f"{rule.seed}/{label}/{name}".encode()).digest()[:7], "big")
        generator = torch.Generator(device=device).manual_seed(seed)
        return torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16).mul_(spread)

    tensor = normal("base")
    if is_norm:
        tensor += 1
    if rule.noise:
        tensor += rule.noise * normal("noise")
    return tensor


def fingerprint(tensors: list[Tensor], each: int = 64) -> str:
    """16 hex digits by which the weights of two models are told apart: a hash over values spread over every tensor.

    Training or another seed changes nearly all values, so a sample will do; it is no proof against a single edit.
    """
    sample = [t.flatten()[:: max(1, t.numel() // each)][:each].float().cpu() for t in tensors]
    return hashlib.sha256(torch.cat(sample).numpy().tobytes()).hexdigest()[:16]
