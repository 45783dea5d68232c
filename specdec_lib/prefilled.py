"""A prompt that has been through a model: computed once, decoded from many times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .cache import KVCache
from .errors import CacheError, ContextTooLong
from .model import DecoderModel, prefill
from .timing import now


def check_room(model: DecoderModel, prompt: int, new: int) -> None:
    """Raise ``ContextTooLong`` unless ``prompt`` + ``new`` tokens fit the model's positions."""
    if prompt + new > model.config.max_positions:
        raise ContextTooLong(
            f"{prompt} prompt + {new} new tokens for {model.name}",
            expected=f"at most {model.config.max_positions} positions",
            remedy="shorten the prompt or generate fewer tokens",
        )


@dataclass
class Prefilled:
    """Cache after a prompt, the logits [1, vocab] of its last row, and the seconds the prefill took."""

    cache: KVCache
    logits: Tensor
    seconds: float
    length: int

    @classmethod
    def compute(
        cls, model: DecoderModel, prompt: list[int], max_new_tokens: int, chunk: int = 2048
    ) -> Prefilled:
        """Run the prompt; the cache gets room for exactly prompt + new tokens."""
        check_room(model, len(prompt), max_new_tokens)
        cache = model.new_cache(len(prompt) + max_new_tokens)
        ids = torch.tensor(prompt, device=model.device)
        start = now(model.device)
        logits = prefill(model, ids, cache, chunk)
        return cls(cache, logits, now(model.device) - start, len(prompt))

    def rewind(self, model: DecoderModel, prompt: list[int], max_new_tokens: int) -> None:
        """Forget what earlier runs appended; ``CacheError`` if this state cannot belong to the prompt or lacks room."""
        if self.length != len(prompt):
            raise CacheError(
                f"prefill of {self.length} tokens for a prompt of {len(prompt)}",
                expected="the prefill of this very prompt",
                remedy="compute the prefill again",
            )
        check_room(model, len(prompt), max_new_tokens)
        if self.cache.capacity < len(prompt) + max_new_tokens:
            raise ContextTooLong(
                f"{len(prompt)} prompt + {max_new_tokens} new tokens in a cache of {self.cache.capacity}",
                expected="a cache with room for prompt + new tokens",
                remedy="compute the prefill with the right number of new tokens",
            )
        self.cache.trim(self.cache.length - self.length)

    def save(self, path: str | Path) -> None:
        """Store cache and logits, whole or not at all (seconds are the caller's to record)."""
        self.cache.save(path, self.logits)

    @classmethod
    def load(
        cls, path: str | Path, model: DecoderModel, max_new_tokens: int, length: int, seconds: float
    ) -> Prefilled:
        """Read what ``save`` stored for this model; ``CacheError`` if damaged or of another length."""
        cache = model.new_cache(length + max_new_tokens)
        logits = cache.load(path)
        if cache.length != length:
            raise CacheError(
                f"{Path(path).name} holds {cache.length} tokens",
                expected=f"{length}",
                remedy="delete the file",
            )
        return cls(cache, logits, seconds, length)
