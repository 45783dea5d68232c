"""The forward against transformers, what it keeps and reads, and who may read the device."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib
from specdec_lib.cache import KVCache
from specdec_lib.config import ModelConfig, rope_table
from specdec_lib.correctness import LOGIT_LIMIT, logit_rows
from specdec_lib.errors import ContextTooLong, InvalidSetting, UnsupportedModel, WeightsDamaged
from specdec_lib.model import DecoderModel, attention, prefill
from specdec_lib.pairs import Pair, load_pair
from specdec_lib.sources import read_config
from specdec_lib.weights import RandomWeights, load_weights, random_weights
from tests.engine_tools import PROMPT, cache_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_logits_are_those_of_transformers(kind: str) -> None:
    """Prefill in chunks of every size, steps, and blocks of every width at every offset."""
    rows = logit_rows(kind, prompt=24, rows=6)
    assert len(rows) == 3 and all(row["passed"] for row in rows)
    assert all(0 < row["value"] <= LOGIT_LIMIT == row["limit"] for row in rows), "0 would compare with itself"


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 1e4,
}  # fmt: skip
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "qwen2 untied": ("qwen2", {"tie_word_embeddings": False}),
    "llama with biases": ("llama", {"attention_bias": True}),
    "head_dim of its own": ("llama", {"head_dim": 20}),
    "one KV head": ("llama", {"num_key_value_heads": 1}),
    "as many KV heads as heads": ("qwen2", {"num_key_value_heads": 4}),
    "theta 1e6": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "linear scaling": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
    "eps 1e-3": ("llama", {"rms_norm_eps": 1e-3}),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_every_option_of_a_checkpoint(case: str, make_checkpoint: Callable[..., Path]) -> None:
    """Prefill, a step and a block of each, on positions long enough that rotary scaling shows."""
    from transformers import AutoModelForCausalLM

    kind, options = CHECKPOINTS[case]
    folder = make_checkpoint(kind, **options)
    config = ModelConfig.from_hf(read_config(folder))
    model = DecoderModel(config, load_weights(folder, config))
    ids = torch.randint(0, config.vocab, (200,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(folder)(ids[None]).logits[0]
    cache = model.new_cache(200)
    parts = [
        prefill(model, ids[:150], cache, 64),
        model.forward(ids[150:151], cache),
        model.forward(ids[151:], cache),
    ]
    assert (torch.cat(parts) - theirs[149:]).abs().max() <= LOGIT_LIMIT * theirs.abs().max()


def test_two_models_of_one_process_keep_their_own_rotary_tables(tiny_pair: Pair) -> None:
    config = tiny_pair.target.config
    other = replace(config, rope_theta=1e6)
    weights = random_weights(config, RandomWeights(0), CPU)
    a, b, again = (DecoderModel(c, weights) for c in (config, other, config))
    assert torch.equal(a.cos, again.cos) and not torch.equal(a.cos, b.cos)
    ids = torch.tensor(PROMPT)
    assert torch.equal(a.forward(ids, a.new_cache(20)), again.forward(ids, again.new_cache(20)))
    assert not torch.allclose(a.forward(ids, a.new_cache(20)), b.forward(ids, b.new_cache(20)), atol=1e-3)


def test_the_rotary_table_is_a_rotation(tiny_pair: Pair) -> None:
    cos, sin = rope_table(tiny_pair.target.config, CPU)
    assert cos.dtype == torch.float32 and torch.allclose(cos**2 + sin**2, torch.ones_like(cos), atol=1e-6)
    half = cos.shape[1] // 2
    assert torch.equal(sin[:, :half], -sin[:, half:]) and torch.equal(cos[0], torch.ones_like(cos[0]))


@given(st.integers(1, 24), st.integers(0, 30), st.sampled_from([(4, 2), (4, 4), (6, 1)]), st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_attention_is_its_definition(rows: int, before: int, shape: tuple[int, int], seed: int) -> None:
    """Row i of M sees the tokens before the block and the first i + 1 of it, whatever form computes it."""
    heads, kv_heads = shape
    length, dim = before + rows, 8
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(rows, heads, dim, generator=generator)
    keys, values = torch.randn(2, kv_heads, length, dim, generator=generator)
    ours = attention(queries, keys, values).view(rows, heads, dim)
    for head in range(heads):
        kv = head // (heads // kv_heads)
        scores = queries[:, head] @ keys[kv].T / dim**0.5
        scores = scores.masked_fill(torch.ones(rows, length).tril(before) == 0, float("-inf"))
        assert torch.allclose(ours[:, head], scores.softmax(-1) @ values[kv], atol=1e-5)


@pytest.mark.parametrize("capacity", [20, 4000])
def test_cost_follows_length_not_capacity(
    capacity: int, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What attention is given has as many rows as tokens are held; the buffer's size does not enter."""
    seen: list[tuple[int, int]] = []
    append = KVCache.append

    def noting(self: KVCache, layer: int, *rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = append(self, layer, *rows)
        seen.append((keys.shape[1], values.shape[1]))
        return keys, values

    cache, _ = cache_of(tiny_pair.target, PROMPT, capacity)
    monkeypatch.setattr(KVCache, "append", noting)
    for rows in (1, 4):
        seen.clear()
        length = cache.length + rows
        tiny_pair.target.forward(torch.arange(rows), cache)
        assert seen == [(length, length)] * tiny_pair.target.config.layers


def test_the_result_does_not_depend_on_the_capacity(tiny_pair: Pair) -> None:
    ids = torch.arange(4)
    caches = [cache_of(tiny_pair.target, PROMPT, capacity)[0] for capacity in (16, 17, 3000)]
    logits = [tiny_pair.target.forward(ids, cache) for cache in caches]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


def test_prefill_keeps_the_last_row_only(tiny_pair: Pair) -> None:
    """At 8K x 151,936 the full matrix would be 2.5 GB: the head sees one row per chunk, never the chunk."""
    model = tiny_pair.target
    seen: list[int] = []
    head = model.head

    class Watched:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.shape[0])
            return head(x)

    whole = model.forward(torch.arange(30), model.new_cache(30))
    model.head = Watched()  # type: ignore[assignment]
    try:
        logits = prefill(model, torch.arange(30), model.new_cache(30), chunk=12)
    finally:
        model.head = head
    assert logits.shape == (1, model.config.vocab) and seen == [1, 1, 1]
    assert torch.allclose(logits[0], whole[-1], atol=1e-4)


