"""Both ways to decode, on two-layer FP32 models, where "equal" means equal: output, rounds, counts, cache."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_lib.acceptance import Acceptance, Decision
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.generation import Generation, Round
from specdec_lib.host import HostTraffic
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import Pair, load_pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftModel, Proposer, Scripted
from specdec_lib.protocol import FORMULATIONS
from specdec_lib.trace import watch_rounds
from tests.engine_tools import (
    PROMPT,
    Forced,
    Watch,
    counted,
    identities,
    make_draft,
    same_content,
    script_of,
    watched,
    wrong,
)  # fmt: skip

NEW = 24
VARIANTS = list(product(FORMULATIONS, (True, False)))
variants = pytest.mark.parametrize(("formulation", "bonus"), VARIANTS)
profile = settings(max_examples=50, deadline=None, derandomize=True)


@cache
def pair_of(kind: str) -> Pair:
    return load_pair(f"tiny-{kind}", device="cpu", dtype="fp32")


@cache
def output_of(kind: str, new: int = NEW) -> tuple[int, ...]:
    return tuple(autoregressive(pair_of(kind).target, PROMPT, new).tokens)


@cache
def prefilled_of(kind: str) -> Prefilled:
    return Prefilled.compute(pair_of(kind).target, PROMPT, 80)


def expected_calls(done: Generation, formulation: str, bonus: bool) -> int:
    """Target calls that the rounds cost. A block of no rows costs none; nothing runs after the last token."""
    calls, pending = 0, False
    for i, r in enumerate(done.rounds):
        last = i == len(done.rounds) - 1
        calls += bool(pending or r.proposed)
        repair = formulation == "reference" and r.rejected
        calls += repair and not last
        pending = formulation == "repair-free" or (not r.rejected and (bonus or not r.proposed))
    return calls


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("which", ["own", "target", "unrelated"])
@variants
def test_output_is_ar_s_for_every_k(kind: str, which: str, formulation: str, bonus: bool) -> None:
    pair = pair_of(kind)
    draft = DraftModel(make_draft(pair, which))
    draft.prefilled = Prefilled.compute(draft.model, PROMPT, NEW)
    for k in range(1, 9):
        done = speculative(
            pair.target, draft, PROMPT, NEW, k, bonus, formulation=formulation, prefilled=prefilled_of(kind)
        )
        assert tuple(done.tokens) == output_of(kind)
        identities(done, bonus)
        assert done.target_calls == expected_calls(done, formulation, bonus)
        if which == "target":
            assert done.acceptance == 1
        if which == "unrelated":
            assert done.acceptance < 0.3
        used = [r.proposed for r in done.rounds]
        room = [NEW - sum(r.emitted for r in done.rounds[:i]) - bonus for i in range(len(used))]
        assert used == [min(k, r) for r in room], "the last rounds' k shrinks to the room that is left"


@variants
@given(data=st.data())
@profile
def test_any_script_gives_ar_s_output(formulation: str, bonus: bool, data: st.DataObject) -> None:
    """Right, wrong, fewer than k and no proposals, in any order."""
    new = data.draw(st.integers(1, NEW), label="new tokens")
    k = data.draw(st.integers(1, 8), label="k")
    right = data.draw(st.lists(st.booleans(), min_size=NEW + 8, max_size=NEW + 8), label="right")
    lengths = data.draw(st.lists(st.integers(0, 8), min_size=NEW, max_size=NEW), label="proposals")
    output = [*output_of("llama"), *[0] * 8]
    texts = [token if ok else wrong(token) for token, ok in zip(output, right, strict=True)]
    start, seen = prefilled_of("llama"), Watch()
    script = Scripted(lambda at, k: texts[at : at + min(k, lengths[at])])
    done = speculative(
        pair_of("llama").target, watched(script, start, seen), PROMPT, new, k, bonus,
        formulation=formulation, prefilled=start,
    )  # fmt: skip
    assert done.tokens == output[:new]
    identities(done, bonus)
    assert done.target_calls == expected_calls(done, formulation, bonus)
    ends = [sum(r.emitted for r in done.rounds[:i]) for i in range(len(done.rounds))]
    for r, at in zip(done.rounds, ends, strict=True):
        stand = next((i for i in range(r.proposed) if not right[at + i]), r.proposed)
        assert r.accepted == stand and r.emitted == min(
            new - at, stand + (stand < r.proposed or bonus or not r.proposed)
        )
    check_lengths(seen, done, formulation, bonus)


def check_lengths(seen: Watch, done: Generation, formulation: str, bonus: bool) -> None:
    """Reference: all committed tokens are in the cache but a pending bonus. Repair-free: all but the last."""
    for i, (committed, length) in enumerate(zip(seen.committed, seen.target, strict=True)):
        before = done.rounds[i - 1] if i else None
        if before is None:
            waiting = 0
        elif formulation == "repair-free":
            waiting = 1
        else:
            waiting = int(not before.rejected and (bonus or not before.proposed))
        assert length == committed - waiting


@variants
@pytest.mark.parametrize("k", [1, 2, 4])
def test_both_caches_after_every_round(formulation: str, bonus: bool, k: int, tiny_pair: Pair) -> None:
    """Scripted a = 0..k through a real draft: lengths and contents of both caches."""
    new = 64
    output = list(output_of("llama", new))
    accepts = [*range(k + 1), *reversed(range(k + 1)), k, k, 0, 0]
    draft = Forced(tiny_pair.draft, script_of(accepts, output, k, bonus))
    start, seen = Prefilled.compute(tiny_pair.target, PROMPT, new), Watch()
    propose = draft.propose
    contents: list[bool] = []

    def checking(limit: int) -> Any:
        text = draft.text
        contents.append(same_content(draft.cache, tiny_pair.draft, text[: draft.cache.length]))
        contents.append(same_content(start.cache, tiny_pair.target, text[: start.cache.length]))
        backlog = draft.backlog.tolist()
        assert backlog == text[draft.cache.length :], "cache and backlog hold exactly the committed tokens"
        return propose(limit)

    draft.propose = checking  # type: ignore[method-assign]
    done = speculative(
        tiny_pair.target, watched(draft, start, seen), PROMPT, new, k, bonus,
        formulation=formulation, prefilled=start,
    )  # fmt: skip
    assert [r.accepted for r in done.rounds[: len(accepts)]] == accepts
    assert done.tokens == output and all(contents)
    check_lengths(seen, done, formulation, bonus)
    rounds = done.rounds
    for i, (committed, length) in enumerate(zip(seen.committed, seen.draft, strict=True)):
        full = i and not rounds[i - 1].rejected
        if formulation == "reference":
            assert length == committed - int(bool(full and bonus))
        elif i:
            assert length == committed - (1 + bonus if full else 1), (
                "the missing last proposal waits in the backlog"
            )


@variants
@pytest.mark.parametrize("which", ["own", "target", "unrelated"])
def test_draft_forwards(formulation: str, bonus: bool, which: str, tiny_pair: Pair) -> None:
    """k_r forwards per round; the reference formulation with bonus runs d_k and the bonus apart: one more."""
    draft = DraftModel(make_draft(tiny_pair, which))
    done = speculative(tiny_pair.target, draft, PROMPT, 60, 4, bonus, formulation=formulation)
    drafting = [r for r in done.rounds if r.proposed]
    each = sum(r.proposed for r in drafting) - 1  # the first proposal of all comes from the prefill
    if formulation == "reference" and bonus:
        followed = [r for r, after in zip(done.rounds, done.rounds[1:], strict=False) if after.proposed]
        each = (
            sum(r.proposed - 1 for r in drafting)
            + sum(not r.rejected for r in followed)
            + len(done.rounds)
            - 1
        )
    assert done.draft_calls == each


@variants
def test_a_draft_that_is_the_target_accepts_all(formulation: str, bonus: bool, tiny_pair: Pair) -> None:
    """64 tokens at k = 4: 16 rounds, 13 with bonus. A hole in the draft's cache would break this."""
    done = speculative(
        tiny_pair.target, DraftModel(tiny_pair.target), PROMPT, 64, 4, bonus, formulation=formulation
    )
    assert done.acceptance == 1 and len(done.rounds) == (13 if bonus else 16)
    assert [r.proposed for r in done.rounds[:-1]] == [4] * (len(done.rounds) - 1)
    assert done.rounds[-1] == (Round(3, 3, 4) if bonus else Round(4, 4, 4))
    assert done.tokens == list(output_of("llama", 64))


