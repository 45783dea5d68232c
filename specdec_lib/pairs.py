"""Named target and draft pairs, and `load_pair`, which checks all it can before it reads a tensor.

Importing this module, `pair_digest` and `load_tokenizer` need no torch: the runner and the prompt builder
use them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import smollm2, sources
from .errors import UnknownPair, UnsupportedModel, VocabularyMismatch
from .files import canonical_json, sha256_text
from .tokenizer import ByteTokenizer, Tokenizer, load_tokenizer_folder

if TYPE_CHECKING:
    import torch

    from .config import ModelConfig
    from .model import DecoderModel

Place = str | Path
DRAFT_SHA256 = {
    "draft-00001-of-00002.safetensors": "ce036fe7d1702bd64c1b45f165265dd032898c72c4a390d7c0bedf72c9f589a9",
    "draft-00002-of-00002.safetensors": "53ca63f804fa224b829bc80b2bf8b16965163c7980cf07e6a8c268258013924c",
}

# fields of ModelConfig, kept as plain dicts because that class lives beside torch
_TINY = dict(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=320)
_TINY |= dict(rope_theta=1e4, eps=1e-6, max_positions=4096)
_TINY_LLAMA = dict(kind="llama", tied=False, qkv_bias=False, **_TINY)
_TINY_QWEN2 = dict(kind="qwen2", tied=True, qkv_bias=True, **_TINY)
_QWEN = dict(kind="qwen2", tied=True, qkv_bias=True, kv_heads=2, vocab=151_936)
_QWEN |= dict(rope_theta=1e6, eps=1e-6, max_positions=32_768)
_QWEN_15B = dict(layers=28, hidden=1536, heads=12, head_dim=128, intermediate=8960, **_QWEN)
_QWEN_05B = dict(layers=24, hidden=896, heads=14, head_dim=64, intermediate=4864, **_QWEN)


@dataclass(frozen=True)
class PairSpec:
    """A pair from ``places`` (folders or hub ids), from ``shapes`` (random weights), or smol (neither)."""

    name: str
    title: str
    places: tuple[Place, Place] | None = None
    shapes: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    seed: int = 0
    noise: float = 0.0  # of a random draft that is its target slightly disturbed; 0: two unrelated models

    @property
    def synthetic(self) -> bool:
        """Random weights: timings are valid, texts and natural acceptance mean nothing."""
        return self.shapes is not None


_QWEN_IDS = ("Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct")
_TABLE = (
    PairSpec("smol", "SmolLM2-135M-Instruct with a 4-layer draft of the same width"),
    PairSpec("qwen2.5", "Qwen2.5-1.5B-Instruct with Qwen2.5-0.5B-Instruct", places=_QWEN_IDS),
    PairSpec("qwen2.5-shapes", "Qwen2.5 shapes, random weights (synthetic)", shapes=(_QWEN_15B, _QWEN_05B)),
    PairSpec(
        "tiny-llama", "two random Llama layers (synthetic)", shapes=(_TINY_LLAMA, _TINY_LLAMA), noise=0.1
    ),
    PairSpec(
        "tiny-qwen2", "two random Qwen2 layers (synthetic)", shapes=(_TINY_QWEN2, _TINY_QWEN2), noise=0.1
    ),
)
PAIRS: dict[str, PairSpec] = {spec.name: spec for spec in _TABLE}
ALIASES = {"tiny": "tiny-llama"}


@dataclass(frozen=True)
class Pair:
    """Two models that share a tokenizer. ``dtype`` is "bf16" or "fp32", ``device`` a torch device's text.

    ``digest``: hex identity of the weights. ``calibration``: seconds behind an automatic dtype, else empty.
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


