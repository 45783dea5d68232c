"""The plain forward in a form that can be captured: fixed shapes, position on the device, nothing but PyTorch.

Attention runs over the whole capacity under a mask, so its cost follows the capacity, not the length: what a captured
graph pays without a kernel that reads its length itself (compare ``fused``).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import KVCache
from .model import DecoderModel


class StaticDecoder:
    """One model and one cache; ``step`` has the signature of ``fused.FusedDecoder.step``."""

    def __init__(self, model: DecoderModel, cache: KVCache) -> None:
        self.model, self.cache = model, cache
        self.slots = torch.arange(cache.capacity, device=model.device)

    def step(
        self,
        ids: Tensor,
        position: Tensor,
        offset: int = 0,
        *,
        kept: Tensor | None = None,
        last_only: bool = False,
        logits: Tensor | None = None,
    ) -> Tensor:
        """Run ``ids`` [M] at positions ``position + offset`` onward; return the argmax rows [M] ([1] if ``last_only``).

        ``kept`` is not used: rows before it are written again, with the same numbers up to rounding.
        """
        model, c, rows = self.model, self.model.config, ids.shape[0]
        at = self.slots[:rows] + position + offset
        turn = at.clamp(max=model.cos.shape[0] - 1)
        cos, sin = model.cos.index_select(0, turn).unsqueeze(1), model.sin.index_select(0, turn).unsqueeze(1)
        unseen = self.slots.unsqueeze(1) > at  # [capacity, M]
        x = F.embedding(ids, model.embedding)
        for i, layer in enumerate(model.layers):
            h = F.rms_norm(x, (c.hidden,), layer.norm_in, c.eps)
            qkv = layer.qkv(h).view(rows, c.heads + 2 * c.kv_heads, c.head_dim)
            qk = qkv[:, : c.heads + c.kv_heads]
            qk = torch.addcmul(qk * cos, qk.roll(c.head_dim // 2, -1), sin)
            keys, values = self.cache.keys[i], self.cache.values[i]
            keys.index_copy_(1, at, qk[:, c.heads :].transpose(0, 1))
            values.index_copy_(1, at, qkv[:, c.heads + c.kv_heads :].transpose(0, 1))
            x = x + layer.out(masked_attention(qk[:, : c.heads], keys, values, unseen))
            h = F.rms_norm(x, (c.hidden,), layer.norm_mlp, c.eps)
            gate, up = layer.gate_up(h).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        result = model.head(F.rms_norm(x[-1:] if last_only else x, (c.hidden,), model.norm, c.eps))
        if logits is not None:
            logits.copy_(result)
        return result.argmax(-1)


def masked_attention(queries: Tensor, keys: Tensor, values: Tensor, unseen: Tensor) -> Tensor:
    """Attention of M rows over the whole capacity C: [M, heads, D], 2 x [KV, C, D], bool [C, M] -> [M, heads * D].

    As ``model.attention``'s short block, with a mask instead of a length.
    """
    rows, heads, dim = queries.shape
    kv_heads, capacity, _ = keys.shape
    group = heads // kv_heads
    q = queries.view(rows, kv_heads, group, dim).permute(1, 3, 2, 0).reshape(kv_heads, dim, group * rows)
    scores = torch.bmm(keys, q * dim**-0.5).view(kv_heads, capacity, group, rows)
    scores = scores.masked_fill(unseen.unsqueeze(1), float("-inf")).view(kv_heads, capacity, group * rows)
    weights = torch.softmax(scores.transpose(1, 2), -1)
    out = torch.bmm(weights, values).view(kv_heads, group, rows, dim)
    return out.permute(2, 0, 1, 3).reshape(rows, heads * dim)
