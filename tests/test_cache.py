"""The cache: what is held, what is behind it, the way back, and the file."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from specdec_lib.cache import DIGEST, KVCache
from specdec_lib.errors import CacheError, CannotWrite, ContextTooLong
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.weights import RandomWeights, fingerprint, random_weights
from tests.engine_tools import PROMPT, cache_of

LAYERS, HEADS, DIM, CAPACITY = 2, 3, 4, 12


def empty(capacity: int = CAPACITY, dtype: torch.dtype = torch.float32) -> KVCache:
    return KVCache(LAYERS, HEADS, DIM, capacity, dtype, torch.device("cpu"))


def add(cache: KVCache, tokens: list[int]) -> None:
    """Append rows whose every number is the token (in values: minus the token)."""
    positions = cache.reserve(len(tokens))
    rows = torch.tensor(tokens, dtype=torch.float32).view(-1, 1, 1).expand(-1, HEADS, DIM)
    for layer in range(LAYERS):
        keys, values = cache.append(layer, rows, -rows, positions)
        assert keys.shape == values.shape == (HEADS, cache.length + len(tokens), DIM), (
            "only rows that are held"
        )
    cache.advance(len(tokens))


def held(cache: KVCache) -> list[int]:
    """The tokens in the cache; all layers and heads must agree."""
    keys, values = cache.keys[:, :, : cache.length], cache.values[:, :, : cache.length]
    assert torch.equal(keys, -values) and torch.equal(keys, keys[:1, :1, :, :1].expand_as(keys))
    assert cache.position.tolist() == [cache.length]
    return keys[0, 0, :, 0].long().tolist()


@given(
    st.lists(st.one_of(st.lists(st.integers(1, 99), min_size=1, max_size=5), st.integers(0, 6)), max_size=20)
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_appends_and_trims(steps: list[list[int] | int]) -> None:
    cache, expected = empty(), []
    for step in steps:
        if isinstance(step, list):
            if len(expected) + len(step) > CAPACITY:
                with pytest.raises(ContextTooLong, match=f"at most {CAPACITY}"):
                    cache.reserve(len(step))
            else:
                add(cache, step)
                expected += step
        elif step > len(expected):
            with pytest.raises(CacheError, match=f"cannot drop {step}"):
                cache.trim(step)
        else:
            cache.trim(step)
            expected = expected[: len(expected) - step]
        assert held(cache) == expected and cache.length == len(expected)


@pytest.mark.parametrize("n", [-1, 4, 100])
def test_a_trim_that_cannot_be_done_is_refused_and_changes_nothing(n: int) -> None:
    cache = empty()
    add(cache, [1, 2, 3])
    with pytest.raises(CacheError) as raised:
        cache.trim(n)
    assert raised.value.expected and raised.value.remedy
    assert held(cache) == [1, 2, 3]


def test_a_trim_moves_no_memory() -> None:
    cache = empty()
    add(cache, [1, 2, 3])
    before, place = cache.keys.clone(), cache.keys.data_ptr()
    cache.trim(2)
    assert torch.equal(cache.keys, before) and cache.keys.data_ptr() == place
    add(cache, [7])
    assert held(cache) == [1, 7]


def test_full_to_the_last_slot() -> None:
    cache = empty(capacity=3)
    add(cache, [1, 2])
    with pytest.raises(ContextTooLong, match="2 cached"):
        cache.reserve(2)
    add(cache, [3])
    assert held(cache) == [1, 2, 3]
    with pytest.raises(ContextTooLong):
        cache.reserve(1)


def test_no_room_at_all() -> None:
    with pytest.raises(CacheError, match="capacity 0"):
        empty(capacity=0)


def test_bytes() -> None:
    assert empty().bytes == 2 * LAYERS * HEADS * CAPACITY * DIM * 4
    assert empty(dtype=torch.bfloat16).bytes == LAYERS * HEADS * CAPACITY * DIM * 4


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    cache = empty()
    add(cache, [5, 6, 7, 8])
    cache.trim(1)
    cache.save(tmp_path / "a.safetensors", torch.arange(10.0).view(1, 10))
    return tmp_path / "a.safetensors"


def test_a_saved_cache_comes_back(saved: Path) -> None:
    for capacity in (3, CAPACITY):
        cache = empty(capacity)
        logits = cache.load(saved)
        assert held(cache) == [5, 6, 7] and torch.equal(logits, torch.arange(10.0).view(1, 10))
    assert load_file(saved)["keys"].shape[2] == 3, "only what is held is stored"
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def _rewrite(path: Path, **changes: Any) -> None:
    """Store other tensors, with the digest that fits them: the shapes are what is wrong."""
    tensors = {k: v for k, v in (load_file(path) | changes).items() if v is not None}
    save_file(tensors, path, {DIGEST: hashlib.sha256(save(tensors)).hexdigest()})


def _flip(path: Path, name: str) -> None:
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors[name].view(-1).view(torch.uint8)[5] ^= 1
    save_file(tensors, path, metadata)


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "cut in its header": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a cache"),
    "missing": lambda path: path.unlink(),
    "no values": lambda path: _rewrite(path, values=None),
    "no logits": lambda path: _rewrite(path, logits=None),
    "no tokens": lambda path: _rewrite(
        path, keys=torch.zeros(LAYERS, HEADS, 0, DIM), values=torch.zeros(LAYERS, HEADS, 0, DIM)
    ),
    "values of another length": lambda path: _rewrite(path, values=torch.zeros(LAYERS, HEADS, 2, DIM)),
    "another model's layers": lambda path: _rewrite(path, keys=torch.zeros(LAYERS + 1, HEADS, 3, DIM)),
    "another model's heads": lambda path: _rewrite(path, keys=torch.zeros(LAYERS, HEADS - 1, 3, DIM)),
    "longer than the capacity": lambda path: _rewrite(
        path, keys=torch.zeros(LAYERS, HEADS, 13, DIM), values=torch.zeros(LAYERS, HEADS, 13, DIM)
    ),
    "another dtype": lambda path: _rewrite(path, keys=torch.zeros(LAYERS, HEADS, 3, DIM).bfloat16()),
    "a flipped bit of the keys": lambda path: _flip(path, "keys"),
    "a flipped bit of the values": lambda path: _flip(path, "values"),
    "a flipped bit of the logits": lambda path: _flip(path, "logits"),
    "no digest": lambda path: save_file(load_file(path), path),
    "keys of no shape": lambda path: _rewrite(path, keys=torch.zeros(5)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_named_and_changes_nothing(damage: str, saved: Path) -> None:
    DAMAGES[damage](saved)
    cache = empty()
    add(cache, [1, 2])
    with pytest.raises(CacheError, match=r"a\.safetensors") as raised:
        cache.load(saved)
    remedy = "compute the prefill" if damage == "missing" else "delete the file"
    assert remedy in raised.value.remedy and str(saved.parent) not in raised.value.what.split(": ")[0]
    assert held(cache) == [1, 2]


def test_decoding_goes_on_from_a_stored_prefill(tiny_pair: Pair, tmp_path: Path) -> None:
    from specdec_lib.decoding import autoregressive

    computed = Prefilled.compute(tiny_pair.target, PROMPT, 8)
    computed.save(tmp_path / "p.safetensors")
    loaded = Prefilled.load(tmp_path / "p.safetensors", tiny_pair.target, PROMPT, 8, seconds=2.5)
    assert loaded.seconds == 2.5 and loaded.cache.capacity == len(PROMPT) + 8
    assert torch.equal(loaded.logits, computed.logits)
    expected = autoregressive(tiny_pair.target, PROMPT, 8, prefilled=computed)
    done = autoregressive(tiny_pair.target, PROMPT, 8, prefilled=loaded)
    assert done.tokens == expected.tokens and done.prefill_seconds == 2.5
    for model, prompt in ((tiny_pair.target, PROMPT[::-1]), (tiny_pair.draft, PROMPT)):
        with pytest.raises(CacheError, match="belongs to"):
            Prefilled.load(tmp_path / "p.safetensors", model, prompt, 8, seconds=0)


def test_a_prefill_stored_after_a_run_holds_the_prompt_alone(tiny_pair: Pair, tmp_path: Path) -> None:
    from specdec_lib.decoding import autoregressive

    start = Prefilled.compute(tiny_pair.target, PROMPT, 8)
    text = autoregressive(tiny_pair.target, PROMPT, 8, prefilled=start).tokens
    start.save(tmp_path / "p.safetensors")
    assert load_file(tmp_path / "p.safetensors")["keys"].shape[2] == len(PROMPT)
    loaded = Prefilled.load(tmp_path / "p.safetensors", tiny_pair.target, PROMPT, 8, seconds=0)
    assert autoregressive(tiny_pair.target, PROMPT, 8, prefilled=loaded).tokens == text


def test_a_stored_prefill_of_other_weights_under_the_same_name(tiny_pair: Pair, tmp_path: Path) -> None:
    """Two folders may have one name; their keys fit in shape, and would give a wrong text without a sign of it."""
    config = tiny_pair.target.config
    one, other, again = (
        DecoderModel(config, random_weights(config, RandomWeights(seed)), name="m") for seed in (1, 2, 1)
    )
    Prefilled.compute(one, PROMPT, 8).save(tmp_path / "p.safetensors")
    with pytest.raises(CacheError, match="belongs to"):
        Prefilled.load(tmp_path / "p.safetensors", other, PROMPT, 8, seconds=0)
    assert Prefilled.load(tmp_path / "p.safetensors", again, PROMPT, 8, seconds=0).length == len(PROMPT)


@pytest.mark.parametrize("change", [{"rope_theta": 5e5}, {"eps": 1e-3}], ids=str)
def test_a_stored_prefill_of_another_config(
    change: dict[str, float], tiny_pair: Pair, tmp_path: Path
) -> None:
    """The same weights, turned or normed otherwise."""
    config = tiny_pair.target.config
    weights = random_weights(config, RandomWeights(1))
    one, other = (
        DecoderModel(config, weights, name="m"),
        DecoderModel(replace(config, **change), weights, name="m"),
    )
    Prefilled.compute(one, PROMPT, 8).save(tmp_path / "p.safetensors")
    with pytest.raises(CacheError, match="belongs to") as raised:
        Prefilled.load(tmp_path / "p.safetensors", other, PROMPT, 8, seconds=0)
    assert "delete" not in raised.value.remedy, "the file is good, for what it belongs to"


def test_an_owned_file_is_no_file_for_anyone(tiny_pair: Pair, tmp_path: Path) -> None:
    Prefilled.compute(tiny_pair.target, PROMPT, 8).save(tmp_path / "p.safetensors")
    with pytest.raises(CacheError, match="belongs to"):
        tiny_pair.target.new_cache(20).load(tmp_path / "p.safetensors")


@pytest.mark.parametrize("length", [0, -1, 4, 10**6])
def test_a_length_that_is_not_held_cannot_be_stored(length: int, tmp_path: Path) -> None:
    cache = empty()
    add(cache, [5, 6, 7])
    with pytest.raises(CacheError, match="of 3 cached tokens"):
        cache.save(tmp_path / "a.safetensors", torch.zeros(1, 10), None, length)
    assert not list(tmp_path.iterdir())


def test_a_rewind_mends_a_position_that_an_interruption_left_behind(tiny_pair: Pair) -> None:
    from specdec_lib.decoding import autoregressive

    start = Prefilled.compute(tiny_pair.target, PROMPT, 8)
    text = autoregressive(tiny_pair.target, PROMPT, 8, prefilled=start).tokens
    start.cache.length += 1  # interrupted between the two
    assert autoregressive(tiny_pair.target, PROMPT, 8, prefilled=start).tokens == text
    with pytest.raises(CacheError, match="cannot hold"):
        start.cache.rewind(10**6)


def test_every_tensor_counts_for_the_fingerprint(tiny_pair: Pair) -> None:
    config = tiny_pair.target.config
    weights = random_weights(config, RandomWeights(1))
    seen = {fingerprint(list(weights.values()))}
    for name in weights:
        seen.add(fingerprint([t * (1.01 if key == name else 1) for key, t in weights.items()]))
    assert len(seen) == 1 + len(weights)


def test_a_place_that_cannot_be_written_to(tiny_pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=tmp_path.name) as raised:
        Prefilled.compute(tiny_pair.target, PROMPT, 8).save(tmp_path)
    assert raised.value.remedy and not list(tmp_path.iterdir())


def test_rows_behind_the_length_change_no_logit(tiny_pair: Pair) -> None:
    """Blocks of every width, up to and beyond the decode attention's, over a tail of NaN or large numbers."""
    ids = torch.arange(40)
    for poison in (float("nan"), 1e4):
        for rows in (1, 2, 3, 5, 9, 16, 17, 24):
            logits = []
            for fill in (0.0, poison):
                cache, _ = cache_of(tiny_pair.target, PROMPT, capacity=60)
                cache.keys[:, :, cache.length :] = fill
                cache.values[:, :, cache.length :] = fill
                logits.append(tiny_pair.target.forward(ids[:rows], cache))
            assert torch.equal(*logits)
