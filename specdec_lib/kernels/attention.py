"""Split-KV attention of up to 16 rows (flash decoding, Dao et al. 2023) and the merge of the splits.

    queries [rows, heads * D], cache -> out [rows, heads * D]

The cache is cut into chunks of fixed length, one program each; programs whose chunk lies beyond the length return at
once, so the cost follows the length and one grid serves every length up to the capacity. Bytes moved: keys and values
of the length once from memory (again from the L2 cache for each further 16 query rows), partial sums written and read
once.

Chunk boundaries depend on positions only and query rows are worked in tiles of 16, whatever the number of rows: a row's
result does not depend on how many rows stand beside it.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import MAX_ROWS
from .launch import options

TILE = 16  # query rows per program
MERGE = 64  # splits merged per step: 8,192 tokens in one at head_dim 128
PART = 64  # elements of a head per merging program


def chunk(dim: int) -> tuple[int, int]:
    """Tokens and warps per program, by measurement on an NVIDIA H200: as much as its registers hold."""
    return (128, 8) if dim >= 128 else (64, 4)


@triton.jit
def attention_kernel(
    queries_ptr, keys_ptr, values_ptr, position_ptr, partial_ptr, stats_ptr, rows, offset, capacity, HEADS:
    tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, MAX: tl.constexpr, CHUNK: tl.constexpr, TILE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = HEADS // KV_HEADS
    split, kv, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = split * CHUNK
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(position_ptr).to(tl.int32) + offset
    if begin >= position + rows:
        return
    # Rows of earlier steps are loaded while the step's keys and values are still being computed.
    d = tl.arange(0, D)[None, :]
    token = begin + tl.arange(0, CHUNK)[:, None]
    at = (kv * capacity + token) * D + d
    key = tl.load(keys_ptr + at, mask=token < position, other=0.0)
    value = tl.load(values_ptr + at, mask=token < position, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    # Row r is query head kv * GROUP + r % GROUP of block row r // GROUP.
    r = tile * TILE + tl.arange(0, TILE)
    m, head = r // GROUP, kv * GROUP + r % GROUP
    real = r < rows * GROUP
    q = tl.load(queries_ptr + (m * HEADS + head)[:, None] * D + d, mask=real[:, None], other=0.0)
    if begin + CHUNK > position:  # the chunk of the new rows, whose sum may not depend on which rows are new
        key = tl.load(keys_ptr + at, mask=token < position + rows, other=0.0)
        value = tl.load(values_ptr + at, mask=token < position + rows, other=0.0)
    SCALE: tl.constexpr = 1.4426950408889634 * D**-0.5  # softmax in base 2
    scores = tl.dot(q, tl.trans(key), input_precision="ieee") * SCALE
    seen = (begin + tl.arange(0, CHUNK))[None, :] <= (position + m)[:, None]
    scores = tl.where(seen, scores, float("-inf"))
    top = tl.max(scores, 1)
    weights = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    sums = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    to = (split * MAX + m) * HEADS + head
    tl.store(partial_ptr + to[:, None] * D + d, sums, mask=real[:, None])
    tl.store(stats_ptr + to * 2, top, mask=real)
    tl.store(stats_ptr + to * 2 + 1, tl.sum(weights, 1), mask=real)


@triton.jit
def merge_kernel(
    partial_ptr, stats_ptr, position_ptr, out_ptr, rows, offset, HEADS: tl.constexpr, D: tl.constexpr, MAX:
    tl.constexpr, CHUNK: tl.constexpr, MERGE: tl.constexpr, PART: tl.constexpr, PDL: tl.constexpr,
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
    shape = (triton.cdiv(capacity, chunk(dim)[0]), MAX_ROWS, heads)
    return torch.zeros(*shape, dim, device=device), torch.zeros(*shape, 2, device=device)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    offset: int,
    out: Tensor,
    work: tuple[Tensor, Tensor],
    rows: int,
) -> None:
    """Attention of the ``rows`` tokens at ``position + offset`` onward, which are in the cache already.

    ``queries``, ``out`` [rows, heads * D]; ``keys``, ``values`` [KV, capacity, D]: one layer's cache. ``position`` [1]
    and earlier cache rows are read before the kernel's wait: both must be complete when the step's first kernel runs.
    """
    (kv_heads, capacity, dim), heads = keys.shape, queries.shape[1] // keys.shape[2]
    tokens, warps = chunk(dim)
    splits, tiles = triton.cdiv(capacity, tokens), triton.cdiv(rows * (heads // kv_heads), TILE)
    partial, stats = work
    attention_kernel[(splits, kv_heads, tiles)](
        queries, keys, values, position, partial, stats, rows, offset, capacity, heads, kv_heads, dim, MAX_ROWS, tokens,
        TILE, num_warps=warps, **options(queries.device),
    )  # fmt: skip
    part = min(PART, dim)
    merge_kernel[(rows, heads, dim // part)](
        partial, stats, position, out, rows, offset, heads, dim, MAX_ROWS, tokens, MERGE, part, num_warps=4,
        **options(queries.device),
    )  # fmt: skip


def attention_reference(queries: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    """The same in plain PyTorch."""
    (kv_heads, _, dim), rows = keys.shape, queries.shape[0]
    end, heads = position + rows, queries.shape[1] // dim
    k = keys[:, :end].repeat_interleave(heads // kv_heads, 0)
    v = values[:, :end].repeat_interleave(heads // kv_heads, 0)
    scores = queries.view(rows, heads, dim).transpose(0, 1) @ k.transpose(1, 2) * dim**-0.5
    at = torch.arange(end, device=keys.device)
    weights = torch.softmax(scores.masked_fill(at > at[position:].unsqueeze(1), float("-inf")), -1)
    return (weights @ v).transpose(0, 1).reshape(rows, heads * dim)
