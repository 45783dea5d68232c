"""One decoder forward for the Llama and Qwen2 kinds: prefill chunk, one-token step and M-row block are the same call.

The weights are Hugging Face's; the layout is ours: query, key and value projections are one matrix, gate and up are one
matrix, so a layer is four matrix products. Nothing in ``forward`` reads the device: positions come from the cache's own
tensor.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .cache import KVCache
from .config import ModelConfig, rope_table
from .errors import InvalidSetting, WeightsDamaged
from .projection import Projection
from .weights import fingerprint

DECODE_ROWS = 16  # blocks up to this many rows use the decode attention, longer ones the prefill attention


@dataclass
class Layer:
    """One decoder layer's weights, as the forward uses them."""

    norm_in: Tensor
    qkv: Projection
    out: Projection
    norm_mlp: Tensor
    gate_up: Projection
    down: Projection


class DecoderModel:
    """Weights of one decoder and its forward. ``weights``: Hugging Face names -> tensors (any float dtype).

    Raises ``WeightsDamaged`` when a tensor is missing or has another shape than the config says.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Tensor],
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        name: str = "model",
    ) -> None:
        if dtype not in (torch.float32, torch.bfloat16):
            raise InvalidSetting(
                f"dtype {dtype}", expected="torch.float32 or torch.bfloat16", remedy="choose one of them"
            )
        self.config, self.dtype, self.device, self.name = config, dtype, torch.device(device), name
        self.tokenizer: Any = None  # set by load_pair
        for key, shape in config.shapes().items():
            found = tuple(weights[key].shape) if key in weights else None
            if found != shape:
                raise WeightsDamaged(
                    f"{name}: tensor {key} " + (f"has shape {found}" if found else "is missing"),
                    expected=f"shape {shape}",
                    remedy="fetch the weights again, or check that config.json belongs to them",
                )

        self.fingerprint = fingerprint([weights[key] for key in config.shapes()])

        def tensor(key: str) -> Tensor:
            return weights[key].to(device=self.device, dtype=dtype)

        def projection(*keys: str) -> Projection:
            biases = [tensor(k + ".bias") for k in keys if k + ".bias" in config.shapes()]
            weight = torch.cat([tensor(k + ".weight") for k in keys])
            return Projection(weight, torch.cat(biases) if biases else None)

        self.embedding = tensor("model.embed_tokens.weight").contiguous()
        self.layers: list[Layer] = []
        for i in range(config.layers):
            prefix = f"model.layers.{i}."
            attention, mlp = prefix + "self_attn.", prefix + "mlp."
            self.layers.append(
                Layer(
                    norm_in=tensor(prefix + "input_layernorm.weight"),
                    qkv=projection(attention + "q_proj", attention + "k_proj", attention + "v_proj"),
                    out=projection(attention + "o_proj"),
                    norm_mlp=tensor(prefix + "post_attention_layernorm.weight"),
                    gate_up=projection(mlp + "gate_proj", mlp + "up_proj"),
                    down=projection(mlp + "down_proj"),
                )
            )
        self.norm = tensor("model.norm.weight")
        self.head = Projection(self.embedding if config.tied else tensor("lm_head.weight"), None)
        cos, sin = rope_table(config, self.device)
        self.cos, self.sin = cos.to(dtype), sin.to(dtype)

    @property
    def step_bytes(self) -> int:
        """Weight bytes that one decode step must read: every matrix once, of the embedding one row (not counted)."""
        matrices = [p for layer in self.layers for p in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        norms = (2 * self.config.layers + 1) * self.config.hidden * self.embedding.element_size()
        return sum(p.bytes for p in [*matrices, self.head]) + norms

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes one token adds to the cache: layers x (K and V) x KV heads x head_dim x bytes per element."""
        c = self.config
        return c.layers * 2 * c.kv_heads * c.head_dim * self.embedding.element_size()

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for ``capacity`` tokens of this model."""
        c = self.config
        return KVCache(c.layers, c.kv_heads, c.head_dim, capacity, self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, ids: Tensor, cache: KVCache, *, last_only: bool = False) -> Tensor:
        """Run ``ids`` [M] after the cache's tokens; append their keys and values; return logits.

        Row j of the result [M, vocab] predicts the token *after* ids[j]. ``last_only`` keeps the last row, [1, vocab]:
        at 8K the full matrix would be gigabytes. Raises ``ContextTooLong`` when the cache has no room for M rows, and
        on a CPU ``InvalidSetting`` for an id outside the vocabulary (a GPU cannot say so without a host read).
        """
        c, rows = self.config, ids.shape[0]
        positions = cache.reserve(rows)
        cos = self.cos.index_select(0, positions).unsqueeze(1)  # [M, 1, head_dim]
        sin = self.sin.index_select(0, positions).unsqueeze(1)
        try:
            x = F.embedding(ids, self.embedding)  # [M, hidden]
        except IndexError as outside:
            raise InvalidSetting(
                f"a token id that {self.name} does not have",
                expected=f"ids from 0 to {c.vocab - 1}",
                remedy="propose and commit only tokens of this vocabulary",
            ) from outside
        for i, layer in enumerate(self.layers):
            h = F.rms_norm(x, (c.hidden,), layer.norm_in, c.eps)
            qkv = layer.qkv(h).view(rows, c.heads + 2 * c.kv_heads, c.head_dim)
            qk = qkv[:, : c.heads + c.kv_heads]  # queries and keys turn in one go
            qk = torch.addcmul(qk * cos, qk.roll(c.head_dim // 2, -1), sin)
            keys, values = cache.append(i, qk[:, c.heads :], qkv[:, c.heads + c.kv_heads :], positions)
            x = x + layer.out(attention(qk[:, : c.heads], keys, values))
            h = F.rms_norm(x, (c.hidden,), layer.norm_mlp, c.eps)
            gate, up = layer.gate_up(h).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        cache.advance(rows)
        return self.head(F.rms_norm(x[-1:] if last_only else x, (c.hidden,), self.norm, c.eps))


def check_model(model: object, role: str) -> None:
    """Refuse what is no model, such as the whole pair, under the name of the role it was given for."""
    if not isinstance(model, DecoderModel):
        raise InvalidSetting(
            f"the {role} is a {type(model).__name__}",
            expected="a DecoderModel",
            remedy=f"pass load_pair(...).{role}",
        )


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal grouped-query attention of the last M tokens over all L: [M, heads, D], 2 x [KV, L, D] -> [M, heads * D].

    A short block folds the queries of a group into the rows of one matrix product per KV head, so that each cached byte
    is read once; scores are masked only in the last M columns. A long block (prefill) calls PyTorch's fused attention.
    """
    rows, heads, dim = queries.shape
    kv_heads, length, _ = keys.shape
    if rows > DECODE_ROWS:
        mask = None
        if rows != length:  # is_causal aligns top-left; a later chunk needs bottom-right
            mask = torch.ones(rows, length, dtype=torch.bool, device=keys.device).tril(length - rows)
        out = F.scaled_dot_product_attention(
            queries.transpose(0, 1).unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0),
            attn_mask=mask, is_causal=mask is None, enable_gqa=True,
        )  # fmt: skip
        return out.squeeze(0).transpose(0, 1).reshape(rows, heads * dim)
    group = heads // kv_heads
    q = queries.view(rows, kv_heads, group, dim).permute(1, 3, 2, 0).reshape(kv_heads, dim, group * rows)
    # Keys on the left: they are read in place. On the right, transposed, oneDNN would copy all of them first.
    scores = torch.bmm(keys, q * dim**-0.5)  # [KV, L, group * M]
    if rows > 1:
        future = torch.full((rows, rows), float("-inf"), dtype=scores.dtype, device=scores.device).tril(-1)
        scores[:, length - rows :].view(kv_heads, rows, group, rows).add_(future.unsqueeze(1))  # key, query
    weights = torch.softmax(scores.transpose(1, 2), -1)  # accumulates in FP32, whatever the dtype
    out = torch.bmm(weights, values).view(kv_heads, group, rows, dim)
    return out.permute(2, 0, 1, 3).reshape(rows, heads * dim)


# For long blocks on a GPU, first to last: cuDNN's fused attention, as published; it has no FP32, the next ones do.
PREFILL_ATTENTION = [
    SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
]  # fmt: skip


def prefill(model: DecoderModel, ids: Tensor, cache: KVCache, chunk: int = 2048) -> Tensor:
    """Run a prompt [P] through the model in chunks; return the last row's logits, [1, vocab]."""
    logits = torch.empty(0)
    with sdpa_kernel(PREFILL_ATTENTION, set_priority=True) if ids.is_cuda else nullcontext():
        for start in range(0, ids.shape[0], chunk):
            logits = model.forward(ids[start : start + chunk], cache, last_only=True)
    return logits