def find_pair(name_or_paths: str | tuple[Place, Place]) -> PairSpec:
    """The description of a named pair, or of (target, draft) folders or hub ids. Raises `UnknownPair`."""
    if isinstance(name_or_paths, str):
        name = ALIASES.get(name_or_paths, name_or_paths)
        if name in PAIRS:
            return _own_folders(PAIRS[name]) if name == "qwen2.5" else PAIRS[name]
    elif (
        isinstance(name_or_paths, (tuple, list))
        and [isinstance(p, Place) for p in name_or_paths] == [True] * 2
    ):
        target, draft = name_or_paths
        # the last part of each path: a full one would carry a machine's folders into the results
        return PairSpec(
            f"{Path(target).name}+{Path(draft).name}", "a reader's own pair", places=(target, draft)
        )
    raise UnknownPair(
        f"no pair {name_or_paths!r}",
        expected=", ".join([*PAIRS, *ALIASES]) + ", or (target_folder, draft_folder)",
        remedy="choose one of these",
    )


def _own_folders(spec: PairSpec) -> PairSpec:
    """The Qwen pair, from the reader's folders where SPECDEC_QWEN_TARGET and SPECDEC_QWEN_DRAFT name them."""
    target, draft = (os.environ.get(f"SPECDEC_QWEN_{role}") for role in ("TARGET", "DRAFT"))
    return dataclasses.replace(spec, places=(target or _QWEN_IDS[0], draft or _QWEN_IDS[1]))


def load_tokenizer(name_or_paths: str | tuple[Place, Place]) -> Tokenizer:
    """The tokenizer of a pair (the target's), without torch and without reading weights."""
    spec = find_pair(name_or_paths)
    if spec.shapes:
        return ByteTokenizer()
    folder = sources.find_folder(spec.places[0]) if spec.places else smollm2.ready_folder()
    return load_tokenizer_folder(folder, spec.name)


def pair_digest(name_or_paths: str | tuple[Place, Place]) -> str:
    """Hex SHA-256 that names the weights of a pair: from file digests, or from seed and shapes.

    Imports no torch and loads no tensor. ``smol`` is known from its pinned digests, so nothing is fetched;
    only a reader's own checkpoints are (fetched from the hub and) read through.
    """
    spec = find_pair(name_or_paths)
    if spec.shapes:
        shapes = [dict(shape) for shape in spec.shapes]
        identity: Any = {"random": 1, "seed": spec.seed, "noise": spec.noise, "shapes": shapes}
    elif spec.places:
        identity = [sources.folder_digest(sources.find_folder(place)) for place in spec.places]
    else:
        identity = {"gguf": smollm2.GGUF_SHA256, "conversion": smollm2.CONVERSION, "draft": DRAFT_SHA256}
    return sha256_text(canonical_json(identity))


