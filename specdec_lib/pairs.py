"""Named target and draft pairs, and `load_pair`, which checks everything that can be checked before it reads tensors.

Importing this module, `pair_digest` and `load_tokenizer` need no torch: the runner and the prompt builder use them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from specdec_lib import smollm2, sources
from specdec_lib.errors import InvalidSetting, UnknownPair, UnsupportedModel, VocabularyMismatch
from specdec_lib.files import canonical_json, sha256_text
from specdec_lib.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer_folder

if TYPE_CHECKING:
    import torch

    from specdec_lib.model import DecoderModel, ModelConfig

NameOrPaths = str | tuple[str | Path, str | Path]
_DTYPES = ("auto", "bf16", "fp32")

DRAFT_SHA256 = {
    "draft-00001-of-00002.safetensors": "ce036fe7d1702bd64c1b45f165265dd032898c72c4a390d7c0bedf72c9f589a9",
    "draft-00002-of-00002.safetensors": "53ca63f804fa224b829bc80b2bf8b16965163c7980cf07e6a8c268258013924c",
}

_TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 128, "vocab": 320,
         "rope_theta": 10_000.0, "eps": 1e-6, "max_positions": 4096}
_TINY_LLAMA = {"kind": "llama", "tied": False, "qkv_bias": False, **_TINY}
_TINY_QWEN2 = {"kind": "qwen2", "tied": True, "qkv_bias": True, **_TINY}
_QWEN25 = {"kind": "qwen2", "tied": True, "qkv_bias": True, "kv_heads": 2, "vocab": 151_936, "rope_theta": 1e6,
           "eps": 1e-6, "max_positions": 32_768}
_QWEN25_TARGET = {"layers": 28, "hidden": 1536, "heads": 12, "head_dim": 128, "intermediate": 8960, **_QWEN25}
_QWEN25_DRAFT = {"layers": 24, "hidden": 896, "heads": 14, "head_dim": 64, "intermediate": 4864, **_QWEN25}


@dataclass(frozen=True)
class PairSpec:
    """Where a pair comes from. ``random`` pairs hold `ModelConfig` fields; ``noise`` relates the draft to the target."""

    name: str
    title: str
    source: Literal["smol", "checkpoint", "random"]
    target: str | Path | Mapping[str, Any] = ""
    draft: str | Path | Mapping[str, Any] = ""
    seed: int = 0
    noise: float = 0.0

    @property
    def synthetic(self) -> bool:
        """Random weights: timings are valid, texts and natural acceptance mean nothing."""
        return self.source == "random"


PAIRS: dict[str, PairSpec] = {
    spec.name: spec
    for spec in (
        PairSpec("smol", "SmolLM2-135M-Instruct with a 4-layer draft of the same width", "smol"),
        PairSpec("qwen2.5", "Qwen2.5-1.5B-Instruct with Qwen2.5-0.5B-Instruct", "checkpoint",
                 "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        PairSpec("qwen2.5-shapes", "Qwen2.5 shapes, 1.5B and 0.5B, random weights (synthetic)", "random",
                 _QWEN25_TARGET, _QWEN25_DRAFT),
        PairSpec("tiny-llama", "two random layers, Llama kind (synthetic)", "random", _TINY_LLAMA, _TINY_LLAMA, noise=0.1),
        PairSpec("tiny-qwen2", "two random layers, Qwen2 kind (synthetic)", "random", _TINY_QWEN2, _TINY_QWEN2, noise=0.1),
    )
}
ALIASES = {"tiny": "tiny-llama"}


@dataclass(frozen=True)
class Pair:
    """Two models that share a tokenizer. ``dtype`` is "bf16" or "fp32", ``device`` a torch device's text.

    ``digest``: hex identity of the weights. ``calibration``: timings (s) behind an automatic dtype, else empty.
    """

    name: str
    target: DecoderModel
    draft: DecoderModel
    tokenizer: Tokenizer
    dtype: str
    device: str
    digest: str
    synthetic: bool
    calibration: dict[str, float] = field(default_factory=dict)


def find_pair(name_or_paths: NameOrPaths) -> PairSpec:
    """The description of a named pair, or of two folders or hub ids given as (target, draft). Raises `UnknownPair`."""
    if isinstance(name_or_paths, str):
        name = ALIASES.get(name_or_paths, name_or_paths)
        if name not in PAIRS:
            raise UnknownPair(f"no pair named {name_or_paths!r}", expected=", ".join([*PAIRS, *ALIASES]),
                              remedy="choose one of these, or pass (target_folder, draft_folder)")
        spec = PAIRS[name]
        if name == "qwen2.5":
            target, draft = (os.environ.get(f"SPECDEC_QWEN_{role}") for role in ("TARGET", "DRAFT"))
            return PairSpec(name, spec.title, spec.source, target or spec.target, draft or spec.draft)
        return spec
    if (isinstance(name_or_paths, (tuple, list)) and len(name_or_paths) == 2
            and all(isinstance(part, (str, Path)) for part in name_or_paths)):
        target, draft = name_or_paths
        # the last part of each path: a full one would carry a machine's folders into the results
        return PairSpec(f"{Path(target).name}+{Path(draft).name}", "a reader's own pair", "checkpoint", target, draft)
    raise UnknownPair(f"a pair cannot be {name_or_paths!r}", expected="a name, or (target_folder, draft_folder)",
                      remedy="for example load_pair('smol')")


def load_tokenizer(name_or_paths: NameOrPaths) -> Tokenizer:
    """The tokenizer of a pair (the target's), without torch and without reading weights."""
    spec = find_pair(name_or_paths)
    if spec.source == "random":
        return ByteTokenizer()
    folder = smollm2.ready_folder() if spec.source == "smol" else sources.find_folder(_place(spec.target))
    return load_tokenizer_folder(folder, spec.name)


def pair_digest(name_or_paths: NameOrPaths) -> str:
    """Hex SHA-256 that names the weights of a pair: from pinned or computed file digests, or from seed and shapes.

    Does not load tensors or import torch. Only checkpoints of a reader's own are read to be hashed.
    """
    spec = find_pair(name_or_paths)
    if spec.source == "smol":
        identity: Any = {"gguf": smollm2.GGUF_SHA256, "conversion": smollm2.CONVERSION, "draft": DRAFT_SHA256}
    elif spec.source == "random":
        identity = {"rule": 1, "seed": spec.seed, "noise": spec.noise, "target": dict(_fields(spec.target)),
                    "draft": dict(_fields(spec.draft))}
    else:
        identity = [sources.folder_digest(sources.find_folder(_place(part))) for part in (spec.target, spec.draft)]
    return sha256_text(canonical_json(identity))


def load_pair(name_or_paths: NameOrPaths, device: str | torch.device | None = None,
              dtype: str | torch.dtype | None = None) -> Pair:
    """Load a pair by name (see `PAIRS`) or from two folders or hub ids, (target, draft).

    ``device`` None: CUDA when there is one, else the CPU. ``dtype``: "auto" (also None), "bf16", "fp32" or the torch
    dtype. FP32 is a widening of what is stored, so ``smol`` is one model in both dtypes. Names, dtype, device,
    configurations, tokenizers and tensor shapes are checked before tensors are read. Raises `UnknownPair`,
    `InvalidSetting`, `WeightsMissing`, `WeightsDamaged`, `UnsupportedModel` or `VocabularyMismatch`.
    """
    import torch

    from specdec_lib.calibrate import auto_dtype
    from specdec_lib.model import DecoderModel

    spec = find_pair(name_or_paths)
    dtype_name = _dtype_name(dtype)
    place = _device(device)
    parts = _prepare(spec)
    calibration: dict[str, float] = {}
    if dtype_name == "auto":
        dtype_name, calibration = auto_dtype(place)
    torch_dtype = torch.bfloat16 if dtype_name == "bf16" else torch.float32

    target = DecoderModel(parts.target, parts.read_target(place), torch_dtype, place, f"{spec.name} target")
    draft = DecoderModel(parts.draft, parts.read_draft(place, target), torch_dtype, place, f"{spec.name} draft")
    if spec.source == "smol":
        draft.head = target.head  # one copy of the shared head, in whatever form the target holds it
    target.tokenizer = draft.tokenizer = parts.tokenizer
    return Pair(spec.name, target, draft, parts.tokenizer, dtype_name, str(place), pair_digest(name_or_paths),
                spec.synthetic, calibration)


class _Parts(NamedTuple):
    """A checked pair, ready to be read."""

    target: ModelConfig
    draft: ModelConfig
    tokenizer: Tokenizer
    read_target: Any  # (device) -> tensors
    read_draft: Any  # (device, target model) -> tensors


def _prepare(spec: PairSpec) -> _Parts:
    from specdec_lib.model import ModelConfig
    from specdec_lib.weights import EMBEDDING, RandomWeights, check_folder, load_weights

    if spec.source == "random":
        target, draft = ModelConfig(**_fields(spec.target)), ModelConfig(**_fields(spec.draft))
        return _Parts(target, draft, ByteTokenizer(),
                      lambda device: load_weights(RandomWeights(spec.seed), target, device=device),
                      lambda device, _: load_weights(RandomWeights(spec.seed, spec.noise), draft, device=device))

    if spec.source == "smol":
        folder, draft_folder = smollm2.ready_folder(), draft_model_folder()
        sources.verify(draft_folder, DRAFT_SHA256, "restore data/models/smol-draft from the repository: git checkout")
        target, draft = (ModelConfig.from_hf(sources.read_config(path)) for path in (folder, draft_folder))
        check_folder(folder, target)
        check_folder(draft_folder, draft, frozenset({EMBEDDING}))
        return _Parts(target, draft, load_tokenizer_folder(folder, spec.name),
                      lambda device: load_weights(folder, target),
                      lambda device, model: load_weights(draft_folder, draft, given={EMBEDDING: model.embedding}))

    folders = [sources.find_folder(_place(part)) for part in (spec.target, spec.draft)]
    target, draft = (ModelConfig.from_hf(sources.read_config(folder)) for folder in folders)
    tokenizer, other = (load_tokenizer_folder(folder, spec.name) for folder in folders)
    _same_vocabulary(tokenizer, other)
    for folder, config in zip(folders, (target, draft), strict=True):
        check_folder(folder, config)
        if config.vocab < tokenizer.vocab_size:
            raise UnsupportedModel(f"{folder}: {config.vocab} embedding rows for {tokenizer.vocab_size} token ids",
                                   expected="at least one row per id", remedy="use the tokenizer that belongs to the weights")
    rows = min(target.vocab, draft.vocab)
    return _Parts(_cut(target, rows), _cut(draft, rows), tokenizer,
                  lambda device: _cut_rows(load_weights(folders[0], target), rows),
                  lambda device, _: _cut_rows(load_weights(folders[1], draft), rows))


def _same_vocabulary(tokenizer: Tokenizer, other: Tokenizer) -> None:
    if tokenizer.fingerprint != other.fingerprint:
        raise VocabularyMismatch(
            f"the draft's tokenizer ({other.vocab_size} ids, {other.fingerprint[:12]}) is not the target's "
            f"({tokenizer.vocab_size} ids, {tokenizer.fingerprint[:12]})",
            expected="the same vocabulary, merges and added tokens in both", remedy="choose a draft of the same family")


def _cut(config: ModelConfig, rows: int) -> ModelConfig:
    """Both models keep as many embedding rows as the shorter one has.

    Public checkpoints pad the table to different lengths. Rows beyond the tokenizer's ids stand for no token, so
    nothing is lost, the draft cannot propose an id that the target lacks, and the target cannot choose one that the
    draft cannot read.
    """
    from dataclasses import replace

    return config if config.vocab == rows else replace(config, vocab=rows)


def _cut_rows(weights: dict[str, torch.Tensor], rows: int) -> dict[str, torch.Tensor]:
    from specdec_lib.weights import EMBEDDING, HEAD

    return {name: tensor[:rows] if name in (EMBEDDING, HEAD) else tensor for name, tensor in weights.items()}


def draft_model_folder() -> Path:
    """The committed draft of the pair ``smol``."""
    return sources.ROOT / "data" / "models" / "smol-draft"


def _fields(part: Any) -> Mapping[str, Any]:
    assert isinstance(part, Mapping)
    return part


def _place(part: Any) -> str | Path:
    assert isinstance(part, (str, Path))
    return part


def _dtype_name(dtype: Any) -> str:
    name = {"None": "auto", "torch.bfloat16": "bf16", "torch.float32": "fp32"}.get(str(dtype), str(dtype))
    if name not in _DTYPES:
        raise InvalidSetting(f"dtype {dtype!r}", expected="auto, bf16, fp32, torch.bfloat16 or torch.float32",
                             remedy="choose one of them")
    return name


def _device(device: Any) -> torch.device:
    import torch

    try:
        place = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    except (RuntimeError, TypeError) as error:
        raise InvalidSetting(f"device {device!r}", expected="cpu, cuda or cuda:N", remedy="choose one of them") from error
    if place.type not in ("cpu", "cuda"):
        raise InvalidSetting(f"device {device!r} is not supported", expected="cpu or cuda", remedy="choose one of them")
    if place.type == "cuda":
        count = torch.cuda.device_count()
        if (place.index or 0) >= count:
            raise InvalidSetting(f"device {device!r}, but torch sees {count} CUDA device(s)", expected="a device that exists",
                                 remedy="use device='cpu', or install a CUDA build of torch")
    return place
