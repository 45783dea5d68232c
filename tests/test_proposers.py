"""Where candidates come from and which stand: draft, scripts, and the acceptance rule."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.acceptance import Greedy, longest_prefix
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftModel, Proposer, Scripted
from specdec_lib.protocol import FORMULATIONS
from tests.engine_tools import PROMPT, same_content

NEW = 32


@given(st.lists(st.booleans(), max_size=10))
def test_longest_prefix(passes: list[bool]) -> None:
    expected = passes.index(False) if False in passes else len(passes)
    assert longest_prefix(torch.tensor(passes, dtype=torch.bool)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6), st.integers(0, 5))
def test_greedy_acceptance(rows: list[tuple[int, int]], last: int) -> None:
    """Row i of the aligned logits decides over proposal i; the row behind the accepted ones is next."""
    proposals = torch.tensor([proposal for proposal, _ in rows], dtype=torch.int64)
    choices = [choice for _, choice in rows] + [last]
    logits = torch.nn.functional.one_hot(torch.tensor(choices), 6).float()
    accepted, tokens = Greedy()(proposals, logits, 0)
    stand = 0
    while stand < len(rows) and rows[stand][0] == rows[stand][1]:
        stand += 1
    assert accepted.shape == () and accepted.tolist() == stand
    assert tokens[: stand + 1].tolist() == [*proposals[:stand].tolist(), choices[stand]]


def draft_after(pair: Pair, script: list[tuple[int, int]], bonus: bool = False) -> DraftModel:
    """A draft driven by hand: per round (k, accepted), then what the engine would commit."""
    draft = DraftModel(pair.draft)
    draft.begin(PROMPT, NEW)
    for k, accepted in script:
        proposals = draft.propose(k)
        tail = [1] if accepted < k or bonus else []
        tokens = torch.tensor([*proposals[:accepted].tolist(), *tail])
        draft.commit(accepted, tokens, tokens.tolist())
    return draft


@pytest.mark.parametrize("k", [1, 3, 4])
@pytest.mark.parametrize("bonus", [True, False])
def test_the_draft_trims_one_less_than_the_target(k: int, bonus: bool, tiny_pair: Pair) -> None:
    """With a of k accepted it drops k - a - 1 rows; with all of k nothing, and its last proposal waits."""
    for accepted in range(k + 1):
        draft = draft_after(tiny_pair, [(k, accepted)], bonus)
        fed = min(accepted, k - 1)  # rows kept of the k - 1 that were run
        assert draft.cache.length == len(PROMPT) + fed
        waiting = draft.text[len(PROMPT) + fed :]
        assert draft.backlog.tolist() == waiting and len(waiting) == (1 if accepted < k else 1 + bonus)
        assert same_content(draft.cache, tiny_pair.draft, draft.text[: draft.cache.length])


@pytest.mark.parametrize("leave", [0, 1])
def test_catch_up(leave: int, tiny_pair: Pair) -> None:
    """After full acceptance with a bonus two tokens wait; the reference formulation leaves one."""
    draft = draft_after(tiny_pair, [(4, 4)], bonus=True)
    calls = draft.calls
    draft.catch_up(leave)
    assert draft.cache.length == len(draft.text) - leave and draft.backlog.shape[0] == leave
    assert draft.calls == calls + 1
    assert same_content(draft.cache, tiny_pair.draft, draft.text[: len(draft.text) - leave])
    draft.catch_up(leave)
    assert draft.calls == calls + 1, "nothing is due"


def test_proposals_are_the_draft_s_own_greedy_text(tiny_pair: Pair) -> None:
    """Whatever was accepted before, the next proposals continue the committed text."""
    for script in ([], [(4, 0)], [(4, 2)], [(4, 4)], [(3, 3), (2, 1), (4, 4), (1, 0), (1, 1)]):
        for bonus in (True, False):
            draft = draft_after(tiny_pair, script, bonus)
            expected = autoregressive(tiny_pair.draft, draft.text, 5).tokens
            assert draft.propose(5).tolist() == expected


def test_no_proposals(tiny_pair: Pair) -> None:
    draft = DraftModel(tiny_pair.draft)
    draft.begin(PROMPT, NEW)
    assert draft.propose(0).shape == (0,) and draft.calls == 0


def test_a_draft_starts_anew_with_every_run(tiny_pair: Pair) -> None:
    """The prefill is rewound and the counts are reset, also after a run that stopped in the middle."""
    draft = DraftModel(tiny_pair.draft, Prefilled.compute(tiny_pair.draft, PROMPT, NEW))
    first = speculative(tiny_pair.target, draft, PROMPT, 16)
    draft.propose(3)
    second = speculative(tiny_pair.target, draft, PROMPT, 16)
    assert (first.tokens, first.rounds, first.draft_calls) == (
        second.tokens,
        second.rounds,
        second.draft_calls,
    )


def test_other_prompts_need_other_prefills(tiny_pair: Pair) -> None:
    draft = DraftModel(tiny_pair.draft)
    for prompt in (PROMPT, PROMPT[:5], PROMPT * 3):
        done = speculative(tiny_pair.target, draft, prompt, 8)
        assert done.tokens == autoregressive(tiny_pair.target, prompt, 8).tokens


def test_scripted_tells_positions(tiny_pair: Pair) -> None:
    output = autoregressive(tiny_pair.target, PROMPT, NEW).tokens
    asked: list[tuple[int, int]] = []

    def script(at: int, k: int) -> list[int]:
        asked.append((at, k))
        return output[at : at + k]

    done = speculative(tiny_pair.target, Scripted(script), PROMPT, NEW, 4, bonus=True)
    assert asked == [(at, 4) for at in range(0, 30, 5)] + [(30, 1)]
    assert done.tokens == output and done.acceptance == 1 and done.draft_calls == 0
    assert done.draft_prefill_seconds == 0


def test_the_base_class_says_what_is_missing(tiny_pair: Pair) -> None:
    class Empty(Proposer):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define propose"):
        speculative(tiny_pair.target, Empty(), PROMPT, 4)


def test_a_proposer_sees_the_committed_text(tiny_pair: Pair) -> None:
    """What a prompt lookup needs: in every round ``text`` is the prompt and all that was committed."""
    output = autoregressive(tiny_pair.target, PROMPT, NEW).tokens

    class Looking(Proposer):
        def propose(self, k: int) -> list[int]:
            done = self.text[len(PROMPT) :]
            assert self.text[: len(PROMPT)] == PROMPT and done == output[: len(done)]
            return [output[len(done)], 0][:k]

    for formulation in FORMULATIONS:
        assert speculative(tiny_pair.target, Looking(), PROMPT, NEW, formulation=formulation).tokens == output
