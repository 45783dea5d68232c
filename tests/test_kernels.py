"""Each kernel against its plain PyTorch reference: on a GPU, else through Triton's interpreter, else skipped."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
CUDA = torch.cuda.is_available()
if not CUDA and "triton" not in sys.modules:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
pytest.importorskip("triton", reason="the kernels need Triton (also for its interpreter)")
if not CUDA and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip(
        "needs a CUDA device, or TRITON_INTERPRET=1 before Triton is imported", allow_module_level=True
    )

from specdec_lib import captured  # noqa: E402
from specdec_lib.acceptance import Imposed  # noqa: E402
from specdec_lib.capture import Direct  # noqa: E402
from specdec_lib.decoding import autoregressive, speculative  # noqa: E402
from specdec_lib.device_state import DecodeState  # noqa: E402
from specdec_lib.fused import FusedDecoder  # noqa: E402
from specdec_lib.graphs import GraphEngine  # noqa: E402
from specdec_lib.kernels.attention import attend, attention_reference, chunk, workspace  # noqa: E402
from specdec_lib.kernels.commit import FusedState, Maxima  # noqa: E402
from specdec_lib.kernels.embed import embed  # noqa: E402
from specdec_lib.kernels.head import head_argmax, head_reference, head_tiles  # noqa: E402
from specdec_lib.kernels.matvec import Tile, matvec, matvec_reference  # noqa: E402
from specdec_lib.kernels.qkv import qkv, qkv_reference  # noqa: E402
from specdec_lib.pairs import load_pair  # noqa: E402
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft  # noqa: E402

CHUNK = chunk(32)[0]
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = [torch.float32, torch.bfloat16] if CUDA else [torch.float32]
LIMIT = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
NARROW = {torch.float32: Tile(16, 4, 32, 2, early=1), torch.bfloat16: Tile(16, 4, 64, 3, early=1)}
NARROWEST = {torch.float32: Tile(8, 8, 32, 2), torch.bfloat16: Tile(8, 8, 64, 2, early=3)}
WIDE = {torch.float32: Tile(32, 1, 32, 2, early=3), torch.bfloat16: Tile(32, 1, 64, 3, early=2)}


def randn(*shape: int, dtype: Any = torch.float32, seed: int = 0, scale: float = 1.0) -> Any:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * scale
    return numbers.to(DEVICE, dtype)


def distance(found: Any, wanted: Any) -> float:
    """Norm of the difference over the norm; infinite if anything is not a number."""
    found, wanted = found.double(), wanted.double()
    return float((found - wanted).norm() / wanted.norm()) if bool(found.isfinite().all()) else float("inf")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 9])
@pytest.mark.parametrize("case", ["plain", "norm and bias", "residual", "gated"])
@pytest.mark.parametrize("tiles", [NARROW, NARROWEST, WIDE])
def test_matvec(dtype: Any, rows: int, case: str, tiles: dict[Any, Tile]) -> None:
    n, k = 104, 208  # neither is a multiple of a tile
    gated = case == "gated"
    if gated and tiles[dtype].slices == 8:
        tiles = WIDE
    x, w = randn(16, k, dtype=dtype), randn(n * (1 + gated), k, dtype=dtype, scale=k**-0.5)
    settings: dict[str, Any] = {"gated": gated}
    if case in ("norm and bias", "gated"):
        settings |= {"gain": randn(k, dtype=dtype, seed=3), "eps": 1e-6}
    if case == "norm and bias":
        settings["bias"] = randn(n, dtype=dtype, seed=4)
    out = torch.full((16, n), float("nan"), dtype=dtype, device=DEVICE)
    wide = {key: v.double() if hasattr(v, "double") else v for key, v in settings.items()}
    wanted = matvec_reference(x[:rows].double(), w.double(), **wide)
    if case == "residual":
        out[:rows] = settings["residual"] = randn(rows, n, dtype=dtype, seed=5)
        wanted = wanted + settings["residual"].double()
        settings["residual"] = out  # in place, as the engine does
    matvec(x, w, out, rows, tiles[dtype], **settings)
    assert distance(out[:rows], wanted) < LIMIT[dtype]
    assert bool(out[rows:].isnan().all()), "rows beyond the block were written"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tiles", [NARROW, NARROWEST])
def test_qkv(dtype: Any, rows: int, bias: bool, tiles: dict[Any, Tile]) -> None:
    """Up to the last slot of the cache: rows that do not fit are dropped, nothing else is touched."""
    heads, kv_heads, dim, hidden, capacity, position = 6, 2, 32, 96, 40, 33
    x, gain = randn(16, hidden, dtype=dtype), randn(hidden, dtype=dtype, seed=3)
    weight = randn((heads + 2 * kv_heads) * dim, hidden, dtype=dtype, scale=hidden**-0.5)
    offsets = randn(weight.shape[0], dtype=dtype, seed=4) if bias else None
    keys, values = (randn(kv_heads, capacity + 9, dim, dtype=dtype, seed=s) for s in (1, 2))
    cos, sin = rope(capacity, dim, dtype)
    exact = [t.double() for t in (keys, values)]
    tables = [torch.cat((t, t[-1:].expand(9, -1))).double() for t in (cos, sin)]
    wanted = qkv_reference(
        x[:rows].double(), gain.double(), weight.double(), None if offsets is None else offsets.double(), 1e-6,
        tables[0], tables[1], position, heads, exact[0], exact[1],
    )  # fmt: skip
    keys, values = (t[:, :capacity].contiguous() for t in (keys, values))
    queries = torch.full((16, heads * dim), float("nan"), dtype=dtype, device=DEVICE)
    at, kept = torch.tensor([position + 7], device=DEVICE), torch.tensor([position + 1], device=DEVICE)
    for t, given in zip(exact, (keys, values), strict=True):
        t[:, position] = given[:, position]  # before ``kept``
    qkv(x, gain, weight, offsets, 1e-6, cos, sin, at, -7, kept, queries, keys, values, rows, tiles[dtype])
    fit = min(rows, capacity - position)
    assert distance(queries[:fit], wanted[:fit]) < LIMIT[dtype] and bool(queries[rows:].isnan().all())
    for written, reference in zip((keys, values), exact, strict=True):
        assert distance(written, reference[:, :capacity]) < LIMIT[dtype]


def rope(length: int, dim: int, dtype: Any) -> tuple[Any, Any]:
    """Cosines and signed sines, [length, dim]."""
    angle = torch.outer(torch.arange(length), 10.0 ** -torch.arange(dim // 2)).to(DEVICE)
    return torch.cat([angle.cos()] * 2, -1).to(dtype), torch.cat([-angle.sin(), angle.sin()], -1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 5, 9])
@pytest.mark.parametrize("position", [0, 1, CHUNK - 3, 2 * CHUNK, 2 * CHUNK + 77])
def test_attention(dtype: Any, rows: int, position: int) -> None:
    """Any length, blocks across a chunk's border, a tail of NaN behind the length."""
    heads, kv_heads, dim, capacity = 6, 2, 32, 4 * CHUNK
    queries = randn(16, heads * dim, dtype=dtype)
    keys, values = (randn(kv_heads, capacity, dim, dtype=dtype, seed=s) for s in (1, 2))
    keys[:, position + rows :] = values[:, position + rows :] = float("nan")
    wanted = attention_reference(queries[:rows].double(), keys.double(), values.double(), position)
    out = torch.full((16, heads * dim), float("nan"), dtype=dtype, device=DEVICE)
    at = torch.tensor([position + 7], device=DEVICE)
    attend(queries, keys, values, at, -7, out, workspace(heads, dim, capacity, DEVICE), rows)
    assert distance(out[:rows], wanted) < LIMIT[dtype] and bool(out[rows:].isnan().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 9])