def load_pair(
    name_or_paths: str | tuple[Place, Place],
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Pair:
    """Load a pair by name (see `PAIRS`), or from (target, draft) folders or hub ids.

    ``device`` None: CUDA when there is one, else the CPU. ``dtype``: "auto" (also None), "bf16", "fp32" or a
    torch dtype. FP32 widens what is stored, so ``smol`` is one model in both dtypes. Names, dtype, device,
    configurations, tokenizers and tensor shapes are checked before tensors are read. Raises `UnknownPair`,
    `InvalidSetting`, `WeightsMissing`, `WeightsDamaged`, `UnsupportedModel` or `VocabularyMismatch`.
    """
    import torch

    from .calibrate import auto_dtype, parse_device, parse_dtype
    from .model import DecoderModel

    spec, dtype_name, place = find_pair(name_or_paths), parse_dtype(dtype), parse_device(device)
    prepare = _prepare_random if spec.shapes else _prepare_folders if spec.places else _prepare_smol
    tokenizer, target_half, draft_half = prepare(spec, place)
    calibration: dict[str, float] = {}
    if dtype_name == "auto":
        dtype_name, calibration = auto_dtype(place)
    number = torch.bfloat16 if dtype_name == "bf16" else torch.float32
    target = DecoderModel(target_half.config, target_half.read(None), number, place, f"{spec.name} target")
    draft = DecoderModel(draft_half.config, draft_half.read(target), number, place, f"{spec.name} draft")
    if spec.name == "smol":
        draft.head = target.head  # one copy of the shared head, in the form in which the target holds it
    target.tokenizer = draft.tokenizer = tokenizer
    digest = pair_digest(name_or_paths)
    return Pair(
        spec.name, target, draft, tokenizer, dtype_name, str(place), digest, spec.synthetic, calibration
    )


class _Half(NamedTuple):
    """One checked model of a pair. ``read`` gives its tensors; the draft's is passed the loaded target."""

    config: ModelConfig
    read: Callable[[DecoderModel | None], dict[str, torch.Tensor]]


_Prepared = tuple[Tokenizer, _Half, _Half]


def _prepare_random(spec: PairSpec, device: torch.device) -> _Prepared:
    from .config import ModelConfig
    from .weights import RandomWeights, random_weights

    assert spec.shapes
    target, draft = (ModelConfig(**shape) for shape in spec.shapes)
    rule = RandomWeights(spec.seed, spec.noise)
    return (
        ByteTokenizer(),
        _Half(target, lambda _: random_weights(target, RandomWeights(spec.seed), device)),
        _Half(draft, lambda _: random_weights(draft, rule, device)),
    )


def _prepare_smol(spec: PairSpec, device: torch.device) -> _Prepared:
    from .config import ModelConfig
    from .weights import EMBEDDING, check_folder, load_weights

    folder, draft_folder = smollm2.ready_folder(), sources.ROOT / "data" / "models" / "smol-draft"
    sources.verify(draft_folder, DRAFT_SHA256, "restore it: git checkout data/models/smol-draft")
    target, draft = (ModelConfig.from_hf(sources.read_config(path)) for path in (folder, draft_folder))
    check_folder(folder, target)
    check_folder(draft_folder, draft, given=[EMBEDDING])

    def read_draft(model: DecoderModel | None) -> dict[str, torch.Tensor]:
        assert model
        return load_weights(draft_folder, draft, given={EMBEDDING: model.embedding})

    tokenizer = load_tokenizer_folder(folder, spec.name)
    return tokenizer, _Half(target, lambda _: load_weights(folder, target)), _Half(draft, read_draft)


def _prepare_folders(spec: PairSpec, device: torch.device) -> _Prepared:
    """Two checkpoints whose tokenizers agree; both keep as many embedding rows as the shorter table has.

    Public checkpoints pad the table to different lengths. Rows beyond the tokenizer's ids stand for no token,
    so nothing is lost, the draft cannot propose an id that the target lacks, and the target cannot choose one
    that the draft cannot read.
    """
    from .config import ModelConfig
    from .weights import EMBEDDING, HEAD, check_folder, load_weights

    assert spec.places
    folders = [sources.find_folder(place) for place in spec.places]
    configs = [ModelConfig.from_hf(sources.read_config(folder)) for folder in folders]
    tokenizer, other = (load_tokenizer_folder(folder, spec.name) for folder in folders)
    if tokenizer.fingerprint != other.fingerprint:
        raise VocabularyMismatch(
            f"the draft's tokenizer has {other.vocab_size} ids and fingerprint {other.fingerprint[:12]}, "
            f"the target's {tokenizer.vocab_size} and {tokenizer.fingerprint[:12]}",
            expected="the same vocabulary, merges and added tokens",
            remedy="choose a draft of the target's own family",
        )
    rows = min(config.vocab for config in configs)
    if rows < tokenizer.vocab_size:
        raise UnsupportedModel(
            f"{spec.name}: {rows} embedding rows for {tokenizer.vocab_size} token ids",
            expected="at least one row per id in both models",
            remedy="use the tokenizer that belongs to the weights",
        )

    def half(folder: Path, config: ModelConfig) -> _Half:
        check_folder(folder, config)

        def read(_: DecoderModel | None) -> dict[str, torch.Tensor]:
            tensors = load_weights(folder, config)
            return {name: t[:rows] if name in (EMBEDDING, HEAD) else t for name, t in tensors.items()}

        return _Half(dataclasses.replace(config, vocab=rows), read)

    return tokenizer, half(folders[0], configs[0]), half(folders[1], configs[1])
