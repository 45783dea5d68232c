"""Acceptance rules beside the greedy one, imposed acceptance, the naive control plane: what each must keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.acceptance import Greedy, Imposed, Recorded, Relaxed
from specdec_lib.costmodel import counts_from_trace
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.errors import InvalidSetting
from specdec_lib.generation import Generation
from specdec_lib.naive import naive_pair
from specdec_lib.pairs import Pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft, Scripted
from specdec_lib.protocol import FORMULATIONS
from tests.engine_tools import PROMPT, identities, same_content

NEW = 32
variants = [(formulation, bonus) for formulation in FORMULATIONS for bonus in (True, False)]


@pytest.fixture(scope="module")
def text(tiny_pair: Pair) -> list[int]:
    """The target's own output."""
    return autoregressive(tiny_pair.target, PROMPT, NEW).tokens


def imposed(
    pair: Pair, text: list[int], passes: list[bool], k: int, formulation: str, bonus: bool
) -> tuple[Generation, ForcedDraft, Prefilled]:
    draft = ForcedDraft(pair.draft, text, passes)
    target = Prefilled.compute(pair.target, PROMPT, len(passes))
    done = speculative(
        pair.target, draft, PROMPT, len(passes), k, bonus, Imposed(text, passes), formulation, prefilled=target
    )  # fmt: skip
    return done, draft, target


@settings(deadline=None, max_examples=40)
@given(st.lists(st.booleans(), min_size=NEW, max_size=NEW), st.integers(1, 8), st.sampled_from(variants))
def test_a_trace_imposes_exactly_its_rounds(
    tiny_pair: Pair, text: list[int], passes: list[bool], k: int, variant: tuple[str, bool]
) -> None:
    """Every count of the run is what the trace says, the output is the given text, the caches hold nothing else."""
    formulation, bonus = variant
    done, draft, target = imposed(tiny_pair, text, passes, k, formulation, bonus)
    expected = counts_from_trace(passes, k, NEW, formulation, bonus)
    assert done.tokens == text
    assert (len(done.rounds), done.proposed, done.accepted) == (
        expected.rounds, expected.proposed, expected.accepted,
    )  # fmt: skip
    assert done.rejections == expected.rejections and done.draft_calls == expected.draft_forwards
    assert done.target_calls == expected.target_calls
    identities(done, bonus)
    held = target.cache.length - len(PROMPT)
    kept = done.tokens[: held - done.rounds[-1].proposed + done.rounds[-1].accepted]
    target.cache.trim(held - len(kept))
    assert same_content(target.cache, tiny_pair.target, PROMPT + kept)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_64_tokens_at_k_4_when_all_are_accepted(formulation: str, tiny_pair: Pair) -> None:
    text = autoregressive(tiny_pair.target, PROMPT, 64).tokens
    for bonus, rounds in ((False, 16), (True, 13)):
        done, _, _ = imposed(tiny_pair, text, [True] * 64, 4, formulation, bonus)
        assert len(done.rounds) == rounds and done.acceptance == 1 and done.tokens == text
        free = speculative(tiny_pair.target, DraftFree(text), PROMPT, 64, 4, bonus, formulation=formulation)
        assert len(free.rounds) == rounds and free.tokens == text
        assert free.draft_calls == free.host_copies == 0


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize(("formulation", "bonus"), variants)
def test_the_recorded_trace_fixes_the_real_rounds(
    k: int, formulation: str, bonus: bool, tiny_pair: Pair, text: list[int]
) -> None:
    """FP32: one trace, recorded at k = 4, gives the rounds of the real draft for every k and variant."""
    _, recorder, _ = imposed(tiny_pair, text, [True] * NEW, 4, "repair-free", False)
    passes = recorder.agreement()
    assert 0 < sum(passes) < NEW, "a trace of one kind would test nothing"
    real = speculative(
        tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, k, bonus, formulation=formulation
    )
    expected = counts_from_trace(passes, k, NEW, formulation, bonus)
    assert (len(real.rounds), real.accepted, real.target_calls, real.draft_calls) == (
        expected.rounds, expected.accepted, expected.target_calls, expected.draft_forwards,
    )  # fmt: skip


def test_a_run_with_a_bonus_records_no_trace(tiny_pair: Pair, text: list[int]) -> None:
    _, draft, _ = imposed(tiny_pair, text, [True] * NEW, 4, "repair-free", True)
    with pytest.raises(InvalidSetting, match="did not propose every position"):
        draft.agreement()


@pytest.mark.parametrize(("formulation", "bonus"), variants)
def test_relaxed_at_zero_is_greedy_and_at_infinity_the_draft(
    formulation: str, bonus: bool, tiny_pair: Pair, text: list[int]
) -> None:
    def run(delta: float) -> Generation:
        draft = DraftModel(tiny_pair.draft)
        return speculative(tiny_pair.target, draft, PROMPT, NEW, 4, bonus, Relaxed(delta), formulation)

    greedy = speculative(
        tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, 4, bonus, formulation=formulation
    )
    assert run(0.0).tokens == text and run(0.0).rounds == greedy.rounds
    everything = run(math.inf)
    assert everything.acceptance == 1
    if not bonus:
        assert everything.tokens == autoregressive(tiny_pair.draft, PROMPT, NEW).tokens
    rates = [run(delta).acceptance for delta in (0.0, 0.2, math.inf)]
    assert rates[0] < rates[1] < rates[2], "more is accepted as delta grows"