def test_head_takes_the_lowest_of_equal_logits(dtype: Any, rows: int) -> None:
    vocab, hidden = 1000, 96
    tile = WIDE[dtype]._replace(features=64)
    x, w = randn(16, hidden, dtype=dtype), randn(vocab, hidden, dtype=dtype, scale=0.1)
    gain = torch.ones(hidden, dtype=dtype, device=DEVICE)
    choices, _ = head_reference(x.double(), gain.double(), w.double(), 1e-6)
    for m in range(rows):
        w[(int(choices[m]) + 501) % vocab] = w[int(choices[m])]
    wanted, exact = head_reference(x[:rows].double(), gain.double(), w.double(), 1e-6)
    best = torch.zeros(16, head_tiles(vocab, tile), device=DEVICE)
    logits = torch.full((16, vocab), float("nan"), device=DEVICE)
    found = torch.full((16,), -1, device=DEVICE)
    head_argmax(x, gain, w, 1e-6, rows, tile, best, best.int(), found, logits)
    assert distance(logits[:rows], exact) < LIMIT[dtype]
    assert torch.equal(found[:rows], logits[:rows].argmax(-1)) and bool((found[rows:] == -1).all())
    if dtype == torch.float32:
        assert torch.equal(found[:rows], wanted)


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("room", [20, 3, 1, 0])
def test_commits_equal_the_tensor_code(k: int, traced: bool, room: int) -> None:
    """Proposals and commits of rounds and of plain steps, by kernels and by ``DecodeState``, over random trials."""
    generator = torch.Generator().manual_seed(k)
    for trial in range(6):
        tokens = torch.randint(0, 3, (20,), generator=generator).tolist()
        passes = (torch.rand(20, generator=generator) < 0.7).tolist() if traced else None
        states: list[Any] = [kind(32, k, 3, DEVICE) for kind in (DecodeState, FusedState)]
        proposals = torch.randint(0, 3, (k + 2,), generator=generator).to(DEVICE)
        choices = torch.randint(0, 3, (k + 1,), generator=generator).to(DEVICE)
        for state, fused in zip(states, (False, True), strict=True):
            state.begin([1, 2], room, tokens if traced else None, passes)
            state.first[0], state.draft_first[0] = trial % 3, trial % 2
            for round_number in range(2):  # the second is not the first, whose row 0 is the prefill's
                for i in range(k):
                    state.propose(i, maxima(proposals[i : i + 1]) if fused else proposals[i : i + 1])
                state.commit_round(maxima(choices) if fused else choices)
                for _ in range(round_number):
                    state.commit_one(maxima(proposals[-1:]) if fused else proposals[-1:])
        plain, kernels = (vars(state) for state in states)
        for name, value in plain.items():
            if name == "log":
                counted = int(plain["rounds"])
                assert torch.equal(value[:counted], kernels[name][:counted]), name
            elif isinstance(value, torch.Tensor):
                assert torch.equal(value, kernels[name]), (name, value, kernels[name])