def test_a_block_that_does_not_fit_is_refused_before_anything_is_written(tiny_pair: Pair) -> None:
    cache, _ = cache_of(tiny_pair.target, PROMPT, capacity=len(PROMPT) + 2)
    before = cache.keys.clone()
    with pytest.raises(ContextTooLong):
        tiny_pair.target.forward(torch.arange(3), cache)
    assert cache.length == len(PROMPT) and torch.equal(cache.keys, before)
    tiny_pair.target.forward(torch.arange(2), cache)


def test_bf16_follows_fp32(tiny_pair: Pair) -> None:
    """The same weights rounded: close in every row, and identical at the same width."""
    rounded = load_pair("tiny-llama", "cpu", "bf16").target
    ids = torch.tensor(PROMPT)
    exact = tiny_pair.target.forward(ids, tiny_pair.target.new_cache(20))
    near = rounded.forward(ids, rounded.new_cache(20))
    assert near.dtype == torch.bfloat16 and rounded.new_cache(1).keys.dtype == torch.bfloat16
    assert (near.float() - exact).abs().max() < 0.05 * exact.abs().max()
    assert torch.equal(near, rounded.forward(ids, rounded.new_cache(99)))


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_bytes_of_a_step(name: str) -> None:
    """Every weight once; of an untied embedding a step reads one row, so its matrix does not count."""
    for dtype, size in (("fp32", 4), ("bf16", 2)):
        model = load_pair(name, "cpu", dtype).target
        c = model.config
        elements = sum(torch.Size(shape).numel() for shape in c.shapes().values())
        untied = 0 if c.tied else c.vocab * c.hidden
        assert model.step_bytes == (elements - untied) * size
        assert model.kv_bytes_per_token == c.layers * 2 * c.kv_heads * c.head_dim * size
        cache = model.new_cache(10)
        assert cache.bytes == 10 * model.kv_bytes_per_token


