"""Triton kernels of the fused decode step, one file per family; each has a plain PyTorch reference beside it.

Importing this package needs no Triton; importing one of its modules does. ``fused.FusedDecoder`` strings them together.
Everything a kernel needs to know about where it is (position, length) it reads on the device, so that a captured graph
serves every position and context.
"""

MAX_ROWS = 16  # rows of one block: the last committed token and up to 15 proposals
