"""Watching the engine work: what each round proposed, how rows align, where the caches stood. For explanation only."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .acceptance import Decision, Greedy
from .decoding import speculative
from .model import DecoderModel
from .prefilled import Prefilled
from .proposers import DraftModel


class _WatchedDraft(DraftModel):
    """A draft that notes both cache lengths at every point where the engine hands over to it."""

    def __init__(self, model: DecoderModel, target: Prefilled, rounds: list[dict[str, Any]]) -> None:
        super().__init__(model)
        self.target, self.rounds = target, rounds

    def _lengths(self) -> dict[str, int]:
        return {"target": self.target.cache.length, "draft": self.cache.length}

    def propose(self, k: int) -> Tensor:
        waiting = len(self.text) - self.target.cache.length
        pending = self.text[len(self.text) - waiting :]
        self.rounds.append({"committed": len(self.text), "pending": pending, "start": self._lengths()})
        return super().propose(k)

    def commit(self, accepted: int, tokens: Tensor, known: list[int]) -> None:
        self.rounds[-1]["verified"] = self._lengths()
        super().commit(accepted, tokens, known)


def watch_rounds(
    target: DecoderModel, draft: DecoderModel, prompt: list[int], new_tokens: int, **settings: Any
) -> list[dict[str, Any]]:
    """Run ``speculative`` and return its rounds as plain values.

    Each has ``committed`` (tokens before the round), ``pending`` ids (first rows of the block), ``proposals``,
    ``choices`` (the target's argmax aligned with the proposals, one more at the end), ``accepted``, ``emitted`` ids,
    and cache lengths of both models at the ``start``, when ``verified``, and at the ``end`` of the round.
    """
    rounds: list[dict[str, Any]] = []
    start = Prefilled.compute(target, prompt, new_tokens)

    class Watched(Greedy):
        def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
            decision = super().__call__(proposals, logits, position)
            note(proposals, logits, decision)
            return decision

    def note(proposals: Tensor, logits: Tensor, decision: Decision) -> None:
        if not proposals.shape[0]:  # a plain last step has no draft phase
            rounds.append({"committed": rounds[-1]["committed"] + len(rounds[-1]["emitted"]), "pending": []})
        rounds[-1] |= {
            "proposals": proposals.tolist(),
            "choices": logits.argmax(-1).tolist(),
            "accepted": int(decision.accepted),
            "tokens": decision.tokens.tolist(),
        }
        rounds[-1]["emitted"] = rounds[-1]["tokens"][: rounds[-1]["accepted"] + 1]

    done = speculative(
        target,
        _WatchedDraft(draft, start, rounds),
        prompt,
        new_tokens,
        acceptance=Watched(),
        prefilled=start,
        **settings,
    )
    for seen, booked, following in zip(rounds, done.rounds, [*rounds[1:], {}], strict=True):
        seen["emitted"] = seen.pop("tokens")[: booked.emitted]
        seen["end"] = following.get("start")
    return rounds
