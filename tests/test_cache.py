"""The cache: what is held, what is behind it, the way back, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from specdec_lib.cache import KVCache
from specdec_lib.errors import CacheError, ContextTooLong
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
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
    save_file({k: v for k, v in (load_file(path) | changes).items() if v is not None}, path)


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
    "keys of no shape": lambda path: _rewrite(path, keys=torch.zeros(5)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_named_and_changes_nothing(damage: str, saved: Path) -> None:
    DAMAGES[damage](saved)
    cache = empty()
    add(cache, [1, 2])
    with pytest.raises(CacheError, match=r"a\.safetensors") as raised:
        cache.load(saved)
    assert (
        "delete the file" in raised.value.remedy and str(saved.parent) not in raised.value.what.split(": ")[0]
    )
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
