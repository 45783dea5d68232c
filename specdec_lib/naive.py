"""The naive control plane: every choice is read by the host, every token tensor built there. The text is the same.

What the published study started from (its phase O). It differs from the device-side one in nothing but the traffic:
one read and one copy per proposal, one read per verified row, and the decision built on the host.
"""

from __future__ import annotations

from torch import Tensor

from .acceptance import Acceptance, Decision
from .host import HostTraffic
from .model import DecoderModel
from .prefilled import Prefilled
from .proposers import DraftModel


class NaiveDraft(DraftModel):
    """A draft whose every proposal goes to the host and back before it is fed on."""

    def __init__(self, model: DecoderModel, host: HostTraffic, prefilled: Prefilled | None = None) -> None:
        super().__init__(model, prefilled)
        self.host = host
        self.known: list[int] = []  # this round's proposals

    def propose(self, k: int) -> Tensor:
        self.known = []
        return super().propose(k)

    def choice(self, i: int) -> Tensor:
        ids = self.host.read(self.next)
        self.known += ids
        return self.host.copy(ids, self.model.device)


class NaiveGreedy(Acceptance):
    """Greedy acceptance decided on the host, one read per row up to the first mismatch."""

    def __init__(self, draft: NaiveDraft) -> None:
        self.draft, self.host = draft, draft.host

    def __call__(self, proposals: Tensor, logits: Tensor, position: int) -> Decision:
        choices = logits.argmax(-1)
        committed: list[int] = []
        for i in range(choices.shape[0]):
            committed += self.host.read(choices[i : i + 1])
            if i == proposals.shape[0] or committed[i] != self.draft.known[i]:
                break
        accepted = len(committed) - 1
        padded = committed + committed[-1:] * (choices.shape[0] - len(committed))
        tensor = self.host.copy([accepted, *padded], logits.device)
        return Decision(tensor[0], tensor[1:])


def naive_pair(
    model: DecoderModel, prefilled: Prefilled | None = None
) -> tuple[NaiveDraft, NaiveGreedy, HostTraffic]:
    """Proposer, rule and the counter they share, for ``speculative(..., host=...)``."""
    host = HostTraffic()
    draft = NaiveDraft(model, host, prefilled)
    return draft, NaiveGreedy(draft), host
