"""Norm, query/key/value product, bias, rope and cache write in one kernel.

    x [rows, hidden] -> queries [rows, heads * D], rotated; new keys (rotated) and values go into the cache

A program owns as many features of the first half of a head as of its second half, so that it holds both parts of every
rotation. Bytes moved: W once, x once per program (from the L2 cache), queries and ``rows`` cache rows out.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .launch import options
from .matvec import Tile, columns, product, reduced


@triton.jit
def qkv_kernel(
    x_ptr, gain_ptr, w_ptr, bias_ptr, queries_ptr, keys_ptr, values_ptr, cos_ptr, sin_ptr, position_ptr, kept_ptr, rows,
    offset, capacity, table, eps, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
    FEATURES: tl.constexpr, SLICES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, BIAS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = FEATURES // 2
    head = tl.program_id(0) // (D // FEATURES)
    d = tl.program_id(0) % (D // FEATURES) * HALF + tl.arange(0, HALF)[:, None]  # in the head's first half
    first = head * D + tl.program_id(0) % (D // FEATURES) * HALF
    m = tl.arange(0, COLUMNS)[None, :]
    token = tl.load(position_ptr).to(tl.int32) + offset + m
    kept = tl.load(kept_ptr).to(tl.int32)
    # What no kernel of the step writes is loaded before the product waits.
    turn = tl.minimum(token, table - 1) * D + d
    low_cos, low_sin = tl.load(cos_ptr + turn), tl.load(sin_ptr + turn)
    high_cos, high_sin = tl.load(cos_ptr + turn + D // 2), tl.load(sin_ptr + turn + D // 2)
    if BIAS:
        low_bias, high_bias = tl.load(bias_ptr + head * D + d), tl.load(bias_ptr + head * D + D // 2 + d)
    sums, squares, _ = product(
        x_ptr, gain_ptr, w_ptr, x_ptr, first, rows, (HEADS + 2 * KV_HEADS) * D, K, 1, FEATURES, HALF, D // 2, SLICES,
        COLUMNS, BLOCK, STAGES, EARLY, True, False, PDL,
    )  # fmt: skip
    y = tl.reshape(reduced(sums, squares, eps, K, 1, FEATURES, SLICES, COLUMNS, True), [2, HALF, COLUMNS])
    half = tl.arange(0, 2)[:, None, None]
    low = tl.sum(tl.where(half == 0, y, 0.0), 0)  # [HALF, COLUMNS]
    high = tl.sum(tl.where(half == 1, y, 0.0), 0)
    if BIAS:
        low += low_bias.to(tl.float32)
        high += high_bias.to(tl.float32)
    inside = (m < rows) & (d >= 0)
    written = inside & (token < capacity) & (token >= kept)
    if head < HEADS + KV_HEADS:
        turned_low = low * low_cos.to(tl.float32) + high * low_sin.to(tl.float32)
        turned_high = high * high_cos.to(tl.float32) + low * high_sin.to(tl.float32)
        if head < HEADS:
            to = queries_ptr + m * (HEADS * D) + head * D + d
            mask = inside
        else:
            to = keys_ptr + ((head - HEADS) * capacity + token) * D + d
            mask = written
        tl.store(to, turned_low.to(queries_ptr.dtype.element_ty), mask=mask)
        tl.store(to + D // 2, turned_high.to(queries_ptr.dtype.element_ty), mask=mask)
    else:
        to = values_ptr + ((head - HEADS - KV_HEADS) * capacity + token) * D + d
        tl.store(to, low.to(queries_ptr.dtype.element_ty), mask=written)
        tl.store(to + D // 2, high.to(queries_ptr.dtype.element_ty), mask=written)


def qkv(
    x: Tensor,
    gain: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    position: Tensor,
    offset: int,
    kept: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: int,
    tile: Tile,
) -> None:
    """Write ``queries`` [rows, heads * D] and rows ``position + offset`` onward of ``keys``, ``values`` [KV, capacity,
    D].

    ``weight`` [(heads + 2 KV) * D, hidden]; ``cos``, ``sin`` [table, D]: rope table. Cache rows before ``kept`` stay as
    they are. ``position`` and ``kept`` [1] are on the device and read before the kernel's wait: they must be complete
    when the step's first kernel runs.
    """
    (kv_heads, capacity, dim), heads, hidden = keys.shape, queries.shape[1] // keys.shape[2], weight.shape[1]
    steps = triton.cdiv(hidden, tile.slices * tile.block)
    qkv_kernel[(weight.shape[0] // tile.features,)](
        x, gain, weight, x if bias is None else bias, queries, keys, values, cos, sin, position, kept, rows, offset,
        capacity, cos.shape[0], eps, heads, kv_heads, dim, hidden, tile.features, tile.slices, columns(rows,
        tile.slices), tile.block, tile.stages, min(tile.early, steps), bias is not None, num_warps=tile.warps,
        **options(x.device),
    )  # fmt: skip


def qkv_reference(
    x: Tensor,
    gain: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    position: int,
    heads: int,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """The same in plain PyTorch: returns the queries, writes ``keys`` and ``values``."""
    (kv_heads, _, dim), rows = keys.shape, x.shape[0]
    at = torch.arange(position, position + rows, device=x.device)
    y = F.linear(F.rms_norm(x, (x.shape[-1],), gain, eps), weight, bias).view(rows, heads + 2 * kv_heads, dim)
    qk = y[:, : heads + kv_heads]
    qk = qk * cos[at].unsqueeze(1) + qk.roll(dim // 2, -1) * sin[at].unsqueeze(1)
    keys[:, position : position + rows] = qk[:, heads:].transpose(0, 1)
    values[:, position : position + rows] = y[:, heads + kv_heads :].transpose(0, 1)
    return qk[:, :heads].reshape(rows, heads * dim)