def maxima(choices: Any) -> Maxima:
    """Tile maxima, as the head leaves them, whose argmax is ``choices``: a vocabulary of 3 in 3 tiles of one."""
    rows = choices.shape[0]
    best = torch.nn.functional.one_hot(choices, 3).float().contiguous()
    return Maxima(best, torch.arange(3, dtype=torch.int32, device=DEVICE).repeat(rows, 1), 3, rows)


def test_embed() -> None:
    table, out = randn(50, 24), torch.zeros(4, 24, device=DEVICE)
    embed(torch.tensor([49, 0, 7], device=DEVICE), table, out, 3)
    assert torch.equal(out[:3], table[[49, 0, 7]]) and not out[3].any()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_a_fused_step_is_the_plain_forward(name: str) -> None:
    """Prompt through the plain forward, then blocks of 1, 2 and 5 rows through both."""
    model = load_pair(name, DEVICE, "fp32").target
    ids = torch.randint(0, 320, (40,), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    plain, ours = model.new_cache(64), model.new_cache(64)
    for cache in (plain, ours):
        model.forward(ids[:30], cache)
    fused, position = FusedDecoder(model, ours), torch.tensor([30], device=DEVICE)
    at = 30
    for rows in (1, 2, 5):
        logits = torch.zeros(rows, 320, device=DEVICE)
        choices = fused.step(ids[at : at + rows], position, at - 30, logits=logits)
        wanted = model.forward(ids[at : at + rows], plain)
        at += rows
        assert distance(logits, wanted) < 1e-5
        assert torch.equal(choices, wanted.argmax(-1))
    assert distance(ours.keys, plain.keys) < 1e-5


def test_the_compiled_engine_without_capture() -> None:
    """Rounds, commits and text of mode "compiled", with its functions called where graphs would be replayed."""
    from tests.test_graphs import Direct

    pair = load_pair("tiny-llama", DEVICE, "fp32")
    prompt, new = [5, 17, 250, 3, 42, 8], 5
    plain = autoregressive(pair.target, prompt, new).tokens
    wanted = speculative(pair.target, DraftModel(pair.draft), prompt, new, 2)
    engine = GraphEngine(pair.target, pair.draft, 2, "compiled", 11, Direct)
    found = engine.speculative(prompt, new)
    assert found.tokens == plain and found.rounds == wanted.rounds
    assert engine.autoregressive(prompt, new).tokens == plain
    passes = [True, False, True, True, True]
    wanted = speculative(
        pair.target, ForcedDraft(pair.draft, plain, passes), prompt, new, 2, acceptance=Imposed(plain, passes)
    )
    assert engine.speculative(prompt, new, script=plain, passes=passes).rounds == wanted.rounds


def test_the_front_door_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """``mode="compiled"`` gives eager's tokens and rounds; without a GPU functions stand in place of the graphs."""
    if not CUDA:
        monkeypatch.setattr(captured, "GraphEngine", lambda *given: GraphEngine(*given, capture=Direct))
        monkeypatch.setattr(captured, "GRAIN", 32)  # the interpreter takes its time over a long context
    pair, prompt, new = load_pair("tiny-llama", str(DEVICE), "fp32"), list(range(40, 60)), 6
    text = autoregressive(pair.target, prompt, new).tokens
    assert autoregressive(pair.target, prompt, new, mode="compiled").tokens == text
    for proposer, rule in (
        (DraftModel(pair.draft), None), (DraftFree(text, DEVICE), Imposed(text, [True, False] * new)),
    ):  # fmt: skip
        found, wanted = (
            speculative(pair.target, proposer, prompt, new, 3, acceptance=rule, mode=mode)
            for mode in ("compiled", "eager")
        )
        assert found.tokens == wanted.tokens == text and found.rounds == wanted.rounds
        assert found.mode == "compiled"
