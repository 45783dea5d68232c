"""Rope, cache write and split-KV attention of up to 16 rows (flash decoding, Dao et al. 2023), and the merge of splits.

    qkv [rows, (heads + 2 KV heads) * D] -> out [rows, heads * D]

The cache is cut into chunks of fixed length, one program each; programs whose chunk lies beyond the length return at
once, so the cost follows the length and one grid serves every length up to the capacity. Bytes moved: keys and values of
the length once from memory (again from the L2 cache for each further 16 query rows), partial sums written and read once.

Chunk boundaries depend on positions only and query rows are worked in tiles of 16, whatever the number of rows: a row's
result does not depend on how many rows stand beside it.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import MAX_ROWS
from .launch import options

CHUNK = 64  # tokens per program: 32 KiB of keys and values at head_dim 128
MERGE = 128  # splits merged per step
PART = 64  # elements of a head per merging program

@triton.jit
def unturned(at, turn_at, d, cos_ptr, sin_ptr, inside, D: tl.constexpr):
    """What a rotation needs, [R, D] each: rows at ``at`` [R, 1], the same rolled by half, rows of the two tables."""
    straight = tl.load(at + d, mask=inside, other=0.0)
    rolled = tl.load(at + (d + D // 2) % D, mask=inside, other=0.0)
    return straight, rolled, tl.load(cos_ptr + turn_at * D + d), tl.load(sin_ptr + turn_at * D + d)


@triton.jit
def turned(straight, rolled, cos, sin):
    """Rotary embedding, in FP32, rounded to the rows' dtype."""
    wide = straight.to(tl.float32) * cos.to(tl.float32) + rolled.to(tl.float32) * sin.to(tl.float32)
    return wide.to(straight.dtype)


