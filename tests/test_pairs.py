"""Named pairs and a reader's own: what is loaded, what is refused before anything is loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specdec_lib import pairs, sources
from specdec_lib.errors import (
    InvalidSetting,
    UnknownPair,
    UnsupportedModel,
    VocabularyMismatch,
    WeightsDamaged,
)
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import PAIRS, Pair, find_pair, load_pair, pair_digest


def greedy(model: DecoderModel, prompt: list[int], count: int) -> list[int]:
    """Greedy continuation by the plainest loop there is."""
    cache, out = model.new_cache(len(prompt) + count), list[int]()
    logits = model.forward(torch.tensor(prompt), cache)
    for _ in range(count):
        out.append(int(logits[-1].argmax()))
        logits = model.forward(torch.tensor(out[-1:]), cache)
    return out


def agreement(pair: Pair, prompt: list[int], count: int = 64) -> float:
    """Share of the target's greedy tokens that the draft, given the target's own prefix, would choose too."""
    tokens = greedy(pair.target, prompt, count)
    ids = torch.tensor(prompt + tokens)
    choices = pair.draft.forward(ids, pair.draft.new_cache(len(ids))).argmax(-1)[len(prompt) - 1 : -1]
    return float((choices == torch.tensor(tokens)).float().mean())


@pytest.fixture
def no_tensor_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **settings: Any) -> None:
        raise AssertionError("a tensor was read before the check")

    monkeypatch.setattr("specdec_lib.weights._read", refuse)
    monkeypatch.setattr("specdec_lib.weights.random_weights", refuse)


# --- tiny pairs ---


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_tiny_pairs_agree_often_but_not_always(name: str) -> None:
    pair = load_pair(name, device="cpu", dtype="fp32")
    assert (pair.name, pair.dtype, pair.device, pair.synthetic) == (name, "fp32", "cpu", True)
    assert pair.target.tokenizer is pair.draft.tokenizer is pair.tokenizer
    generator = torch.Generator().manual_seed(0)
    for length in (40, 190, 960):
        prompt = torch.randint(0, 256, (length,), generator=generator).tolist()
        assert 0.2 < agreement(pair, prompt) < 0.8
        assert len(set(greedy(pair.target, prompt, 64))) > 10  # no loop


def test_bf16_is_the_same_tiny_model_rounded(tiny_pair: Pair) -> None:
    narrow = load_pair("tiny", device="cpu", dtype=torch.bfloat16)
    assert (narrow.name, narrow.dtype, narrow.digest) == ("tiny-llama", "bf16", tiny_pair.digest)
    assert torch.equal(narrow.target.embedding.float(), tiny_pair.target.embedding)


def test_auto_uses_and_records_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_lib.calibrate.auto_dtype", lambda device: ("fp32", {"decode_fp32_s": 1.0}))
    pair = load_pair("tiny", device="cpu")
    assert (pair.dtype, pair.calibration) == ("fp32", {"decode_fp32_s": 1.0})
    assert pair.target.dtype == torch.float32


# --- refused before any work ---


@pytest.mark.parametrize("name", ["smoll", "", ("only-one",), ("a", "b", "c"), 3, None, ("a", 1)])
def test_an_unknown_pair_lists_the_known_ones(name: Any) -> None:
    with pytest.raises(UnknownPair, match="tiny-qwen2"):
        load_pair(name)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dtype": "fp16"}, "dtype 'fp16'"),
        ({"dtype": torch.float16}, "dtype torch.float16"),
        ({"dtype": 32}, "dtype 32"),
        ({"device": "gpu"}, "device 'gpu'"),
        ({"device": "meta"}, "device 'meta'"),
        ({"device": "cuda:99"}, "device 'cuda:99'"),
        ({"device": "cpu:7"}, "device 'cpu:7'"),
        ({"device": 1.5}, "device 1.5"),
    ],
)
def test_dtype_and_device_are_checked_first(settings: Any, text: str, no_tensor_is_read: None) -> None:
    with pytest.raises(InvalidSetting, match=text):
        load_pair("tiny", **settings)


# --- a reader's own folders ---


@pytest.fixture(scope="module")
def hf_draft(make_checkpoint: Callable[..., Path]) -> Path:
    """A second, smaller Qwen2 checkpoint with the same tokenizer and a longer, padded embedding."""
    return make_checkpoint("qwen2", seed=1, num_hidden_layers=1, vocab_size=320)


def test_two_folders_are_a_pair_and_padding_is_cut(hf_qwen2: Path, hf_draft: Path) -> None:
    whole = load_pair((hf_draft, hf_draft), device="cpu", dtype="fp32")
    assert whole.draft.config.vocab == 320
    for places in ((hf_qwen2, hf_draft), (hf_draft, hf_qwen2)):
        pair = load_pair(places, device="cpu", dtype="fp32")
        rows = sources.read_config(hf_qwen2)["vocab_size"]
        assert rows < 320 and pair.target.config.vocab == pair.draft.config.vocab == rows
        cut = pair.draft if places[1] == hf_draft else pair.target
        ids = torch.arange(20)
        logits, full = (m.forward(ids, m.new_cache(20)) for m in (cut, whole.draft))
        assert torch.equal(logits, full[:, :rows])  # the tokens that exist keep their logits
        assert not pair.synthetic and pair.name == f"{places[0].name}+{places[1].name}"
        assert pair.digest == pair_digest(places)


def test_different_tokenizers_are_refused(
    hf_qwen2: Path, make_checkpoint: Callable[..., Path], no_tensor_is_read: None
) -> None:
    other = make_checkpoint(
        "qwen2", extra_tokens=2, vocab_size=sources.read_config(hf_qwen2)["vocab_size"] + 2
    )
    with pytest.raises(VocabularyMismatch, match="the draft's tokenizer has"):
        load_pair((hf_qwen2, other), device="cpu", dtype="fp32")


def test_equal_sizes_do_not_make_equal_tokenizers(
    hf_qwen2: Path, tmp_path: Path, no_tensor_is_read: None
) -> None:
    other = Path(shutil.copytree(hf_qwen2, tmp_path / "other"))
    described = json.loads((other / "tokenizer.json").read_text())
    vocab = described["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(VocabularyMismatch):
        load_pair((hf_qwen2, other), device="cpu", dtype="fp32")


def test_a_tokenizer_with_more_ids_than_rows_is_refused(
    make_checkpoint: Callable[..., Path], no_tensor_is_read: None
) -> None:
    short = make_checkpoint("llama", vocab_size=200)
    with pytest.raises(UnsupportedModel, match="200 embedding rows"):
        load_pair((short, short), device="cpu", dtype="fp32")


def test_qwen_folders_come_from_the_environment(
    hf_qwen2: Path, hf_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_QWEN_TARGET", str(hf_qwen2))
    monkeypatch.setenv("SPECDEC_QWEN_DRAFT", str(hf_draft))
    pair = load_pair("qwen2.5", device="cpu", dtype="fp32")
    assert (pair.name, pair.target.config.layers, pair.draft.config.layers) == ("qwen2.5", 3, 1)
    monkeypatch.delenv("SPECDEC_QWEN_DRAFT")
    assert find_pair("qwen2.5").places == (str(hf_qwen2), "Qwen/Qwen2.5-0.5B-Instruct")


def test_qwen_shapes_are_the_published_ones() -> None:
    """Parameters and bytes per step and per cached token as published for Qwen2.5-1.5B and 0.5B."""
    from specdec_lib.config import ModelConfig

    shapes = PAIRS["qwen2.5-shapes"].shapes
    assert shapes
    found = []
    for shape in shapes:
        config = ModelConfig(**shape)
        parameters = sum(torch.Size(s).numel() for s in config.shapes().values())
        cached = 2 * config.layers * config.kv_heads * config.head_dim  # keys and values of one token
        found.append((parameters, 2 * parameters, 2 * cached))
    assert found == [(1_543_714_304, 3_087_428_608, 28_672), (494_032_768, 988_065_536, 12_288)]


# --- digests ---


def test_every_pair_has_its_own_digest() -> None:
    names = [name for name in PAIRS if name != "qwen2.5"]
    digests = {pair_digest(name) for name in names}
    assert len(digests) == len(names) and all(len(digest) == 64 for digest in digests)
    assert pair_digest("tiny") == pair_digest("tiny-llama")


# --- smol ---


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_smol_shares_embedding_and_head(smol_folder: Path, dtype: str) -> None:
    pair = load_pair("smol", device="cpu", dtype=dtype)
    assert pair.draft.head is pair.target.head
    assert pair.draft.embedding.data_ptr() == pair.target.embedding.data_ptr()
    assert (pair.target.config.layers, pair.draft.config.layers) == (30, 4)
    assert pair.draft.step_bytes / pair.target.step_bytes == pytest.approx(0.32, abs=0.005)
    assert pair.digest == pair_digest("smol") and not pair.synthetic


def test_smol_writes_sense_and_its_draft_follows(smol_folder: Path) -> None:
    pair = load_pair("smol", device="cpu", dtype="fp32")
    chat = pair.tokenizer.apply_chat([{"role": "user", "content": "What is the capital of France?"}])
    prompt = pair.tokenizer.encode(chat)
    assert "Paris" in pair.tokenizer.decode(greedy(pair.target, prompt, 24))
    assert agreement(pair, prompt, 24) > 0.4  # untrained layers of the target reach 0.07


def test_a_damaged_draft_is_refused(
    smol_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_tensor_is_read: None
) -> None:
    copy = tmp_path / "data" / "models" / "smol-draft"
    shutil.copytree(sources.ROOT / "data" / "models" / "smol-draft", copy)
    monkeypatch.setenv("SPECDEC_MODELS", str(smol_folder.parent))
    monkeypatch.setattr(pairs.sources, "ROOT", tmp_path)
    path = copy / "draft-00002-of-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsDamaged, match=path.name) as caught:
        load_pair("smol", device="cpu", dtype="fp32")
    assert "git checkout" in caught.value.remedy


def test_loading_smol_does_not_import_transformers(smol_folder: Path) -> None:
    code = (
        "import sys; from specdec_lib.pairs import load_pair\n"
        "load_pair('smol', device='cpu', dtype='bf16')\n"
        "assert not {'transformers', 'huggingface_hub', 'accelerate'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=sources.ROOT)