@variants
@pytest.mark.parametrize("k", range(1, 9))
def test_the_last_slots(formulation: str, bonus: bool, k: int, tiny_pair: Pair) -> None:
    """A cache with room for prompt + new exactly, all accepted and all refused, from one token on."""
    for new in (1, 2, k, k + 1, k + 2, 2 * k + 1):
        expected = list(output_of("llama")[:new])
        for text in (output_of("llama"), tuple(map(wrong, output_of("llama")))):
            start = Prefilled.compute(tiny_pair.target, PROMPT, new)
            assert start.cache.capacity == len(PROMPT) + new
            draft = Forced(tiny_pair.draft, text, prefilled=Prefilled.compute(tiny_pair.draft, PROMPT, new))
            done = speculative(
                tiny_pair.target, draft, PROMPT, new, k, bonus, formulation=formulation, prefilled=start
            )
            assert done.tokens == expected and start.cache.length <= start.cache.capacity
            again = autoregressive(tiny_pair.target, PROMPT, new, prefilled=start)
            assert again.tokens == expected and again.target_calls == new - 1


@variants
def test_rows_behind_the_length_are_never_read(formulation: str, bonus: bool) -> None:
    """Everything behind both caches' lengths is poisoned before every round."""
    pair = pair_of("qwen2")
    for poison in (float("nan"), 1e4):
        start = Prefilled.compute(pair.target, PROMPT, NEW)
        draft = DraftModel(pair.draft)
        propose = draft.propose

        def poisoning(k: int, poison: float = poison, start: Prefilled = start, draft: DraftModel = draft,
                      propose: Any = propose) -> Any:  # fmt: skip
            for held in (start.cache, draft.cache):
                held.keys[:, :, held.length :] = poison
                held.values[:, :, held.length :] = poison
            return propose(k)

        draft.propose = poisoning  # type: ignore[method-assign]
        done = speculative(
            pair.target, draft, PROMPT, NEW, 4, bonus, formulation=formulation, prefilled=start
        )
        assert tuple(done.tokens) == output_of("qwen2")


