"""The fused decode step: six launches per layer, a few more for embedding and head; all state on the device.

    embedding -> per layer: norm + qkv + rope + cache | attention | merge | out + residual
                            | norm + gate/up + SiLU | down + residual -> norm + head + argmax

The residual stream and what passes between kernels keep the model's dtype, as in ``DecoderModel.forward``; inside a
kernel everything is FP32. Needs Triton; ``DecoderModel.forward`` is the plain form of the same step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .cache import KVCache
from .errors import NoCudaDevice, TritonMissing, UnsupportedDevice, UnsupportedModel
from .kernels import MAX_ROWS
from .model import DecoderModel
from .projection import Projection

try:
    from .kernels.attention import attend, workspace
    from .kernels.commit import FusedState, Maxima
    from .kernels.embed import embed
    from .kernels.head import head_argmax, head_tiles
    from .kernels.launch import INTERPRETED
    from .kernels.matvec import Tile, matvec
    from .kernels.qkv import qkv
except ImportError as missing:
    raise TritonMissing(
        f"the fused kernels need Triton: {missing}",
        expected="an importable triton package",
        remedy="install triton (it comes with CUDA builds of torch), or use mode='eager' or 'graphs'",
    ) from missing


__all__ = ["FusedDecoder", "FusedState"]
Tiles = dict[str, Tile]


def default_tiles(model: DecoderModel) -> Tiles:
    """Tiles of the five products, by measurement on an NVIDIA H200 with the Qwen2.5 shapes: each is the fastest of
    about twenty inside the whole step at one row. The same for every number of rows: so a row gives the same bits in
    any block.
    """
    if model.dtype == torch.float32:  # without tensor cores: correctness first
        narrow, wide = Tile(16, 4, 32, 2), Tile(32, 1, 32, 2)
        return dict(qkv=narrow, out=narrow, gate_up=wide, down=narrow, head=wide._replace(features=64))
    if model.config.hidden > 1024:
        return dict(
            qkv=Tile(8, 8, 128, 3, early=3),
            out=Tile(8, 8, 128, 3, early=2),
            gate_up=Tile(16, 2, 128, 2, early=2),
            down=Tile(16, 4, 128, 5),
            head=Tile(64, 1, 128, 4),
        )
    return dict(
        qkv=Tile(16, 4, 256, 3, early=2),
        out=Tile(8, 8, 128, 3, early=3),
        gate_up=Tile(8, 4, 128, 3, early=3),
        down=Tile(16, 4, 128, 6, early=1),
        head=Tile(64, 1, 64, 6),
    )


def dense(projection: Projection) -> Tensor:
    """The projection's weight as plain rows; a copy only where a CPU holds it packed (Triton's interpreter)."""
    return projection.weight if projection.form == "linear" else projection.weight.to_dense()


class FusedDecoder:
    """One model and one cache, decoding blocks of up to 16 rows through the fused kernels.

    Owns its buffers, so a captured step finds them in place. ``choices`` [16] int64 holds the last step's argmax rows.
    Raises ``UnsupportedModel`` for shapes that the kernels do not take.
    """

    def __init__(
        self, model: DecoderModel, cache: KVCache, tiles: Tiles | None = None, scan: bool = True
    ) -> None:
        c = model.config
        if c.head_dim & (c.head_dim - 1) or c.head_dim < 16:
            raise UnsupportedModel(
                f"head_dim {c.head_dim}",
                expected="a power of two from 16",
                remedy="use mode='eager' or 'graphs'",
            )
        if model.device.type != "cuda" and not INTERPRETED:
            raise NoCudaDevice(
                f"the fused kernels on {model.device}",
                expected="a CUDA device",
                remedy="load the pair with device='cuda', or use mode='eager'",
            )
        if model.device.type == "cuda" and torch.cuda.get_device_capability(model.device) < (8, 0):
            raise UnsupportedDevice(
                f"compute capability {torch.cuda.get_device_capability(model.device)}",
                expected="(8, 0) or later: the kernels use BF16 tensor cores and asynchronous copies",
                remedy="use mode='graphs' or mode='eager'",
            )
        self.model, self.cache = model, cache
        self.weights = [
            {name: dense(getattr(layer, name)) for name in ("qkv", "out", "gate_up", "down")}
            for layer in model.layers
        ]
        self.head = dense(model.head)
        self.tiles, self.scan = tiles or default_tiles(model), scan

        def buffer(*shape: int, dtype: torch.dtype = model.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=model.device)

        self.x = buffer(MAX_ROWS, c.hidden)
        self.queries, self.attended = (buffer(MAX_ROWS, c.heads * c.head_dim) for _ in range(2))
        self.activation = buffer(MAX_ROWS, c.intermediate)
        self.work = workspace(c.heads, c.head_dim, cache.capacity, model.device)
        scanned = head_tiles(c.vocab, self.tiles["head"])
        self.best = buffer(MAX_ROWS, scanned, dtype=torch.float32)
        self.where = buffer(MAX_ROWS, scanned, dtype=torch.int32)
        self.choices = buffer(MAX_ROWS, dtype=torch.int64)
        self.nothing = buffer(1, dtype=torch.int64)

    def step(
        self,
        ids: Tensor,
        position: Tensor,
        offset: int = 0,
        *,
        kept: Tensor | None = None,
        last_only: bool = False,
        logits: Tensor | None = None,
    ) -> Tensor | Maxima:
        """Run ``ids`` [M] at positions ``position + offset`` onward; return the choices, a view [M] ([1] if
        ``last_only``). Without ``scan`` return the head's maxima, for ``FusedState`` to look through.

        ``position`` [1] int64 is read on the device. Cache rows before ``kept`` [1] are not written again. ``logits``
        [M, vocab] FP32 is filled if given.
        """
        c, rows, tiles = self.model.config, ids.shape[0], self.tiles
        embed(ids, self.model.embedding, self.x, rows)
        for i, layer in enumerate(self.model.layers):
            weights = self.weights[i]
            keys, values = self.cache.keys[i], self.cache.values[i]
            qkv(
                self.x, layer.norm_in, weights["qkv"], layer.qkv.bias, c.eps, self.model.cos, self.model.sin, position,
                offset, self.nothing if kept is None else kept, self.queries, keys, values, rows, tiles["qkv"],
            )  # fmt: skip
            attend(self.queries, keys, values, position, offset, self.attended, self.work, rows)
            matvec(
                self.attended,
                weights["out"],
                self.x,
                rows,
                tiles["out"],
                bias=layer.out.bias,
                residual=self.x,
            )
            matvec(
                self.x, weights["gate_up"], self.activation, rows, tiles["gate_up"], gain=layer.norm_mlp,
                eps=c.eps, gated=True,
            )  # fmt: skip
            matvec(self.activation, weights["down"], self.x, rows, tiles["down"], residual=self.x)
        first, count = (rows - 1, 1) if last_only else (0, rows)
        head_argmax(
            self.x[first:], self.model.norm, self.head, c.eps, count, tiles["head"], self.best,
            self.where, self.choices if self.scan else None, logits,
        )  # fmt: skip
        if self.scan:
            return self.choices[:count]
        return Maxima(self.best, self.where, head_tiles(c.vocab, tiles["head"]), count)
