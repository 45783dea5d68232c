"""What a decoding run knows, on the device: text, length, acceptance. Plain tensor code that never reads it back.

A captured graph can be replayed without knowing whether the run is over: every commit is clamped to the tokens that are
still wanted, so that a surplus round changes nothing.

Repair-free rounds with bonus, in the alignment of ``decoding.speculative``: block row 0 is the last committed token, so
row j of the target's choices decides over proposal j + 1 and the row behind the accepted ones is committed with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class DecodeState:
    """State of one run over a text of at most ``capacity`` tokens, with ``k`` proposals a round (0: plain decoding).

    ``text`` holds prompt and output; ``committed`` and ``goal`` [1] are lengths of it. ``tail`` [2]: the last two
    committed tokens, the draft's first rows. ``block`` [k + 1]: the target's rows. ``script`` and ``passes``, by text
    position: imposed proposals and whether each of them stands. ``first`` and ``draft_first`` [1]: both models' choices
    after the prompt, from their prefills; they stand for row 0 of the first round and for its first proposal. ``log``
    rows: proposed, accepted, emitted, natural.
    """

    def __init__(self, capacity: int, k: int, vocab: int, device: torch.device) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.capacity, self.k, self.vocab = capacity, k, vocab
        room = capacity + k + 1  # a round looks one block beyond the goal
        self.text, self.script, self.passes = zeros(room), zeros(room), zeros(room, dtype=torch.bool)
        self.imposed, self.forced = zeros(1, dtype=torch.bool), zeros(1, dtype=torch.bool)
        self.committed, self.goal, self.rounds = zeros(1), zeros(1), zeros(1)
        self.origin, self.first, self.draft_first = zeros(1), zeros(1), zeros(1)
        self.tail, self.block = zeros(2), zeros(k + 1)
        self.log = zeros(capacity + 1, 4)
        self.steps = torch.arange(k + 1, device=device)
        self.last_two = torch.tensor([-2, -1], device=device)

    def begin(
        self,
        prompt: Sequence[int],
        new: int,
        script: Sequence[int] | None = None,
        passes: Sequence[bool] | None = None,
    ) -> None:
        """Set up a run of ``new`` tokens after ``prompt`` (at least two tokens). Not part of the timed region.

        ``script`` alone: proposals come from it and the target decides (draft-free). With ``passes`` too: the trace
        decides over acceptance, ``script`` is committed, and where a position does not pass a wrong token is proposed.
        """
        device, start = self.text.device, len(prompt)
        self.text[:start] = torch.tensor(prompt, device=device)
        self.text[start:] = 0
        self.script.zero_()
        self.passes.zero_()
        if script is not None:
            given = torch.tensor(list(script), device=device)[:new]
            self.script[start : start + len(given)] = given
            stands = [True] * len(given) if passes is None else list(passes)[: len(given)]
            self.passes[start : start + len(given)] = torch.tensor(stands, device=device)
        self.forced.fill_(script is not None)
        self.imposed.fill_(passes is not None)
        self.committed.fill_(start)
        self.origin.fill_(start)
        self.goal.fill_(start + new)
        self.rounds.zero_()
        self.tail.copy_(self.text[start - 2 : start])
        self.block[:1] = self.tail[1:]

    def commit_one(self, choice: Tensor) -> None:
        """Plain decoding: commit ``choice`` [1] and make it the next row, unless the run is over."""
        live = self.committed < self.goal
        token = torch.where(live, choice, self.block[:1])
        self.text.index_copy_(
            0, self.committed, torch.where(live, choice, self.text.index_select(0, self.committed))
        )
        self.block[:1] = token
        self.committed.add_(live)

    def propose(self, i: int, choice: Tensor) -> None:
        """Proposal ``i`` (from 0) of this round is the draft's ``choice`` [1], or what the script imposes there."""
        if i == 0:
            choice = torch.where(self.committed == self.origin, self.draft_first, choice)
        at = self.committed + i
        given, stands = self.script.index_select(0, at), self.passes.index_select(0, at)
        wrong = (given + 1).remainder(self.vocab)
        self.block[i + 1 : i + 2] = torch.where(self.forced, torch.where(stands, given, wrong), choice)

    def propose_script(self) -> None:
        """All proposals of this round come from the script."""
        self.block[1:] = self.script.index_select(0, self.committed + self.steps[:-1])

    def commit_round(self, choices: Tensor) -> None:
        """Accept and commit by the target's ``choices`` [k + 1], then set up the next round."""
        at = self.committed + self.steps
        room = self.goal - self.committed
        proposed = (room - 1).clamp(0, self.k)  # the last round shrinks to the room that is left
        opening = torch.where(self.committed == self.origin, self.first, choices[:1])
        choices = torch.cat((opening, choices[1:]))
        natural = (self.block[1:] == choices[:-1]).long().cumprod(0).sum(0, keepdim=True)
        traced = self.passes.index_select(0, at[:-1]).long().cumprod(0).sum(0, keepdim=True)
        accepted = torch.minimum(torch.where(self.imposed, traced, natural), proposed)
        emitted = torch.minimum(accepted + 1, room)
        tokens = torch.where(self.imposed, self.script.index_select(0, at), choices)
        kept = torch.where(self.steps < emitted, tokens, self.text.index_select(0, at))
        self.text.index_copy_(0, at, kept)
        # A surplus round writes the row behind the last one, which is not counted.
        self.log.index_copy_(0, self.rounds, torch.stack((proposed, accepted, emitted, natural), 1))
        self.rounds.add_(room > 0)
        self.committed.add_(emitted)
        self.tail.copy_(self.text.index_select(0, self.committed + self.last_two))
        self.block[:1] = self.tail[1:]