def test_a_wrong_rotary_table_of_the_draft_costs_acceptance_only(tiny_pair: Pair) -> None:
    """A draft with the target's weights accepts all, with another table less; the output never changes."""
    from specdec_lib.weights import RandomWeights, random_weights

    weights = random_weights(tiny_pair.target.config, RandomWeights(seed=0), torch.device("cpu"))
    for scaling in ({"rope_theta": 50.0}, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}):
        twisted = DecoderModel(replace(tiny_pair.target.config, **scaling), weights)
        plain = DecoderModel(tiny_pair.target.config, weights)
        prompt = PROMPT * 4
        expected = autoregressive(tiny_pair.target, prompt, NEW).tokens
        own = speculative(tiny_pair.target, DraftModel(plain), prompt, NEW)
        other = speculative(tiny_pair.target, DraftModel(twisted), prompt, NEW)
        assert own.tokens == other.tokens == expected
        assert own.acceptance == 1 > other.acceptance


def first_seen(output: tuple[int, ...], least: int) -> int:
    """An index from ``least`` on whose token has not occurred before."""
    return next(i for i in range(least, len(output)) if output[i] not in output[:i])


EOS_AT = {"first token": 0, "inside": 1, "last accepted": 3, "replacement": 2, "bonus": 4, "last token": 0}


