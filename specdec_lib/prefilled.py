"""A prompt that has been through a model: computed once, decoded from many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from .cache import KVCache
from .errors import CacheError, ContextTooLong, InvalidSetting, is_count
from .files import canonical_json, sha256_text
from .model import DecoderModel, prefill
from .request import check_new_tokens, check_prompt, check_room
from .timing import now


@dataclass
class Prefilled:
    """Cache after a prompt, the logits [1, vocab] of its last row, and the seconds the prefill took.

    It serves this very model and prompt: another one's keys and values would give a wrong text without a sign of it.
    And one run at a time: runs write behind the prompt.
    """

    cache: KVCache
    logits: Tensor
    seconds: float
    model: DecoderModel
    prompt: list[int]

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @classmethod
    def compute(
        cls, model: DecoderModel, prompt: Sequence[int] | str, max_new_tokens: int, chunk: int = 2048
    ) -> Prefilled:
        """Run the prompt; the cache gets room for exactly prompt + new tokens. ``chunk``: tokens per forward.

        Raises ``InvalidPrompt``, ``InvalidSetting``, ``ContextTooLong``.
        """
        prompt = check_prompt(model, prompt)
        check_new_tokens(max_new_tokens)
        if not is_count(chunk):
            raise InvalidSetting(
                f"chunk = {chunk!r}", expected="an integer >= 1", remedy="leave it out for 2048"
            )
        check_room(model, len(prompt), max_new_tokens)
        cache = model.new_cache(len(prompt) + max_new_tokens)
        ids = torch.tensor(prompt, device=model.device)
        start = now(model.device)
        logits = prefill(model, ids, cache, chunk)
        return cls(cache, logits, now(model.device) - start, model, prompt)

    def rewind(self, model: DecoderModel, prompt: list[int], max_new_tokens: int) -> None:
        """Forget what earlier runs appended; ``CacheError`` if this is another model's state, or another prompt's, and
        ``ContextTooLong`` if it lacks room."""
        if self.model is not model or self.prompt != prompt:
            other = "another prompt" if self.model is model else f"another model ({self.model.name})"
            raise CacheError(
                f"the prefill of {other}, {self.length} tokens, for a prompt of {len(prompt)}",
                expected="the prefill of this very prompt by this very model",
                remedy="Prefilled.compute(model, prompt, max_new_tokens), or leave prefilled out",
            )
        check_room(model, len(prompt), max_new_tokens)
        if self.cache.capacity < len(prompt) + max_new_tokens:
            raise ContextTooLong(
                f"{len(prompt)} prompt + {max_new_tokens} new tokens in a cache of {self.cache.capacity}",
                expected="a cache with room for prompt + new tokens",
                remedy="compute the prefill with the right number of new tokens",
            )
        self.cache.rewind(self.length)

    def save(self, path: str | Path) -> None:
        """Store the prompt's keys, values and logits, whole or not at all (seconds are the caller's to record).

        What runs appended stays out. Raises ``CannotWrite``.
        """
        self.cache.save(path, self.logits, _owner(self.model, self.prompt), self.length)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: DecoderModel,
        prompt: Sequence[int] | str,
        max_new_tokens: int,
        seconds: float,
    ) -> Prefilled:
        """Read what ``save`` stored for this model and prompt; ``CacheError`` if damaged, or of others.

        "This model" is one of this name, config and dtype whose weights give the same fingerprint. Raises what
        ``compute`` raises.
        """
        prompt = check_prompt(model, prompt)
        check_new_tokens(max_new_tokens)
        check_room(model, len(prompt), max_new_tokens)
        cache = model.new_cache(len(prompt) + max_new_tokens)
        logits = cache.load(path, _owner(model, prompt))
        return cls(cache, logits, seconds, model, prompt)


def _owner(model: DecoderModel, prompt: list[int]) -> dict[str, str]:
    """What a stored prefill belongs to, as far as a file can say it."""
    config = sha256_text(canonical_json(asdict(model.config)))[:16]
    return {
        "model": f"{model.name} {model.fingerprint} {config} {model.dtype}",
        "prompt": sha256_text(canonical_json(prompt)),
    }


def prefilled_for(
    model: DecoderModel,
    prompt: list[int],
    max_new_tokens: int,
    given: Prefilled | None = None,
    chunk: int = 2048,
) -> Prefilled:
    """``given``, rewound to the prompt, or one that is computed now. Raises what ``compute`` and ``rewind`` raise."""
    if given is None:
        return Prefilled.compute(model, prompt, max_new_tokens, chunk)
    if not isinstance(given, Prefilled):
        raise InvalidSetting(
            f"prefilled is a {type(given).__name__}",
            expected="a Prefilled of this model and prompt",
            remedy="Prefilled.compute(model, prompt, max_new_tokens), or leave prefilled out",
        )
    given.rewind(model, prompt, max_new_tokens)
    return given


def check_alone(cache: KVCache, committed: int) -> None:
    """Refuse a target's cache into which something else has written, such as the draft's run or another thread's."""
    if cache.length != committed:
        raise CacheError(
            f"the target's cache holds {cache.length} tokens where {committed} were committed",
            expected="a prefill of its own for target, draft and every thread, also where one model plays both parts",
            remedy="Prefilled.compute(model, prompt, max_new_tokens) once for each",
        )
