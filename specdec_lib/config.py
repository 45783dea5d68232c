"""What a decoder looks like: shapes and constants from a Hugging Face config, and the rotary table they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import UnsupportedModel


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and constants of a decoder, under the field's usual names."""

    kind: str  # "llama" or "qwen2"
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float
    eps: float
    max_positions: int
    tied: bool
    qkv_bias: bool
    rope_scaling: dict[str, Any] | None = None

    @classmethod
    def from_hf(cls, hf: dict[str, Any]) -> ModelConfig:
        """Read a Hugging Face ``config.json``; refuse what the forward does not implement (``UnsupportedModel``)."""
        kind = hf.get("model_type")
        if kind not in ("llama", "qwen2"):
            raise UnsupportedModel(
                f"model_type is {kind!r}",
                expected="'llama' or 'qwen2'",
                remedy="use a checkpoint of one of these kinds",
            )
        rope = dict(hf.get("rope_parameters") or hf.get("rope_scaling") or {})
        theta = float(rope.pop("rope_theta", None) or hf.get("rope_theta") or 10_000.0)
        rope_type = rope.pop("rope_type", None) or rope.pop("type", None) or "default"
        refused = {
            "hidden_act": (hf.get("hidden_act", "silu") == "silu", "silu"),
            "mlp_bias": (not hf.get("mlp_bias", False), "false"),
            "use_sliding_window": (not hf.get("use_sliding_window", False), "false"),
            "rope_type": (rope_type in ("default", "linear", "llama3"), "default, linear or llama3"),
        }
        for key, (fine, expected) in refused.items():
            if not fine:
                raise UnsupportedModel(
                    f"{key} = {rope_type if key == 'rope_type' else hf[key]!r} is not implemented",
                    expected=expected,
                    remedy="use a checkpoint without it",
                )
        try:
            heads = int(hf["num_attention_heads"])
            return cls(
                kind=kind,
                layers=int(hf["num_hidden_layers"]),
                hidden=int(hf["hidden_size"]),
                heads=heads,
                kv_heads=int(hf.get("num_key_value_heads") or heads),
                head_dim=int(hf.get("head_dim") or hf["hidden_size"] // heads),
                intermediate=int(hf["intermediate_size"]),
                vocab=int(hf["vocab_size"]),
                rope_theta=theta,
                eps=float(hf.get("rms_norm_eps", 1e-6)),
                max_positions=int(hf["max_position_embeddings"]),
                tied=bool(hf.get("tie_word_embeddings", False)),
                qkv_bias=kind == "qwen2" or bool(hf.get("attention_bias", False)),
                rope_scaling=None if rope_type == "default" else {"rope_type": rope_type, **rope},
            )
        except KeyError as missing:
            raise UnsupportedModel(
                f"config.json lacks {missing}",
                expected="a complete Hugging Face config",
                remedy="fetch the model again",
            ) from missing

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint by its Hugging Face name, with its shape."""
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            shapes |= {
                name + "input_layernorm.weight": (self.hidden,),
                name + "self_attn.q_proj.weight": (query, self.hidden),
                name + "self_attn.k_proj.weight": (kv, self.hidden),
                name + "self_attn.v_proj.weight": (kv, self.hidden),
                name + "self_attn.o_proj.weight": (self.hidden, query),
                name + "post_attention_layernorm.weight": (self.hidden,),
                name + "mlp.gate_proj.weight": (self.intermediate, self.hidden),
                name + "mlp.up_proj.weight": (self.intermediate, self.hidden),
                name + "mlp.down_proj.weight": (self.hidden, self.intermediate),
            }
            if self.qkv_bias:
                shapes |= {
                    name + "self_attn.q_proj.bias": (query,),
                    name + "self_attn.k_proj.bias": (kv,),
                    name + "self_attn.v_proj.bias": (kv,),
                }
                if self.kind == "llama":
                    shapes[name + "self_attn.o_proj.bias"] = (self.hidden,)
        shapes["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab, self.hidden)
        return shapes


def rope_table(config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines, each [max_positions, head_dim] in FP32 (Su et al. 2021, rotate-half layout).

    The sine's first half is negated, so that ``x * cos + roll(x, head_dim / 2) * sin`` is the rotation.
    Scaling types ``linear`` and ``llama3`` follow the Llama 3.1 release's definition.
    """
    half = config.head_dim // 2
    frequency = config.rope_theta ** -(torch.arange(half, dtype=torch.float64) / half)
    scaling = config.rope_scaling
    if scaling and scaling["rope_type"] == "linear":
        frequency = frequency / scaling["factor"]
    elif scaling:  # llama3: long wavelengths are stretched, short ones kept, a ramp between
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        ramp = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = (1 - ramp) * frequency / scaling["factor"] + ramp * frequency
    angle = torch.outer(torch.arange(config.max_positions, dtype=torch.float64), frequency)
    cos, sin = angle.cos().float(), angle.sin().float()
    return torch.cat((cos, cos), -1).to(device), torch.cat((-sin, sin), -1).to(device)