@pytest.mark.parametrize(
    ("formulation", "bonus", "where"),
    [(f, bonus, where) for f, bonus in VARIANTS for where in EOS_AT if bonus or where != "bonus"],
)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_eos(formulation: str, bonus: bool, where: str, kind: str) -> None:
    """The output ends with EOS; what follows it is neither emitted nor counted."""
    output, k = output_of(kind), 4
    at = 0 if where == "first token" else first_seen(output, 6)
    eos, new = output[at], at + 1 if where == "last token" else NEW
    # Replacements bring the text to the round that meets EOS at the offset that the case needs.
    offset = EOS_AT[where]  # of EOS in its round
    lead = at - offset
    text = [wrong(token) if i < lead else token for i, token in enumerate([*output, *[0] * 8])]
    if where == "replacement":
        text[at] = wrong(text[at])
    done = speculative(
        pair_of(kind).target, Scripted(text), PROMPT, new, k, bonus, formulation=formulation, eos=eos,
        prefilled=prefilled_of(kind),
    )  # fmt: skip
    assert tuple(done.tokens) == output[: at + 1]
    assert not done.tokens[:-1].count(eos)
    identities(done, bonus)
    assert len(done.rounds) == lead + 1
    last = done.rounds[-1]
    if where in ("inside", "last accepted", "first token"):
        assert last == Round(offset + 1, offset + 1, offset + 1, cut=int(bonus))
    elif where == "replacement":
        assert last == Round(4, 2, 3)
    elif where == "bonus":
        assert last == Round(4, 4, 5)
    assert sum(r.proposed for r in done.rounds[:-1]) == k * lead if where != "last token" else True
    ar = autoregressive(pair_of(kind).target, PROMPT, new, eos, prefilled=prefilled_of(kind))
    assert ar.tokens == done.tokens and ar.target_calls == at
    assert ar.host_reads == at + 1
    several = autoregressive(pair_of(kind).target, PROMPT, new, [eos, 319, 0], prefilled=prefilled_of(kind))
    assert len(several.tokens) <= len(ar.tokens)


@variants
@given(data=st.data())
@profile
def test_any_script_stops_at_eos(formulation: str, bonus: bool, data: st.DataObject) -> None:
    """Wherever EOS falls in its round: AR's output up to it, and section 3's counts with the cut."""
    output = output_of("qwen2")
    stop = data.draw(st.sets(st.sampled_from(output), min_size=1, max_size=3), label="eos")
    k = data.draw(st.integers(1, 8), label="k")
    right = data.draw(st.lists(st.booleans(), min_size=NEW + 8, max_size=NEW + 8), label="right")
    texts = [t if ok else wrong(t) for t, ok in zip([*output, *[0] * 8], right, strict=True)]
    done = speculative(
        pair_of("qwen2").target, Scripted(texts), PROMPT, NEW, k, bonus, formulation=formulation, eos=stop,
        prefilled=prefilled_of("qwen2"),
    )  # fmt: skip
    end = next(i for i, token in enumerate(output) if token in stop)
    assert done.tokens == list(output[: end + 1])
    identities(done, bonus)
    assert done.target_calls == expected_calls(done, formulation, bonus)
    at = 0
    for r in done.rounds:
        assert r.accepted == sum(right[at : at + r.accepted]), "only what stands in the output is counted"
        assert at + r.accepted <= end + 1
        at += r.emitted
    assert not any(r.cut for r in done.rounds[:-1])


def test_an_eos_that_never_comes_changes_nothing(tiny_pair: Pair) -> None:
    absent = next(i for i in range(320) if i not in output_of("llama"))
    assert tuple(autoregressive(tiny_pair.target, PROMPT, NEW, absent).tokens) == output_of("llama")
    done = speculative(tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, eos=absent)
    assert tuple(done.tokens) == output_of("llama") and not any(r.cut for r in done.rounds)


def test_denominators() -> None:
    """Accepted / proposed-and-verified, never k x rounds; NaN without proposals, never 0 or 1."""
    rounds = [Round(4, 4, 5), Round(4, 1, 2), Round(2, 0, 1), Round(0, 0, 1)]
    done = Generation(tokens=list(range(9)), seconds=1.0, rounds=rounds)
    assert done.proposed == 10 and done.accepted == 5 and done.rejections == 2
    assert done.acceptance == 0.5 and done.tokens_per_round == 9 / 4
    empty = Generation(tokens=[1], seconds=1.0)
    assert empty.acceptance != empty.acceptance and empty.tokens_per_round != empty.tokens_per_round


