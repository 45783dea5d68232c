"""Tools of the engine's tests: forced drafts, watched caches, counted forwards, a clock of forwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from specdec_lib.cache import KVCache
from specdec_lib.generation import Generation
from specdec_lib.model import DecoderModel, prefill
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftModel, Proposer

PROMPT = [17, 250, 3, 3, 99, 301, 42, 8, 160, 77, 5, 211]


def make_draft(pair: Pair, which: str) -> DecoderModel:
    """ "own": the pair's; "target": accepts everything; "unrelated": other weights, so almost nothing."""
    from specdec_lib.weights import RandomWeights, random_weights

    config = pair.target.config
    if which == "unrelated":
        weights = random_weights(config, RandomWeights(seed=99), torch.device("cpu"))
        return DecoderModel(config, weights, name="unrelated")
    return {"own": pair.draft, "target": pair.target}[which]


def wrong(token: int, vocab: int = 320) -> int:
    """Another token."""
    return (token + 1) % vocab


class Forced(DraftModel):
    """A draft that really runs, but whose choice for output position i is ``script[i]``."""

    def __init__(self, model: DecoderModel, script: Sequence[int], **settings: Any) -> None:
        super().__init__(model, **settings)
        self.script = script

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        self.start = len(prompt)
        self._force()

    def _run(self, ids: Tensor) -> None:
        super()._run(ids)
        self._force()

    def _force(self) -> None:
        at = self.cache.length - self.start
        self.next = torch.tensor([self.script[at] if at < len(self.script) else 0])


def script_of(accepts: Sequence[int], output: Sequence[int], k: int, bonus: bool) -> list[int]:
    """Proposals per output position of which exactly ``accepts[r]`` stand in round r (then all)."""
    script, at = list(output), 0
    for accepted in accepts:
        if accepted < k and at + accepted < len(script):
            script[at + accepted] = wrong(script[at + accepted])
        at += accepted + (accepted < k or bonus)
    return script


@dataclass
class Watch:
    """What ``watched`` saw: cache lengths at every start of a round, committed text, reads so far."""

    committed: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)


def watched(proposer: Proposer, target: Prefilled, watch: Watch) -> Proposer:
    """``proposer``, noting the lengths whenever it is asked for proposals, that is after every round."""
    propose = proposer.propose

    def noting(k: int) -> Tensor | Sequence[int]:
        watch.committed.append(len(proposer.text))
        watch.target.append(target.cache.length)
        if isinstance(proposer, DraftModel):
            watch.draft.append(proposer.cache.length)
        return propose(k)

    proposer.propose = noting  # type: ignore[method-assign]
    return proposer


@dataclass
class Forwards:
    """Forwards of every model since the start: rows of each, and a clock that they move."""

    rows: list[int] = field(default_factory=list)
    time: float = 0.0
    marks: int = 0

    def now(self, device: torch.device) -> float:
        self.marks += 1
        return self.time


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forwards]:
    """Count forwards; every forward takes one second of a clock that stands still otherwise.

    Both clocks are replaced, the decode's (module ``timing``) and the prefill's; ``marks`` counts readings of
    the first.
    """
    seen, prefills = Forwards(), Forwards()
    forward = DecoderModel.forward

    def counting(self: DecoderModel, ids: Tensor, cache: KVCache, **options: Any) -> Tensor:
        seen.rows.append(ids.shape[0])
        seen.time += 1.0
        prefills.time += 1.0
        return forward(self, ids, cache, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DecoderModel, "forward", counting)
        patch.setattr("specdec_lib.timing.now", seen.now)
        patch.setattr("specdec_lib.prefilled.now", prefills.now)
        yield seen


def cache_of(model: DecoderModel, text: list[int], capacity: int | None = None) -> tuple[KVCache, Tensor]:
    """A fresh cache after ``text``, and the last row's logits."""
    cache = model.new_cache(capacity or len(text))
    return cache, prefill(model, torch.tensor(text), cache)


def same_content(cache: KVCache, model: DecoderModel, text: list[int]) -> bool:
    """Whether ``cache`` holds exactly the keys and values of ``text`` (up to rounding)."""
    fresh, _ = cache_of(model, text)
    n = len(text)
    return cache.length == n and all(
        torch.allclose(a[:, :, :n], b[:, :, :n], rtol=1e-3, atol=1e-4)
        for a, b in ((cache.keys, fresh.keys), (cache.values, fresh.values))
    )


def identities(done: Generation, bonus: bool) -> None:
    """Section 3's identities, which hold in every run."""
    rounds = done.rounds
    cut = sum(r.cut for r in rounds)
    assert len(done.tokens) == sum(r.emitted for r in rounds)
    assert all(0 <= r.accepted <= r.proposed and 1 <= r.emitted <= r.accepted + 1 for r in rounds)
    if bonus:
        assert len(done.tokens) == done.accepted + len(rounds) - cut
    else:
        plain = sum(r.proposed == 0 for r in rounds)
        assert len(done.tokens) == done.accepted + done.rejections + plain - cut
    assert done.host_reads == len(rounds)
