"""Final norm, output head and argmax: x [rows, hidden] -> the index of each row's largest logit, lowest index first.

Two stages. Each program of the first computes the logits of one tile of the vocabulary (as ``matvec``, norm fused) and
keeps its largest and where it is; the logits themselves are written only on request. One program of the second looks
through the tiles. Logits are compared in FP32, before any rounding. Bytes moved: the head once, x once per program.
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
from .matvec import Tile, columns, product


@triton.jit
def head_kernel(
    x_ptr, gain_ptr, w_ptr, best_ptr, where_ptr, logits_ptr, rows, eps, tiles, N: tl.constexpr, K: tl.constexpr,
    FEATURES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
    LOGITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * FEATURES
    sums, squares, _ = product(
        x_ptr, gain_ptr, w_ptr, x_ptr, first, rows, N, K, 1, FEATURES, FEATURES, 0, 1, COLUMNS, BLOCK, STAGES, EARLY,
        True, False, PDL,
    )  # fmt: skip
    logits = sums * tl.rsqrt(squares / K + eps)[None, :]
    n = first + tl.arange(0, FEATURES)
    m = tl.arange(0, COLUMNS)
    logits = tl.where((n < N)[:, None], logits, float("-inf"))
    if LOGITS:
        tl.store(
            logits_ptr + m[None, :] * N + n[:, None], logits, mask=(m < rows)[None, :] & (n < N)[:, None]
        )
    best, where = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(best_ptr + m * tiles + tl.program_id(0), best, mask=m < rows)
    tl.store(where_ptr + m * tiles + tl.program_id(0), first + where, mask=m < rows)


@triton.jit
def scan(best_ptr, where_ptr, tiles, m, rows, COLUMNS: tl.constexpr, SCAN: tl.constexpr):
    """Argmax of row ``m`` over all tiles: int32 of m's shape. Tiles are in order, so the first of equals is lowest."""
    best = tl.full([COLUMNS], float("-inf"), tl.float32)
    where = tl.zeros([COLUMNS], tl.int32)
    for start in range(0, tiles, SCAN):
        tile = start + tl.arange(0, SCAN)
        inside = (m < rows)[:, None] & (tile < tiles)[None, :]
        at = m[:, None] * tiles + tile[None, :]
        value = tl.load(best_ptr + at, mask=inside, other=float("-inf"))
        index = tl.load(where_ptr + at, mask=inside, other=2147483647)
        top = tl.max(value, 1)
        lowest = tl.min(tl.where(value == top[:, None], index, 2147483647), 1)
        where = tl.where(top > best, lowest, where)
        best = tl.maximum(top, best)
    return where


@triton.jit
def choose_kernel(
    best_ptr,
    where_ptr,
    choices_ptr,
    rows,
    tiles,
    COLUMNS: tl.constexpr,
    SCAN: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:  # the last kernel of a step: the next step starts when this one's work is complete
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    m = tl.arange(0, COLUMNS)
    where = scan(best_ptr, where_ptr, tiles, m, rows, COLUMNS, SCAN)
    tl.store(choices_ptr + m, where.to(tl.int64), mask=m < rows)


def scan_shape(rows: int) -> tuple[int, int]:
    """Rows and tiles that one program looks at together."""
    rows = triton.next_power_of_2(rows)
    return rows, min(2048, 16384 // rows)


def head_tiles(vocab: int, tile: Tile) -> int:
    """Programs of the first stage."""
    return triton.cdiv(vocab, tile.features)


def head_argmax(
    x: Tensor,
    gain: Tensor,
    weight: Tensor,
    eps: float,
    rows: int,
    tile: Tile,
    best: Tensor,
    where: Tensor,
    choices: Tensor | None,
    logits: Tensor | None = None,
) -> None:
    """Write ``choices`` [rows] int64 (None: leave the second stage to another kernel) and, if given, ``logits``
    [rows, vocab] FP32. ``best`` (FP32) and ``where`` (int32), [16, tiles]: workspace."""
    vocab, hidden = weight.shape
    tiles = head_tiles(vocab, tile)
    head_kernel[(tiles,)](
        x, gain, weight, best, where, best if logits is None else logits, rows, eps, tiles, vocab, hidden,
        tile.features, columns(rows, 1), tile.block, tile.stages, tile.early, logits is not None, num_warps=tile.warps,
        **options(x.device),
    )  # fmt: skip
    if choices is not None:
        choose_kernel[(1,)](
            best, where, choices, rows, tiles, *scan_shape(rows), num_warps=8, **options(x.device)
        )


def head_reference(x: Tensor, gain: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Choices [rows] and logits [rows, vocab] in plain PyTorch."""
    logits = F.linear(F.rms_norm(x, (x.shape[-1],), gain, eps), weight)
    return torch.argmax(logits, -1), logits