@given(st.lists(st.integers(0, 5), max_size=5), st.floats(0, 3, width=32), st.data())
def test_relaxed_accepts_by_the_gap(proposals: list[int], delta: float, data: st.DataObject) -> None:
    k = len(proposals)
    logits = torch.tensor(
        data.draw(
            st.lists(
                st.lists(st.floats(-3, 3, width=32), min_size=6, max_size=6), min_size=k + 1, max_size=k + 1
            )
        )
    )
    accepted, tokens = Relaxed(delta)(torch.tensor(proposals, dtype=torch.int64), logits, 0)
    stand = 0
    while stand < k and float(logits[stand].max() - logits[stand, proposals[stand]]) <= delta:
        stand += 1
    assert accepted.tolist() == stand
    assert tokens[: stand + 1].tolist() == [*proposals[:stand], int(logits[stand].argmax())]


@pytest.mark.parametrize(("formulation", "bonus"), variants)
def test_the_naive_control_plane_says_the_same_with_more_traffic(
    formulation: str, bonus: bool, tiny_pair: Pair, text: list[int]
) -> None:
    draft, rule, host = naive_pair(tiny_pair.draft)
    naive = speculative(tiny_pair.target, draft, PROMPT, NEW, 4, bonus, rule, formulation, host=host)
    device = speculative(
        tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, 4, bonus, formulation=formulation
    )
    assert naive.tokens == device.tokens == text and naive.rounds == device.rounds
    assert device.host_reads == len(device.rounds) and device.host_copies == 0
    verified = sum(
        r.accepted + 1 for r in naive.rounds
    )  # one row more than stood: the replacement, or the next
    assert naive.host_reads == naive.proposed + verified + len(naive.rounds)
    assert naive.host_copies == naive.proposed + len(naive.rounds)
    assert naive.host_bytes > device.host_bytes == 8 * sum(r.proposed + 2 for r in device.rounds)


def test_ids_from_the_host_are_counted(tiny_pair: Pair, text: list[int]) -> None:
    done = speculative(tiny_pair.target, Scripted(text), PROMPT, NEW, 4)
    assert done.host_copies == sum(r.proposed > 0 for r in done.rounds)


def test_what_is_recorded_of_a_proposal(tiny_pair: Pair) -> None:
    """Rank, probability and gap by their definitions, one row per proposal, and the run is as without."""
    logits: list[torch.Tensor] = []

    class Seen(Greedy):
        def __call__(self, proposals: torch.Tensor, rows: torch.Tensor, position: int):  # noqa: ANN204
            logits.extend(rows[: proposals.shape[0]])
            return super().__call__(proposals, rows, position)

    recorder = Recorded(Seen())
    draft = DraftModel(tiny_pair.draft)
    done = speculative(tiny_pair.target, draft, PROMPT, NEW, 4, False, recorder, "reference")
    plain = speculative(tiny_pair.target, draft, PROMPT, NEW, 4, False, formulation="reference")
    assert done.tokens == plain.tokens and done.rounds == plain.rounds
    rows = recorder.rows()
    assert len(rows) == done.proposed and sum(row["accepted"] for row in rows) == done.accepted
    assert sum(row["reached"] for row in rows) == done.accepted + done.rejections
    for row, own in zip(rows, logits, strict=True):
        order = own.argsort(descending=True).tolist()
        token = int(row["token"])
        assert row["rank"] == order.index(token) + 1
        assert row["gap"] == pytest.approx(float(own.max() - own[token]), abs=1e-5)
        assert row["probability"] == pytest.approx(float(own.softmax(-1)[token]), rel=1e-4)
        assert row["accepted"] <= (row["rank"] == 1)
        assert 1 <= row["block_position"] <= 4
    assert rows[0]["position"] == 0 and max(int(row["position"]) for row in rows) == NEW - 1


BAD: list[tuple[str, Callable[[Pair, list[int]], object]]] = [
    ("delta = -0.5", lambda pair, text: Relaxed(-0.5)),
    ("delta = nan", lambda pair, text: Relaxed(float("nan"))),
    ("delta = True", lambda pair, text: Relaxed(True)),
    ("delta = '1'", lambda pair, text: Relaxed("1")),  # type: ignore[arg-type]
    (
        "a trace of 31 bits",
        lambda pair, text: speculative(
            pair.target, Scripted(text), PROMPT, NEW, acceptance=Imposed(text, [True] * 31)
        ),
    ),
    (
        "a trace of 32 bits over 31 tokens",
        lambda pair, text: speculative(
            pair.target, ForcedDraft(pair.draft, text[:31], [True] * 32), PROMPT, NEW
        ),
    ),
    (
        "no id of the target",
        lambda pair, text: speculative(
            pair.target, ForcedDraft(pair.draft, [320] * 32, [True] * 32), PROMPT, NEW
        ),
    ),
    ("31 recorded tokens", lambda pair, text: speculative(pair.target, DraftFree(text[:31]), PROMPT, NEW)),
    (
        "the acceptance rule is a function",
        lambda pair, text: speculative(
            pair.target, Scripted(text), PROMPT, NEW, acceptance=cast(Any, lambda a, b, c: a)
        ),
    ),
]


@pytest.mark.parametrize(("mention", "call"), BAD, ids=[mention for mention, _ in BAD])
def test_refused_before_any_measurement(
    mention: str, call: Callable[[Pair, list[int]], object], tiny_pair: Pair, text: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def forward(*_: object, **__: object) -> None:
        raise AssertionError("a forward ran")

    monkeypatch.setattr("specdec_lib.model.DecoderModel.forward", forward)
    with pytest.raises(InvalidSetting) as raised:
        call(tiny_pair, text)
    assert mention in str(raised.value) and raised.value.expected and raised.value.remedy
