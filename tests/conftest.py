"""Fixtures shared by all tests: the tiny pairs, and small checkpoints written by transformers itself."""

from __future__ import annotations

import os

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch: test processes side by side must not fight for cores

os.environ.setdefault("MPLBACKEND", "agg")  # figures are drawn without a screen

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec_lib.pairs import Pair, load_pair

SHAPE = dict(
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=0,
    eos_token_id=1,
)
# indented blocks on lines of their own: their white space must vanish, as it does in transformers
TEMPLATE = (
    "{% for m in messages %}\n  {% if true %}\n<|user|>{{ m['content'] }}<|end|>\n  {% endif %}\n{% endfor %}"
)


@pytest.fixture(scope="session")
def tiny_pair() -> Pair:
    """Two-layer Llama pair, FP32, CPU. Do not change its weights."""
    return load_pair("tiny-llama", device="cpu", dtype="fp32")


@pytest.fixture(scope="session")
def tiny_qwen2_pair() -> Pair:
    """Two-layer Qwen2 pair (biases, tied), FP32, CPU. Do not change its weights."""
    return load_pair("tiny-qwen2", device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def nothing_committed() -> Iterator[None]:
    """For projects made by a test: no profile's results have to be there."""
    from specdec_lib.design import load_design

    profiles = load_design(Path(__file__).parent.parent / "design.toml").profiles
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec_lib.report.folders.PENDING", tuple(profiles))
        yield


def write_tokenizer(folder: Path, extra_tokens: int = 0) -> int:
    """A small byte-level BPE as tokenizer.json, with its template; returns its number of ids."""
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    backend.decoder = tokenizers.decoders.ByteLevel()  # type: ignore
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|user|>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["a target verifies what a draft proposes; the draft is cheap"] * 5, trainer)
    backend.post_processor = tokenizers.processors.TemplateProcessing(  # type: ignore
        single="<|user|> $A", special_tokens=[("<|user|>", 0)]
    )
    backend.add_tokens([f"<{i}>" for i in range(extra_tokens)])
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return backend.get_vocab_size()


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``make_checkpoint(kind, seed=0, shard="5GB", extra_tokens=0, **config)``: a Hugging Face folder.

    ``kind`` "llama" or "qwen2"; saved by transformers in FP32 with random weights, biases and norms, so that
    a forgotten one shows. ``shard`` is the largest file size, ``config`` overrides the config.
    """

    def make(kind: str, seed: int = 0, shard: str = "5GB", extra_tokens: int = 0, **config: Any) -> Path:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

        folder = tmp_path_factory.mktemp(kind)
        ids = write_tokenizer(folder, extra_tokens)
        classes = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
        make_config, make_model = classes[kind]
        torch.manual_seed(seed)
        settings = {**SHAPE, "vocab_size": ids, "tie_word_embeddings": kind == "qwen2", **config}
        model = make_model(make_config(**settings)).float()  # type: ignore
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                spread = 0.2 if name.endswith("bias") or "norm" in name else 0.1
                parameter.add_(torch.randn_like(parameter) * spread)
        model.save_pretrained(folder, max_shard_size=shard)
        return folder

    return make


@pytest.fixture(scope="session")
def hf_llama(make_checkpoint: Callable[..., Path]) -> Path:
    """A small Llama checkpoint (untied). Read only: copy it before you damage it."""
    return make_checkpoint("llama")


@pytest.fixture(scope="session")
def hf_qwen2(make_checkpoint: Callable[..., Path]) -> Path:
    """A small Qwen2 checkpoint (tied, biases). Read only: copy it before you damage it."""
    return make_checkpoint("qwen2")


@pytest.fixture(scope="session")
def smol_folder() -> Path:
    """The converted SmolLM2 folder; tests that use it are skipped where it has not been fetched."""
    from specdec_lib import smollm2, sources

    if not (sources.models_folder() / smollm2.FOLDER).is_dir():
        pytest.skip("SmolLM2 is not in data/models/ (fetched by `make book` or load_pair('smol'))")
    return smollm2.ready_folder()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything a page would display, as text or HTML."""
    seen: list[str] = []

    def display(*objects: Any, **_: Any) -> None:
        seen.extend(o.data if hasattr(o, "data") else o._repr_html_() for o in objects)

    monkeypatch.setattr("IPython.display.display", display)
    yield seen


@pytest.fixture
def jobs_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs run in this process; their names, in order."""
    from specdec_lib import study as study_module
    from specdec_lib import worker  # torch: only for those who ask
    from specdec_lib.jobs import read_job, write_job

    names: list[str] = []

    def run_here(spec: dict[str, Any], path: Path, threads: int) -> dict[str, Any]:
        names.append(spec["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_job(path, spec, worker.KINDS[spec["kind"]](spec, path.parent.parent / ".prefill"))
        return read_job(path)["result"]

    monkeypatch.setattr(study_module, "run_job", run_here)
    monkeypatch.setattr(worker, "read_bandwidth", lambda device: 1e9)
    return names
