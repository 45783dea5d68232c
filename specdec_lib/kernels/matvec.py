"""Matrix-vector products of up to 16 rows: y = f(x) W^T with the work around them fused in.

    x [rows, K], W [N, K] -> out [rows, N]

``norm``: f is RMSNorm with a gain, its scale is applied to the sums. ``bias`` and ``residual`` are added. ``gated``: W
is [2 N, K], gate above up, and out = silu(gate) * up. Bytes moved: W once, x once per program (from the L2 cache), out
once.

**How a narrow matrix fills tensor cores.** A program owns ``features`` outputs and reads each of their weight rows as
``slices`` pieces of the K axis. Piece s of feature n is row s * features + n of a 64-row tile; the columns of the other
operand are the same pieces of x, ``columns`` per slice. One matrix product then gives all pairs of pieces; only equal
pieces count, and their sum is the result. Tensor cores have work to spare here: the product waits for memory.

The number of columns is fixed (8 per slice up to 8 rows, then 16): one row and eight rows run the same instructions in
the same order, so a row's result does not depend on how many rows stand beside it.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .launch import options


class Tile(NamedTuple):
    """How one product is cut up: outputs per program, pieces per weight row, elements of K per step, pipeline stages.

    ``early``: steps, up to 3, whose weights are loaded before the wait.
    """

    features: int
    slices: int
    block: int
    stages: int
    early: int = 0
    warps: int = 4


def columns(rows: int, slices: int) -> int:
    """Columns per slice: the least that fills a tensor core's tile, the same for 1 to 8 rows."""
    return max(8 if rows <= 8 else 16, 16 // slices)


@triton.jit
def weights(
    w_ptr,
    row_at,
    feature,
    r_from,
    at,
    N: tl.constexpr,
    K: tl.constexpr,
    FEATURES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """One step's weight tile [R, BLOCK]; weights are read once, so they are the first to leave the L2 cache."""
    pointers = w_ptr + row_at[:, None] + at[None, :]
    if EVEN:
        return tl.load(pointers, eviction_policy="evict_first")
    inside = (feature < N)[:, None] & (r_from[:, None] + at[None, :] < K)
    return tl.load(pointers, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def gains(gain_ptr, c_from, real, at, K: tl.constexpr):
    """The norm's gains for one step, as wide as x though columns repeat: only wide loads are pipelined."""
    inside = real[None, :] & (c_from[None, :] + at[:, None] < K)
    return tl.load(gain_ptr + c_from[None, :] + at[:, None], mask=inside, other=0.0)


@triton.jit
def inputs(x_ptr, x_at, c_from, real, at, K: tl.constexpr):
    """One step's x [BLOCK, C]."""
    inside = real[None, :] & (c_from[None, :] + at[:, None] < K)
    return tl.load(x_ptr + x_at[None, :] + at[:, None], mask=inside, other=0.0)


@triton.jit
def add_step(sums, squares, w, x, gain, NORM: tl.constexpr):
    """Add one step's products to ``sums`` [R, C] and x squared to ``squares`` [BLOCK, C]."""
    if NORM:
        wide = x.to(tl.float32)
        squares += wide * wide
        x = (wide * gain.to(tl.float32)).to(x.dtype)
    return tl.dot(w, x, sums, input_precision="ieee"), squares


@triton.jit
def product(
    x_ptr, gain_ptr, w_ptr, extra_ptr, first, rows, N: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr,
    FEATURES: tl.constexpr, RUN: tl.constexpr, GAP: tl.constexpr, SLICES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK:
    tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr, NORM: tl.constexpr, EXTRA: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Sums [PARTS * SLICES * FEATURES, SLICES * COLUMNS] and x's sums of squares [SLICES * COLUMNS], both FP32.

    The program's features are runs of ``RUN`` that lie ``GAP`` apart, from ``first`` on. Holds the kernel's wait: the
    first ``EARLY`` steps' weights are loaded before it. With ``EXTRA`` also the program's elements of ``extra_ptr``
    [rows, N], read beside the loop: [FEATURES, COLUMNS].
    """
    SPAN: tl.constexpr = (K + SLICES * BLOCK - 1) // (SLICES * BLOCK) * BLOCK
    EVEN: tl.constexpr = (N % FEATURES == 0) and (K % (SLICES * BLOCK) == 0)
    R: tl.constexpr = PARTS * SLICES * FEATURES
    C: tl.constexpr = SLICES * COLUMNS
    r = tl.arange(0, R)
    feature = first + r % FEATURES % RUN + r % FEATURES // RUN * GAP
    r_from = (r // FEATURES) % SLICES * SPAN
    row_at = (r // (FEATURES * SLICES) * N + feature) * K + r_from
    c = tl.arange(0, C)
    c_from = c // COLUMNS * SPAN
    x_at = c % COLUMNS * K + c_from
    real = c % COLUMNS < rows
    k = tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    gain0, gain1, gain2 = 0.0, 0.0, 0.0
    if EARLY > 0:
        w0 = weights(w_ptr, row_at, feature, r_from, k, N, K, FEATURES, EVEN)
        if NORM:
            gain0 = gains(gain_ptr, c_from, real, k, K)
    if EARLY > 1:
        w1 = weights(w_ptr, row_at, feature, r_from, k + BLOCK, N, K, FEATURES, EVEN)
        if NORM:
            gain1 = gains(gain_ptr, c_from, real, k + BLOCK, K)
    if EARLY > 2:
        w2 = weights(w_ptr, row_at, feature, r_from, k + 2 * BLOCK, N, K, FEATURES, EVEN)
        if NORM:
            gain2 = gains(gain_ptr, c_from, real, k + 2 * BLOCK, K)
    if PDL:
        tl.extra.cuda.gdc_wait()
    extra = 0.0
    if EXTRA:
        n = first + tl.arange(0, FEATURES)[:, None]
        m = tl.arange(0, COLUMNS)[None, :]
        extra = tl.load(extra_ptr + m * N + n, mask=(m < rows) & (n < N), other=0.0)
    if EARLY > 0:
        x0 = inputs(x_ptr, x_at, c_from, real, k, K)
    if EARLY > 1:
        x1 = inputs(x_ptr, x_at, c_from, real, k + BLOCK, K)
    if EARLY > 2:
        x2 = inputs(x_ptr, x_at, c_from, real, k + 2 * BLOCK, K)
    sums = tl.zeros([R, C], tl.float32)
    squares = tl.zeros([BLOCK, C], tl.float32)
    if EARLY > 0:
        sums, squares = add_step(sums, squares, w0, x0, gain0, NORM)
    if EARLY > 1:
        sums, squares = add_step(sums, squares, w1, x1, gain1, NORM)
    if EARLY > 2:
        sums, squares = add_step(sums, squares, w2, x2, gain2, NORM)
    if EARLY * BLOCK < SPAN:
        for start in tl.range(EARLY * BLOCK, SPAN, BLOCK, num_stages=STAGES):
            at = start + k
            w = weights(w_ptr, row_at, feature, r_from, at, N, K, FEATURES, EVEN)
            gain = gains(gain_ptr, c_from, real, at, K) if NORM else 0.0
            sums, squares = add_step(sums, squares, w, inputs(x_ptr, x_at, c_from, real, at, K), gain, NORM)
    return sums, tl.sum(squares, 0), extra


@triton.jit
def reduced(
    sums, squares, eps, K: tl.constexpr, PARTS: tl.constexpr, FEATURES: tl.constexpr, SLICES: tl.constexpr,
    COLUMNS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """The result [PARTS, FEATURES, COLUMNS] of ``product``'s sums, with the norm's scale."""
    if SLICES > 1:  # keep equal pieces only, and add them up
        r = tl.arange(0, PARTS * SLICES * FEATURES)
        c = tl.arange(0, SLICES * COLUMNS)
        equal = ((r // FEATURES) % SLICES)[:, None] == (c // COLUMNS)[None, :]
        sums = tl.where(equal, sums, 0.0)
        sums = tl.sum(tl.reshape(sums, [PARTS * SLICES * FEATURES, SLICES, COLUMNS]), 1)
        sums = tl.sum(tl.reshape(sums, [PARTS, SLICES, FEATURES, COLUMNS]), 1)
    else:
        sums = tl.reshape(sums, [PARTS, FEATURES, COLUMNS])
    if NORM:
        square = tl.sum(tl.reshape(squares, [SLICES, COLUMNS]), 0)
        sums = sums * tl.rsqrt(square / K + eps)[None, None, :]
    return sums


@triton.jit
def matvec_kernel(
    x_ptr, gain_ptr, w_ptr, bias_ptr, residual_ptr, out_ptr, rows, eps, N: tl.constexpr, K: tl.constexpr,
    FEATURES: tl.constexpr, SLICES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    PARTS: tl.constexpr = 2 if GATED else 1
    first = tl.program_id(0) * FEATURES
    sums, squares, residual = product(
        x_ptr, gain_ptr, w_ptr, residual_ptr, first, rows, N, K, PARTS, FEATURES, FEATURES, 0, SLICES, COLUMNS, BLOCK,
        STAGES, EARLY, NORM, RESIDUAL, PDL,
    )  # fmt: skip
    sums = reduced(sums, squares, eps, K, PARTS, FEATURES, SLICES, COLUMNS, NORM)
    if GATED:
        half = tl.arange(0, 2)[:, None, None]
        gate = tl.sum(tl.where(half == 0, sums, 0.0), 0)
        up = tl.sum(tl.where(half == 1, sums, 0.0), 0)
        y = gate * tl.sigmoid(gate) * up
    else:
        y = tl.sum(sums, 0)
    n = first + tl.arange(0, FEATURES)
    m = tl.arange(0, COLUMNS)
    at = m[None, :] * N + n[:, None]
    inside = (m < rows)[None, :] & (n < N)[:, None]
    if BIAS:
        y += tl.load(bias_ptr + n, mask=n < N, other=0.0)[:, None].to(tl.float32)
    if RESIDUAL:
        y += residual.to(tl.float32)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


def matvec(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    rows: int,
    tile: Tile,
    *,
    gain: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> None:
    """Write ``out`` [rows, N] from ``x`` [rows, K] and ``weight`` [N, K] ([2 N, K] if gated); ``residual`` may be
    ``out``."""
    n, k = weight.shape[0] // (2 if gated else 1), weight.shape[1]
    programs, steps = triton.cdiv(n, tile.features), triton.cdiv(k, tile.slices * tile.block)
    matvec_kernel[(programs,)](
        x, x if gain is None else gain, weight, x if bias is None else bias, x if residual is None else residual, out,
        rows, eps, n, k, tile.features, tile.slices, columns(rows, tile.slices), tile.block, tile.stages,
        min(tile.early, steps), gain is not None, bias is not None, residual is not None, gated, num_warps=tile.warps,
        **options(x.device),
    )  # fmt: skip


def matvec_reference(
    x: Tensor,
    weight: Tensor,
    *,
    gain: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """The same in plain PyTorch, in the dtype of ``x``."""
    h = x if gain is None else F.rms_norm(x, (x.shape[-1],), gain, eps)
    y = F.linear(h, weight, bias)
    if gated:
        gate, up = y.chunk(2, -1)
        y = F.silu(gate) * up
    return y if residual is None else residual + y
