"""Proposers: where candidate tokens come from. A new one is a class with ``propose``; ``Scripted`` is a short one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .acceptance import check_trace, listed
from .cache import KVCache
from .calibrate import parse_device
from .errors import InvalidSetting, is_count
from .model import DecoderModel, check_model
from .prefilled import Prefilled, prefilled_for


class Proposer:
    """Base of all proposers; keeps the committed text on the host and does nothing else.

    The engine calls ``begin`` once, then in every round ``propose`` and ``commit``; in the reference formulation also
    ``catch_up``. Only ``propose`` must be written.
    """

    calls = 0  # draft forwards, the prefill's not counted
    prefill_seconds = 0.0
    vocab: int | None = None  # checked against the target's when set
    largest_id = -1  # of the ids it holds on the device, where no run checks them
    text: list[int]  # prompt and committed tokens

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        """Get ready for a prompt and at most ``max_new_tokens`` new tokens. Not part of the timed region."""
        self.text = list(prompt)

    def propose(self, k: int) -> Tensor | Sequence[int]:
        """At most ``k`` tokens that may follow ``self.text``: ids, or an int64 tensor on the target's device."""
        raise NotImplementedError(f"{type(self).__name__} must define propose(k)")

    def commit(self, accepted: int, tokens: Tensor, known: list[int]) -> None:
        """``accepted`` proposals stood and ``tokens`` were committed (``known`` are the same ids on the host)."""
        if not hasattr(self, "text"):
            raise InvalidSetting(
                f"{type(self).__name__} does not know its prompt",
                expected="a begin that calls super().begin(prompt, max_new_tokens)",
                remedy="add this call to its begin, or leave begin out",
            )
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
        check_model(model, "draft")
        self.model, self.prefilled, self.chunk = model, prefilled, chunk
        self.vocab = model.config.vocab

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        start = prefilled_for(self.model, prompt, max_new_tokens, self.prefilled, self.chunk)
        self.cache: KVCache = start.cache
        self.prefill_seconds = start.seconds
        self.next = start.logits.argmax(-1)  # the draft's choice after everything in its cache
        self.backlog = self.next[:0]
        self.fed = self.calls = 0

    def propose(self, k: int) -> Tensor:
        proposals: list[Tensor] = []
        for i in range(k):
            if self.backlog.shape[0]:
                self._run(self.backlog)
            proposals.append(self.choice(i))
            self.backlog = proposals[-1]
        self.fed = max(k - 1, 0)  # the last proposal stays unfed: verification may refuse it
        return torch.cat(proposals) if proposals else self.next[:0]

    def choice(self, i: int) -> Tensor:
        """The i-th proposal of this round, [1]: the draft's argmax, ``self.next``."""
        return self.next

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


class ForcedDraft(DraftModel):
    """Every draft forward is paid, but what is proposed is imposed. Synthetic: label its numbers.

    For output position i it proposes ``tokens[i]`` where ``passes[i]`` holds, and a wrong token elsewhere. The draft's
    own choices are kept: with all passes they are what it would have proposed after the given text (``agreement``).
    """

    def __init__(
        self,
        model: DecoderModel,
        tokens: Sequence[int],
        passes: Sequence[bool],
        prefilled: Prefilled | None = None,
    ) -> None:
        super().__init__(model, prefilled)
        self.tokens, self.passes = listed(tokens, "the script"), listed(passes, "the trace")
        self.own: dict[int, Tensor] = {}

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        check_trace(self.tokens, self.passes, max_new_tokens, self.model.config.vocab)
        super().begin(prompt, max_new_tokens)
        self.start, self.own = len(prompt), {}
        script = torch.tensor(self.tokens, device=self.model.device)
        passes = torch.tensor(self.passes, device=self.model.device)
        self.script = torch.where(passes, script, (script + 1) % self.model.config.vocab)

    def choice(self, i: int) -> Tensor:
        at = len(self.text) - self.start + i
        self.own[at] = self.next
        return self.script[at : at + 1]

    def agreement(self) -> list[bool]:
        """Per output position: would the draft have proposed the given token there? After a run in which all passed.

        Raises ``InvalidSetting`` if some position was never proposed, as with a bonus.
        """
        if not self.own or sorted(self.own) != list(range(len(self.own))) or not all(self.passes):
            raise InvalidSetting(
                "this run did not propose every position after the given text",
                expected="a run without bonus in which everything passes",
                remedy="record with passes all true and bonus=False",
            )
        return [int(self.own[i]) == self.tokens[i] for i in range(len(self.own))]


class Scripted(Proposer):
    """Proposals from a given continuation of the prompt, at no cost: position i of the output is proposed as script[i].

    ``script`` may also be a function of (output position, k). Synthetic: label it wherever its numbers appear.
    """

    def __init__(self, script: Sequence[int] | Callable[[int, int], Sequence[int]]) -> None:
        self.script = script if callable(script) else listed(script, "the script")

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


class DraftFree(Proposer):
    """Perfect candidates at no cost: the target's own recorded continuation, held on the device. An oracle."""

    def __init__(self, tokens: Sequence[int], device: torch.device | str = "cpu") -> None:
        ids = listed(tokens, "the recorded text")
        if wrong := [i for i in ids if not is_count(i, least=0)]:
            raise InvalidSetting(
                f"token id {wrong[0]!r} in the recorded text",
                expected="integers >= 0",
                remedy="record the target's own output, such as autoregressive(...).tokens",
            )
        self.tokens = torch.tensor(ids, dtype=torch.int64, device=parse_device(device))
        self.largest_id = max(ids, default=-1)

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        if self.tokens.shape[0] < max_new_tokens:
            raise InvalidSetting(
                f"{self.tokens.shape[0]} recorded tokens for a run of {max_new_tokens}",
                expected="at least as many",
                remedy="record the target's own output over the whole run",
            )
        super().begin(prompt, max_new_tokens)
        self.start = len(prompt)

    def propose(self, k: int) -> Tensor:
        at = len(self.text) - self.start
        return self.tokens[at : at + k]
