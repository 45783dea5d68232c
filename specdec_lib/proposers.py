"""Proposers: where candidate tokens come from. A new one is a class with ``propose``; ``Scripted`` is a short one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .cache import KVCache
from .errors import InvalidSetting
from .model import DecoderModel
from .prefilled import Prefilled


class Proposer:
    """Base of all proposers; keeps the committed text on the host and does nothing else.

    The engine calls ``begin`` once, then in every round ``propose`` and ``commit``; in the reference formulation also
    ``catch_up``. Only ``propose`` must be written.
    """

    calls = 0  # draft forwards, the prefill's not counted
    prefill_seconds = 0.0
    vocab: int | None = None  # checked against the target's when set
    text: list[int]  # prompt and committed tokens

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        """Get ready for a prompt and at most ``max_new_tokens`` new tokens. Not part of the timed region."""
        self.text = list(prompt)

    def propose(self, k: int) -> Tensor | Sequence[int]:
        """At most ``k`` tokens that may follow ``self.text``: ids, or an int64 tensor on the target's device."""
        raise NotImplementedError(f"{type(self).__name__} must define propose(k)")

    def commit(self, accepted: int, tokens: Tensor, known: list[int]) -> None:
        """``accepted`` proposals stood and ``tokens`` were committed (``known`` are the same ids on the host)."""
        self.text += known

    def catch_up(self, leave: int) -> None:
        """Run committed tokens that the draft has not seen, all but the last ``leave`` (reference formulation)."""


class DraftModel(Proposer):
    """Greedy proposals of a smaller model, one forward per token, with a cache of its own.

    Invariant: the cache and ``backlog`` together hold exactly the committed tokens. The backlog is what the draft has
    not run yet: the target's replacement or bonus, and after a full acceptance also the last proposal, which was never
    fed back. Leaving that one out gives a hole in the cache and an acceptance that decays.
    """

    def __init__(self, model: DecoderModel, prefilled: Prefilled | None = None, chunk: int = 2048) -> None:
        self.model, self.prefilled, self.chunk = model, prefilled, chunk
        self.vocab = model.config.vocab

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        start = self.prefilled or Prefilled.compute(self.model, prompt, max_new_tokens, self.chunk)
        start.rewind(self.model, prompt, max_new_tokens)
        self.cache: KVCache = start.cache
        self.prefill_seconds = start.seconds
        self.next = start.logits.argmax(-1)  # the draft's choice after everything in its cache
        self.backlog = self.next[:0]
        self.fed = self.calls = 0

    def propose(self, k: int) -> Tensor:
        proposals: list[Tensor] = []
        for _ in range(k):
            if self.backlog.shape[0]:
                self._run(self.backlog)
            proposals.append(self.next)
            self.backlog = self.next
        self.fed = max(k - 1, 0)  # the last proposal stays unfed: verification may refuse it
        return torch.cat(proposals) if proposals else self.next[:0]

    def commit(self, accepted: int, tokens: Tensor, known: list[int]) -> None:
        super().commit(accepted, tokens, known)
        kept = min(accepted, self.fed)
        self.cache.trim(self.fed - kept)
        self.backlog = tokens[kept:]

    def catch_up(self, leave: int) -> None:
        due = self.backlog.shape[0] - leave
        if due > 0:
            self._run(self.backlog[:due])
            self.backlog = self.backlog[due:]

    def _run(self, ids: Tensor) -> None:
        self.next = self.model.forward(ids, self.cache, last_only=True).argmax(-1)
        self.calls += 1


class Scripted(Proposer):
    """Proposals from a given continuation of the prompt, at no cost: position i of the output is proposed as script[i].

    ``script`` may also be a function of (output position, k). Synthetic: label it wherever its numbers appear.
    """

    def __init__(self, script: Sequence[int] | Callable[[int, int], Sequence[int]]) -> None:
        self.script = script

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        self.start = len(prompt)

    def propose(self, k: int) -> Sequence[int]:
        at = len(self.text) - self.start
        if callable(self.script):
            return self.script(at, k)
        if len(self.script) < at + k:
            raise InvalidSetting(
                f"the script has {len(self.script)} tokens, position {at} needs {k} more",
                expected="as many scripted tokens as the run proposes",
                remedy="give a longer script or generate fewer tokens",
            )
        return self.script[at : at + k]