HF = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "vocab_size": 320, "intermediate_size": 128, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "mention"),
    [({"model_type": "gpt2"}, "gpt2"), ({"model_type": None}, "None"), ({"hidden_act": "gelu"}, "gelu"),
     ({"mlp_bias": True}, "mlp_bias"), ({"use_sliding_window": True}, "use_sliding_window"),
     ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
     ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
     ({"vocab_size": ...}, "vocab_size"), ({"num_attention_heads": ...}, "num_attention_heads")],
)  # fmt: skip
def test_a_config_that_is_not_implemented_is_refused(change: dict[str, Any], mention: str) -> None:
    config = {key: value for key, value in (HF | change).items() if value is not ...}
    with pytest.raises(UnsupportedModel, match=mention) as raised:
        ModelConfig.from_hf(config)
    assert raised.value.expected and raised.value.remedy


@pytest.mark.parametrize(
    "rope",
    [{"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
     {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}}],
    ids=["until transformers 4", "from transformers 5"],
)  # fmt: skip
def test_both_ways_to_write_a_rotary_embedding(rope: dict[str, Any]) -> None:
    config = ModelConfig.from_hf(HF | rope)
    assert config.rope_theta == 5e5 and config.rope_scaling == {"rope_type": "linear", "factor": 2.0}
    assert ModelConfig.from_hf(HF).rope_scaling is None and ModelConfig.from_hf(HF).kv_heads == 4


def test_tensors_that_do_not_fit_the_config(tiny_pair: Pair) -> None:
    config = tiny_pair.target.config
    weights = random_weights(config, RandomWeights(0), CPU)
    missing = {key: value for key, value in weights.items() if key != "model.norm.weight"}
    with pytest.raises(WeightsDamaged, match="model.norm.weight is missing"):
        DecoderModel(config, missing)
    key = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(WeightsDamaged, match=key):
        DecoderModel(config, weights | {key: weights[key].T})
    with pytest.raises(InvalidSetting, match="float16"):
        DecoderModel(config, weights, torch.float16)


# --- the device is read in one place ---

ENGINE = ("acceptance", "cache", "decoding", "model", "prefilled", "projection", "proposers")
READS = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "nonzero",
    "argwhere",
    "masked_select",
    "unique",
    "is_nonzero",
    "any",
    "all",
}
CASTS = {"int", "float", "bool"}
# Not in a round: reading a checkpoint's config, storing a prefill, arguments that are Python's, notes read after a run.
FINE = {
    "model.from_hf": CASTS,
    "cache.save": {"cpu"},
    "decoding.speculative": {"int(bonus)"},
    "acceptance.__init__": {"float(delta)"},
    "acceptance.rows": CASTS | {"tolist"},
    "acceptance.check_trace": {"all"},
    "proposers.agreement": CASTS | {"all"},
}


def readings(source: str, module: str) -> list[str]:
    """Calls in ``source`` that could bring a device value to the host, as ``module.function: call``."""
    found: list[str] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            name = ""
            if isinstance(node.func, ast.Attribute) and node.func.attr in READS:
                name = node.func.attr
            elif isinstance(node.func, ast.Name) and node.func.id in CASTS:
                name = "" if all(isinstance(a, ast.Constant) for a in node.args) else node.func.id
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                name = (
                    "cpu" if any(isinstance(a, ast.Constant) and a.value == "cpu" for a in node.args) else ""
                )
            fine = FINE.get(f"{module}.{function}", set())
            if name and name not in fine and ast.unparse(node) not in fine:
                found.append(f"{module}.{function}: {ast.unparse(node)}")
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


@pytest.mark.parametrize("module", ENGINE)
def test_only_host_reads_the_device(module: str) -> None:
    """The dynamic half of this rule is test_decoding's test_one_host_read_per_round."""
    source = (Path(specdec_lib.__file__).parent / f"{module}.py").read_text()
    assert readings(source, module) == []


@pytest.mark.parametrize(
    "line",
    ["x.item()", "int(x.argmax())", "x.tolist()", "x.to('cpu')", "x.cpu()", "torch.nonzero(x)", "bool(x)"],
)
def test_the_rule_finds_what_it_should(line: str) -> None:
    assert readings(f"def f(x):\n    return {line}\n", "decoding")
