"""What follows the head: the argmax over its tiles and the bookkeeping of ``device_state``, as one small kernel each.

The same as ``DecodeState.commit_one``, ``propose`` and ``commit_round``, which are the reference, in one launch in
place of eight to thirty. One program; bytes moved: the head's maxima per tile.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..device_state import DecodeState
from .head import scan, scan_shape
from .launch import options


class Maxima(NamedTuple):
    """What the head's first stage leaves: the largest logit of each tile and where, [rows, tiles] each."""

    best: Tensor
    where: Tensor
    tiles: int
    rows: int


@triton.jit
def commit_one_kernel(
    best_ptr,
    where_ptr,
    tiles,
    text_ptr,
    committed_ptr,
    goal_ptr,
    block_ptr,
    SCAN: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:  # the last kernel of a step, see head.choose_kernel
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    zero = tl.arange(0, 1)
    choice = scan(best_ptr, where_ptr, tiles, zero, 1, 1, SCAN).to(tl.int64)
    committed = tl.load(committed_ptr)
    if committed < tl.load(goal_ptr):
        tl.store(text_ptr + committed + zero, choice)
        tl.store(block_ptr + zero, choice)
        tl.store(committed_ptr, committed + 1)


@triton.jit
def propose_kernel(
    best_ptr, where_ptr, tiles, committed_ptr, origin_ptr, first_ptr, script_ptr, passes_ptr, forced_ptr, block_ptr, i,
    vocab, SCAN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    zero = tl.arange(0, 1)
    choice = scan(best_ptr, where_ptr, tiles, zero, 1, 1, SCAN).to(tl.int64)
    committed = tl.load(committed_ptr)
    if (i == 0) & (committed == tl.load(origin_ptr)):
        choice = tl.load(first_ptr + zero)
    at = committed + i
    given = tl.load(script_ptr + at)
    given = tl.where(tl.load(passes_ptr + at) != 0, given, (given + 1) % vocab)
    tl.store(block_ptr + i + 1 + zero, tl.where(tl.load(forced_ptr) != 0, given, choice))


@triton.jit
def commit_round_kernel(
    best_ptr, where_ptr, tiles, text_ptr, committed_ptr, goal_ptr, origin_ptr, first_ptr, script_ptr, passes_ptr,
    imposed_ptr, tail_ptr, block_ptr, log_ptr, rounds_ptr, k, COLUMNS: tl.constexpr, SCAN: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    step = tl.arange(0, COLUMNS)
    choices = scan(best_ptr, where_ptr, tiles, step, k + 1, COLUMNS, SCAN).to(tl.int64)
    committed, rounds = tl.load(committed_ptr), tl.load(rounds_ptr)
    choices = tl.where((step == 0) & (committed == tl.load(origin_ptr)), tl.load(first_ptr), choices)
    room = tl.load(goal_ptr) - committed
    proposed = tl.minimum(tl.maximum(room - 1, 0), k)
    checked = step < k
    block = tl.load(block_ptr + 1 + step, mask=checked, other=0)
    stands = tl.load(passes_ptr + committed + step, mask=checked, other=0) != 0
    natural = tl.min(tl.where(checked & (block != choices), step, k), 0).to(tl.int64)
    traced = tl.min(tl.where(checked & (stands == 0), step, k), 0).to(tl.int64)
    imposed = tl.load(imposed_ptr) != 0
    accepted = tl.minimum(tl.where(imposed, traced, natural), proposed)
    emitted = tl.minimum(accepted + 1, room)
    given = tl.load(script_ptr + committed + step, mask=step <= k, other=0)
    tokens = tl.where(imposed, given, choices)
    # The last two committed tokens, of which one or both may be old.
    last = tl.sum(tl.where(step == emitted - 1, tokens, 0), 0)
    last = tl.where(emitted > 0, last, tl.load(text_ptr + committed - 1))
    previous = tl.sum(tl.where(step == emitted - 2, tokens, 0), 0)
    previous = tl.where(emitted > 1, previous, tl.load(text_ptr + committed - 2 + emitted))
    tl.store(text_ptr + committed + step, tokens, mask=step < emitted)
    tl.store(tail_ptr, previous)
    tl.store(tail_ptr + 1, last)
    tl.store(block_ptr, last)
    tl.store(log_ptr + rounds * 4, proposed)
    tl.store(log_ptr + rounds * 4 + 1, accepted)
    tl.store(log_ptr + rounds * 4 + 2, emitted)
    tl.store(log_ptr + rounds * 4 + 3, natural)
    tl.store(rounds_ptr, rounds + (room > 0).to(tl.int64))
    tl.store(committed_ptr, committed + emitted)


class FusedState(DecodeState):
    """``DecodeState`` that takes a fused head's maxima in place of choices."""

    def commit_one(self, choice: Tensor | Maxima) -> None:
        if isinstance(choice, Tensor):
            return super().commit_one(choice)
        commit_one_kernel[(1,)](
            choice.best, choice.where, choice.tiles, self.text, self.committed, self.goal, self.block, scan_shape(1)[1],
            num_warps=8, **options(self.text.device),
        )  # fmt: skip

    def propose(self, i: int, choice: Tensor | Maxima) -> None:
        if isinstance(choice, Tensor):
            return super().propose(i, choice)
        propose_kernel[(1,)](
            choice.best, choice.where, choice.tiles, self.committed, self.origin, self.draft_first,
            self.script, self.passes.view(torch.uint8), self.forced.view(torch.uint8), self.block, i, self.vocab,
            scan_shape(1)[1], num_warps=8, **options(self.text.device),
        )  # fmt: skip

    def commit_round(self, choices: Tensor | Maxima) -> None:
        if isinstance(choices, Tensor):
            return super().commit_round(choices)
        commit_round_kernel[(1,)](
            choices.best, choices.where, choices.tiles, self.text, self.committed, self.goal, self.origin, self.first,
            self.script, self.passes.view(torch.uint8), self.imposed.view(torch.uint8), self.tail, self.block,
            self.log, self.rounds, self.k, *scan_shape(self.k + 1), num_warps=8, **options(self.text.device),
        )  # fmt: skip
