"""The execution modes of the graph engine: which forward and which state each captures, and what each refuses.

"graphs" captures the plain PyTorch forward, "compiled" the fused kernels; "eager" is ``decoding`` and captures nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from .device_state import DecodeState
from .errors import ContextTooLong, InvalidSetting, NoCudaDevice, VocabularyMismatch, is_count
from .kernels import MAX_ROWS
from .model import DecoderModel
from .static import StaticDecoder

MODES = ("graphs", "compiled")


class Decoder(Protocol):
    """What the engine captures: see ``static.StaticDecoder`` and ``fused.FusedDecoder``."""

    def step(
        self,
        ids: Tensor,
        position: Tensor,
        offset: int = 0,
        *,
        kept: Tensor | None = None,
        last_only: bool = False,
    ) -> Any: ...


def decoder(mode: str, model: DecoderModel, cache: Any) -> Decoder:
    """The forward of a mode. Raises ``TritonMissing`` where the fused one cannot be had."""
    if mode == "graphs":
        return StaticDecoder(model, cache)
    from .fused import FusedDecoder  # needs Triton

    return FusedDecoder(model, cache, scan=False)


def new_state(mode: str, capacity: int, k: int, target: DecoderModel) -> DecodeState:
    """The state of a mode: plain tensor code, or the same in one kernel per call."""
    if mode == "graphs":
        return DecodeState(capacity, k, target.config.vocab, target.device)
    from .fused import FusedState

    return FusedState(capacity, k, target.config.vocab, target.device)


def check_engine(
    target: DecoderModel, draft: DecoderModel | None, k: int, mode: str, capacity: int, cuda: bool
) -> None:
    """Refuse what cannot work, before any memory is taken."""
    if mode not in MODES:
        raise InvalidSetting(
            f"mode {mode!r}",
            expected=" or ".join(map(repr, MODES)),
            remedy="mode 'eager' is decoding.autoregressive",
        )
    if not is_count(k, least=0) or k >= MAX_ROWS:
        raise InvalidSetting(
            f"k = {k!r}",
            expected=f"an integer from 0 to {MAX_ROWS - 1}",
            remedy="choose one, or use mode='eager'",
        )
    if not is_count(capacity):
        raise InvalidSetting(
            f"capacity = {capacity!r}", expected="an integer >= 1", remedy="prompt + new tokens"
        )
    if cuda and target.device.type != "cuda":
        raise NoCudaDevice(
            f"mode {mode!r} on {target.device}",
            expected="a CUDA device: it captures CUDA graphs",
            remedy="load the pair with device='cuda', or use mode='eager'",
        )
    for model in (target, draft):
        if model is not None and capacity > model.config.max_positions:
            raise ContextTooLong(
                f"a capacity of {capacity} for {model.name}",
                expected=f"at most {model.config.max_positions} positions",
                remedy="choose a smaller capacity",
            )
    if draft is not None and draft.config.vocab != target.config.vocab:
        raise VocabularyMismatch(
            f"the draft has {draft.config.vocab} tokens, the target {target.config.vocab}",
            expected="one tokenizer for both",
            remedy="use a draft of the target's family, loaded through load_pair",
        )
