"""Embedding rows of tokens that are already on the device: ids [rows] -> x [rows, hidden]."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options


@triton.jit
def embed_kernel(ids_ptr, table_ptr, out_ptr, HIDDEN: tl.constexpr, PADDED: tl.constexpr, PDL: tl.constexpr):
    m = tl.program_id(0)
    if PDL:  # the first kernel of a step: what follows may start when everything before is complete
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    d = tl.arange(0, PADDED)
    token = tl.load(ids_ptr + m)
    tl.store(
        out_ptr + m * HIDDEN + d, tl.load(table_ptr + token * HIDDEN + d, mask=d < HIDDEN), mask=d < HIDDEN
    )


def embed(ids: Tensor, table: Tensor, out: Tensor, rows: int) -> None:
    """Write ``out`` [rows, hidden]: rows ``ids`` (int64) of ``table`` [vocab, hidden]. Reference: ``table[ids]``."""
    hidden = table.shape[1]
    embed_kernel[(rows,)](
        ids, table, out, hidden, triton.next_power_of_2(hidden), num_warps=4, **options(table.device)
    )