@triton.jit
def attention_kernel(
    qkv_ptr, keys_ptr, values_ptr, cos_ptr, sin_ptr, position_ptr, partial_ptr, stats_ptr, rows, offset, capacity, table,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, MAX: tl.constexpr, CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = HEADS // KV_HEADS
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    split, kv, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = split * CHUNK
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(position_ptr).to(tl.int32) + offset
    if begin >= position + rows:
        return
    # 1. Cached tokens of this chunk.
    d = tl.arange(0, D)[None, :]
    token = begin + tl.arange(0, CHUNK)[:, None]
    keys = keys_ptr + kv * capacity * D + token * D + d
    values = values_ptr + kv * capacity * D + token * D + d
    key = tl.load(keys, mask=token < position, other=0.0)
    value = tl.load(values, mask=token < position, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()

    # 2. Row r is query head kv * GROUP + r % GROUP of block row r // GROUP.
    r = tile * 16 + tl.arange(0, 16)
    m, head = r // GROUP, kv * GROUP + r % GROUP
    real = r < rows * GROUP
    own = position + m  # the last token that this row sees
    turn = tl.minimum(own, table - 1)[:, None]
    q, q_rolled, q_cos, q_sin = unturned(
        qkv_ptr + (m * WIDTH + head * D)[:, None], turn, d, cos_ptr, sin_ptr, real[:, None], D
    )

    # 3. New tokens of this chunk enter the cache. Programs that share the chunk write the same bytes.
    if position + rows > begin and position < begin + CHUNK:
        new = token - position
        inside = (new >= 0) & (new < rows) & (token < capacity)
        source = qkv_ptr + new * WIDTH + kv * D
        straight, rolled, cos, sin = unturned(
            source + HEADS * D, tl.minimum(token, table - 1), d, cos_ptr, sin_ptr, inside, D
        )
        fresh = tl.load(source + (HEADS + KV_HEADS) * D + d, mask=inside, other=0.0)
        value = tl.where(inside, fresh, value)
        key = tl.where(inside, turned(straight, rolled, cos, sin), key)
        tl.store(values, value, mask=inside)
        tl.store(keys, key, mask=inside)

    # 4. One softmax over the chunk, in base 2.
    q = turned(q, q_rolled, q_cos, q_sin)
    SCALE: tl.constexpr = 1.4426950408889634 * D**-0.5
    scores = tl.dot(q, tl.trans(key), input_precision="ieee") * SCALE
    seen = (begin + tl.arange(0, CHUNK))[None, :] <= own[:, None]
    scores = tl.where(seen, scores, float("-inf"))
    top = tl.max(scores, 1)
    weights = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    sums = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    at = (split * MAX + m) * HEADS + head
    tl.store(partial_ptr + at[:, None] * D + d, sums, mask=real[:, None])
    tl.store(stats_ptr + at * 2, top, mask=real)
    tl.store(stats_ptr + at * 2 + 1, tl.sum(weights, 1), mask=real)


@triton.jit
def merge_kernel(
    partial_ptr, stats_ptr, position_ptr, out_ptr, rows, offset, HEADS: tl.constexpr, D: tl.constexpr, MAX: tl.constexpr,
    CHUNK: tl.constexpr, MERGE: tl.constexpr, PART: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    m, head = tl.program_id(0), tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    splits = tl.cdiv(tl.load(position_ptr).to(tl.int32) + offset + rows, CHUNK)
    if PDL:
        tl.extra.cuda.gdc_wait()
    d = tl.program_id(2) * PART + tl.arange(0, PART)
    top = float("-inf")
    total = 0.0
    sums = tl.zeros([PART], tl.float32)
    for start in range(0, splits, MERGE):
        split = start + tl.arange(0, MERGE)
        at = (split * MAX + m) * HEADS + head
        held = split < splits
        tops = tl.load(stats_ptr + at * 2, mask=held, other=float("-inf"))
        totals = tl.load(stats_ptr + at * 2 + 1, mask=held, other=0.0)
        parts = tl.load(partial_ptr + at[:, None] * D + d[None, :], mask=held[:, None], other=0.0)
        higher = tl.maximum(top, tl.max(tops, 0))  # finite: the first chunk has a token that every row sees
        weights = tl.exp2(tops - higher)
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weights * totals, 0)
        sums = sums * shrink + tl.sum(parts * weights[:, None], 0)
        top = higher
    tl.store(out_ptr + (m * HEADS + head) * D + d, (sums / total).to(out_ptr.dtype.element_ty))


def workspace(heads: int, dim: int, capacity: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Partial sums [splits, 16, heads, D] and their (maximum, total) [splits, 16, heads, 2], both FP32."""
    shape = (triton.cdiv(capacity, CHUNK), MAX_ROWS, heads)
    return torch.zeros(*shape, dim, device=device), torch.zeros(*shape, 2, device=device)


def attend(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    cos: Tensor,
    sin: Tensor,
    position: Tensor,
    out: Tensor,
    work: tuple[Tensor, Tensor],
    rows: int,
    heads: int,
    offset: int = 0,
) -> None:
    """Attention of ``rows`` new tokens at positions ``position + offset`` onward; they enter the cache on the way.

    ``keys``, ``values`` [KV, capacity, D]: one layer's cache. ``position`` [1]: on the device. ``cos``, ``sin``
    [table, D]: rope table. ``out`` [rows, heads * D]. Position and older cache rows are read before the kernel's wait:
    both must be complete when the step's first kernel runs.
    """
    kv_heads, capacity, dim = keys.shape
    splits, tiles = triton.cdiv(capacity, CHUNK), triton.cdiv(rows * (heads // kv_heads), 16)
    partial, stats = work
    attention_kernel[(splits, kv_heads, tiles)](
        qkv, keys, values, cos, sin, position, partial, stats, rows, offset, capacity, cos.shape[0], heads, kv_heads, dim,
        MAX_ROWS, CHUNK, num_warps=4 if dim <= 64 else 8, **options(qkv.device),
    )  # fmt: skip
    part = min(PART, dim)
    merge_kernel[(rows, heads, dim // part)](
        partial, stats, position, out, rows, offset, heads, dim, MAX_ROWS, CHUNK, MERGE, part, num_warps=4,
        **options(qkv.device),
    )  # fmt: skip


def attention_reference(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor, sin: Tensor, position: int, heads: int
) -> Tensor:
    """The same in plain PyTorch; also writes the new rows into ``keys`` and ``values``."""
    kv_heads, _, dim = keys.shape
    rows, end = qkv.shape[0], position + qkv.shape[0]
    parts = qkv.view(rows, heads + 2 * kv_heads, dim)
    at = torch.arange(position, end, device=qkv.device)
    qk = parts[:, : heads + kv_heads]
    qk = qk * cos[at].unsqueeze(1) + qk.roll(dim // 2, -1) * sin[at].unsqueeze(1)
    keys[:, position:end] = qk[:, heads:].transpose(0, 1)
    values[:, position:end] = parts[:, heads + kv_heads :].transpose(0, 1)
    group = heads // kv_heads
    k = keys[:, :end].repeat_interleave(group, 0)
    v = values[:, :end].repeat_interleave(group, 0)
    scores = qk[:, :heads].transpose(0, 1) @ k.transpose(1, 2) * dim**-0.5
    seen = torch.arange(end, device=qkv.device) <= at.unsqueeze(1)
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    return (weights @ v).transpose(0, 1).reshape(rows, heads * dim)