def test_a_shrunken_last_round_counts_what_was_proposed(tiny_pair: Pair) -> None:
    output = [*output_of("llama"), *[0] * 8]
    done = speculative(tiny_pair.target, Scripted(output), PROMPT, 7, 4, bonus=False, formulation="reference")
    assert [r.proposed for r in done.rounds] == [4, 3] and done.proposed == 7 and done.acceptance == 1


@variants
def test_one_host_read_per_round(
    formulation: str, bonus: bool, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the rounds no operation hands a value, or a shape made of values, to the host."""
    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "item")
    seen: list[str] = []

    class NoSync(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.__name__.split(".")[0]
            masks = name in ("index", "index_put", "index_put_") and any(
                i is not None and i.dtype == torch.bool for i in args[1]
            )
            if masks or name in forbidden or name.startswith(("unique", "repeat_interleave")):
                seen.append(name)
            return func(*args, **(kwargs or {}))

    reads: list[int] = []
    read = HostTraffic.read

    def noting(self: HostTraffic, tensor: torch.Tensor) -> list[int]:
        reads.append(tensor.numel())
        return read(self, tensor)

    monkeypatch.setattr(HostTraffic, "read", noting)
    start = Prefilled.compute(tiny_pair.target, PROMPT, NEW)
    draft = DraftModel(tiny_pair.draft, Prefilled.compute(tiny_pair.draft, PROMPT, NEW))
    with NoSync():
        done = speculative(
            tiny_pair.target, draft, PROMPT, NEW, 4, bonus, formulation=formulation, prefilled=start
        )
    assert not seen
    assert len(reads) == len(done.rounds) == done.host_reads
    assert reads == [r.proposed + 2 for r in done.rounds], "count and tokens travel together"
    with NoSync():
        torch.ones(3).nonzero()
    assert seen == ["nonzero"], "the watch works"


def test_ar_reads_once(tiny_pair: Pair) -> None:
    done = autoregressive(tiny_pair.target, PROMPT, NEW)
    assert done.host_reads == 1 and done.target_calls == NEW - 1 and not done.rounds


@variants
def test_the_clock(formulation: str, bonus: bool, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only forwards move: what a run is charged with, and that both arms are charged alike."""
    with counted(monkeypatch) as seen:
        ar = autoregressive(tiny_pair.target, PROMPT, NEW)
        assert seen.marks == 2, "a timed run carries a start and a stop"
    assert ar.seconds == ar.target_calls == NEW - 1 and ar.prefill_seconds == 1
    assert not ar.stage_seconds
    with counted(monkeypatch) as seen:
        done = speculative(
            tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, NEW, 4, bonus, formulation=formulation
        )
        assert seen.marks == 2
    assert done.seconds == done.target_calls + done.draft_calls
    assert done.prefill_seconds == done.draft_prefill_seconds == 1
    assert len(done.tokens) == len(ar.tokens) == NEW and not done.stage_seconds
    with counted(monkeypatch) as seen:
        laps = speculative(
            tiny_pair.target,
            DraftModel(tiny_pair.draft),
            PROMPT,
            NEW,
            4,
            bonus,
            formulation=formulation,
            instrument=True,
        )
    stages = laps.stage_seconds
    assert sum(stages.values()) == laps.seconds == done.seconds
    repairs = laps.rejections - laps.rounds[-1].rejected if formulation == "reference" else 0
    assert stages["verify"] == laps.target_calls - repairs
    assert stages["accept"] == stages["other"] == 0
    proposing = sum(max(r.proposed - 1, 0) for r in laps.rounds)
    catching = stages["repair"] - repairs
    assert stages["draft"] + catching == laps.draft_calls and stages["draft"] >= proposing
    if formulation == "repair-free":
        assert catching == 0


def test_stages_sum_to_the_run(tiny_pair: Pair) -> None:
    draft = DraftModel(tiny_pair.draft)
    for done in (
        speculative(tiny_pair.target, draft, PROMPT, 64, instrument=True),
        autoregressive(tiny_pair.target, PROMPT, 64, instrument=True),
    ):
        assert sum(done.stage_seconds.values()) == pytest.approx(done.seconds, rel=0.02)
        assert done.stage_seconds["verify"] > 0


def test_ar_is_transformers_greedy(hf_llama: Any, hf_qwen2: Any) -> None:
    import transformers

    from specdec_lib.correctness import transformers_greedy

    for folder in (hf_llama, hf_qwen2):
        pair = load_pair((folder, folder), "cpu", "fp32")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        prompt = [i % pair.target.config.vocab for i in PROMPT]
        expected = transformers_greedy(theirs, prompt, 32)
        assert autoregressive(pair.target, prompt, 32).tokens == expected
        for formulation, bonus in VARIANTS:
            done = speculative(
                pair.target, DraftModel(pair.draft), prompt, 32, 3, bonus, formulation=formulation
            )
            assert done.tokens == expected and done.acceptance == 1


def test_an_acceptance_rule_is_ten_lines(tiny_pair: Pair) -> None:
    """Another rule plugs in: one that takes every proposal commits the draft's text, round for round."""

    class All(Acceptance):
        def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
            tokens = torch.cat((proposals, logits.argmax(-1)[-1:]))
            return Decision(torch.tensor(proposals.shape[0]), tokens)

    draft = autoregressive(tiny_pair.draft, PROMPT, 16).tokens
    done = speculative(
        tiny_pair.target, DraftModel(tiny_pair.draft), PROMPT, 16, 4, False, All(), "reference"
    )
    assert done.tokens == draft and done.acceptance == 1 and len(done.rounds) == 4


@variants
def test_the_trace_shows_what_the_engine_did(formulation: str, bonus: bool, tiny_pair: Pair) -> None:
    rounds = watch_rounds(
        tiny_pair.target, tiny_pair.draft, PROMPT, NEW, k=4, bonus=bonus, formulation=formulation
    )
    assert [token for r in rounds for token in r["emitted"]] == list(output_of("llama"))
    for r in rounds:
        same = [p == c for p, c in zip(r["proposals"], r["choices"], strict=False)]
        stand = same.index(False) if False in same else len(same)
        assert r["accepted"] == stand and len(r["choices"]) == len(r["proposals"]) + 1
        assert "verified" in r or r is rounds[-1], "behind the last token nothing is rolled back"
        if "verified" in r:
            block = len(r["pending"]) + len(r["proposals"])
            assert r["verified"]["target"] == r["start"]["target"] + block
    assert rounds[-1]["end"] is None and rounds[0]["start"] == {"target": len(PROMPT), "draft": len(PROMPT)}


def test_runs_repeat_from_one_prefill(tiny_pair: Pair) -> None:
    """Repeats decode from the same state: a prefill is rewound, whatever the run before left behind."""
    start = Prefilled.compute(tiny_pair.target, PROMPT, NEW)
    draft = DraftModel(tiny_pair.draft, Prefilled.compute(tiny_pair.draft, PROMPT, NEW))
    runs = [
        speculative(tiny_pair.target, draft, PROMPT, NEW, 4, bonus, formulation=formulation, prefilled=start)
        for formulation, bonus in VARIANTS * 2
    ]
    again = [(r.tokens, r.rounds, r.target_calls, r.draft_calls) for r in runs]
    assert again[:4] == again[4:]


def test_a_proposer_is_one_method(tiny_pair: Pair) -> None:
    class Repeat(Proposer):
        def propose(self, k: int) -> list[int]:
            return [self.text[-1]] * k

    for formulation, bonus in VARIANTS:
        done = speculative(tiny_pair.target, Repeat(), PROMPT, NEW, 4, bonus, formulation=formulation)
        assert tuple(done.tokens) == output_of("llama")
