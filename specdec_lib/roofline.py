"""What one decode step must move and launch, from the shapes alone. No torch.

A step at batch 1 reads every weight matrix once and the keys and values of its context once: over the measured
bandwidth that is the least time it can take. A step that takes much longer is bound by something else, usually by its
launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelConfig

FUSED_PER_LAYER = 6  # qkv, attention, merge, out, gate and up, down
FUSED_AROUND = 3  # embedding, head, argmax


def weight_bytes(config: ModelConfig, width: int = 2) -> int:
    """Weights that a step reads, at ``width`` bytes each: every matrix, bias and norm once; of the embedding one row is
    read, which is not counted (``DecoderModel.step_bytes`` counts the same from the loaded tensors)."""
    c = config
    query, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    qkv = (query + 2 * kv) * (c.hidden + c.qkv_bias)
    out = c.hidden * (query + (c.qkv_bias and c.kind == "llama"))
    layer = qkv + out + 3 * c.hidden * c.intermediate + 2 * c.hidden
    return width * (c.layers * layer + c.hidden + c.vocab * c.hidden)


def kv_bytes(config: ModelConfig, length: int, width: int = 2) -> int:
    """Keys and values of ``length`` tokens."""
    return width * config.layers * 2 * config.kv_heads * config.head_dim * length


def step_bytes(config: ModelConfig, length: int, width: int = 2) -> int:
    """All a step after ``length`` tokens must read."""
    return weight_bytes(config, width) + kv_bytes(config, length, width)


def fused_launches(config: ModelConfig) -> int:
    """Kernels of one fused step (``fused``)."""
    return FUSED_PER_LAYER * config.layers + FUSED_AROUND
