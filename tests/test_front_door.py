"""The names readers rely on, and what they refuse: a named error with a remedy, before any forward runs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import specdec_lib
from specdec_lib import decoding, errors
from specdec_lib.acceptance import Acceptance, Decision, Greedy, Imposed, Recorded
from specdec_lib.cache import KVCache
from specdec_lib.config import ModelConfig
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.design import load_design
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import Pair, load_pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftFree, DraftModel, ForcedDraft, Proposer, Scripted
from specdec_lib.protocol import FORMULATIONS
from specdec_lib.weights import RandomWeights, random_weights
from tests.engine_tools import PROMPT, counted

ROOT = Path(__file__).parent.parent


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fails the test if a model runs a forward while it is refused."""
    with counted(monkeypatch) as seen:
        yield
        assert seen.rows == []


def refused(error: type[errors.SpecDecError], mention: str, call: Any) -> None:
    with pytest.raises(error) as raised:
        call()
    assert mention in str(raised.value)
    assert raised.value.expected and raised.value.remedy, "what was expected, and what to do"


PROMPTS = [
    ([], "empty"), ([5, 320], "320"), ([5, -1], "-1"), ([True, 5], "True"), ([1.0], "1.0"), (["5"], "'5'"),
    (None, "None"), (5.5, "5.5"), ([None], "None"), (torch.tensor([1, 2]), "tensor"), ("text", "tokenizer"),
    (5, "int"), (b"ab", "bytes"), (bytearray(b"ab"), "bytearray"), ({1, 2}, "set"),
]  # fmt: skip


@pytest.mark.parametrize(("prompt", "mention"), PROMPTS, ids=[str(mention) for _, mention in PROMPTS])
def test_prompts(prompt: Any, mention: str, tiny_pair: Pair, nothing_runs: None) -> None:
    target = tiny_pair.target
    if prompt == "text":
        target = DecoderModel(
            target.config, random_weights(target.config, RandomWeights(0), torch.device("cpu"))
        )
    refused(errors.InvalidPrompt, mention, lambda: autoregressive(target, prompt, 4))
    refused(errors.InvalidPrompt, mention, lambda: speculative(target, Scripted([]), prompt, 4))


def test_the_remedy_for_numbers_that_are_no_plain_ints(tiny_pair: Pair, nothing_runs: None) -> None:
    prompts: list[Any] = [[np.int64(1), np.int64(2)], [torch.tensor(1)]]
    for prompt in prompts:
        refused(errors.InvalidPrompt, "plain ints", lambda p=prompt: autoregressive(tiny_pair.target, p, 4))
    refused(errors.InvalidPrompt, "own tokenizer", lambda: autoregressive(tiny_pair.target, [320], 4))


def test_half_a_character(tiny_pair: Pair, nothing_runs: None) -> None:
    refused(errors.InvalidPrompt, "position 2", lambda: autoregressive(tiny_pair.target, "ab\ud800", 4))


@pytest.mark.parametrize(
    ("prompt", "mention"), PROMPTS[:-5], ids=[str(mention) for _, mention in PROMPTS[:-5]]
)
def test_prompts_of_a_prefill(prompt: Any, mention: str, tiny_pair: Pair, nothing_runs: None) -> None:
    refused(errors.InvalidPrompt, mention, lambda: Prefilled.compute(tiny_pair.target, prompt, 4))


@pytest.mark.parametrize("count", [0, -1, 1.5, "4", None, True, []], ids=str)
def test_new_tokens_of_a_prefill(count: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    refused(
        errors.InvalidSetting, "max_new_tokens", lambda: Prefilled.compute(tiny_pair.target, PROMPT, count)
    )


def test_a_prefill_of_a_text(tiny_pair: Pair) -> None:
    text = "What a target verifies"
    start = Prefilled.compute(tiny_pair.target, text, 4)
    assert autoregressive(tiny_pair.target, text, 4, prefilled=start).prefill_seconds == start.seconds


def test_an_empty_text(tiny_pair: Pair, nothing_runs: None) -> None:
    refused(errors.InvalidPrompt, "empty", lambda: autoregressive(tiny_pair.target, "", 4))


@pytest.mark.parametrize("count", [0, -1, 1.5, "4", None, True])
def test_new_tokens(count: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    refused(errors.InvalidSetting, "max_new_tokens", lambda: autoregressive(tiny_pair.target, PROMPT, count))
    refused(
        errors.InvalidSetting,
        "max_new_tokens",
        lambda: speculative(tiny_pair.target, Scripted([]), PROMPT, count),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("k", -1), ("k", 1.5), ("k", True), ("k", "4"), ("bonus", 2), ("bonus", "no"), ("bonus", None),
     ("formulation", "refrence"), ("formulation", None), ("eos", "</s>"), ("eos", -1), ("eos", [2, None]),
     ("eos", True), ("eos", 320), ("eos", [2, 320]), ("eos", torch.tensor(2)), ("eos", torch.tensor([2])),
     ("eos", itertools.count())],
)  # fmt: skip
def test_settings(name: str, value: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    draft = DraftModel(tiny_pair.draft)
    refused(
        errors.InvalidSetting, name, lambda: speculative(tiny_pair.target, draft, PROMPT, 4, **{name: value})
    )


def test_a_misspelt_setting(tiny_pair: Pair, nothing_runs: None) -> None:
    with pytest.raises(TypeError, match="formulaton"):
        speculative(tiny_pair.target, Scripted([]), PROMPT, 4, formulaton="reference")  # type: ignore[call-arg]


def small(config: ModelConfig, **changes: Any) -> DecoderModel:
    config = replace(config, **changes)
    return DecoderModel(config, random_weights(config, RandomWeights(0), torch.device("cpu")), name="small")


def test_positions(tiny_pair: Pair, nothing_runs: None) -> None:
    """Of the target, and of a draft that has fewer: known before either model has run."""
    few = small(tiny_pair.target.config, max_positions=len(PROMPT) + 3)
    refused(errors.ContextTooLong, "12 prompt + 4 new", lambda: autoregressive(few, PROMPT, 4))
    refused(errors.ContextTooLong, "small", lambda: speculative(few, DraftModel(tiny_pair.draft), PROMPT, 4))
    refused(errors.ContextTooLong, "small", lambda: speculative(tiny_pair.target, DraftModel(few), PROMPT, 4))


def test_the_last_position_may_be_used(tiny_pair: Pair) -> None:
    few = small(tiny_pair.target.config, max_positions=len(PROMPT) + 3)
    assert len(autoregressive(few, PROMPT, 3).tokens) == 3
    assert len(speculative(few, DraftModel(few), PROMPT, 3).tokens) == 3


@pytest.mark.parametrize("vocab", [319, 384])
def test_vocabularies(vocab: int, tiny_pair: Pair, nothing_runs: None) -> None:
    """Larger or smaller: another number of ids is another vocabulary."""
    draft = DraftModel(small(tiny_pair.draft.config, vocab=vocab))
    refused(errors.VocabularyMismatch, str(vocab), lambda: speculative(tiny_pair.target, draft, PROMPT, 4))


@pytest.mark.parametrize("ids", [[320, 1, 1, 1], [-1, 1, 1, 1]])
def test_a_proposed_id_that_the_target_lacks(ids: list[int], tiny_pair: Pair) -> None:
    refused(
        errors.InvalidSetting, "the proposer returned",
        lambda: speculative(tiny_pair.target, Scripted(lambda at, k: ids[:k]), PROMPT, 4),
    )  # fmt: skip


def test_more_proposals_than_asked_for(tiny_pair: Pair) -> None:
    refused(
        errors.InvalidSetting, "at most 2",
        lambda: speculative(tiny_pair.target, Scripted(lambda at, k: [1] * (k + 1)), PROMPT, 9, k=2),
    )  # fmt: skip


def test_a_script_that_ends(tiny_pair: Pair) -> None:
    refused(
        errors.InvalidSetting, "script", lambda: speculative(tiny_pair.target, Scripted([1, 2]), PROMPT, 9)
    )


PROPOSED = [
    torch.tensor([1.5]),
    torch.tensor([[1]]),
    torch.tensor([1], dtype=torch.int32),
    torch.tensor([1], device="meta"),
]


@pytest.mark.parametrize(
    "proposed", PROPOSED, ids=[f"{p.dtype} {list(p.shape)} {p.device}" for p in PROPOSED]
)
def test_a_proposed_tensor_of_another_kind(proposed: torch.Tensor, tiny_pair: Pair) -> None:
    """On a GPU a wrong one ends in a device assert, which takes the process along."""
    refused(
        errors.InvalidSetting, "the proposer returned a tensor",
        lambda: speculative(tiny_pair.target, Scripted(lambda at, k: proposed), PROMPT, 4),  # type: ignore[arg-type,return-value]
    )  # fmt: skip


def test_scripts_and_traces_hold_ids_and_bools(tiny_pair: Pair) -> None:
    target = tiny_pair.target
    refused(errors.InvalidSetting, "1.5", lambda: speculative(target, Scripted([1.5] * 8), PROMPT, 4))  # type: ignore[list-item]
    refused(errors.InvalidSetting, "'a'", lambda: DraftFree(["a"]))  # type: ignore[list-item]
    refused(errors.InvalidSetting, "-1", lambda: DraftFree([-1]))
    refused(errors.InvalidSetting, "320", lambda: speculative(target, DraftFree([320] * 4), PROMPT, 4))
    for tokens, passes, mention in (([1] * 4, [1] * 4, "no bool"), ([1.0] * 4, [True] * 4, "no id")):
        rule: Any = Imposed(tokens, passes)  # type: ignore[arg-type]
        refused(
            errors.InvalidSetting, mention,
            lambda rule=rule: speculative(target, DraftFree([1] * 4), PROMPT, 4, acceptance=rule),
        )  # fmt: skip


@pytest.mark.parametrize("given", [None, 5, "text", torch.tensor(1)], ids=str)
def test_scripts_and_traces_that_are_no_lists(given: Any, nothing_runs: None, tiny_pair: Pair) -> None:
    bits = [True] * 4
    for call in (
        lambda: Imposed(given, bits), lambda: Imposed([1] * 4, given), lambda: Scripted(given),
        lambda: DraftFree(given), lambda: ForcedDraft(tiny_pair.draft, given, bits),
        lambda: ForcedDraft(tiny_pair.draft, [1] * 4, given),
    ):  # fmt: skip
        refused(errors.InvalidSetting, f"is a {type(given).__name__}", call)


@pytest.mark.parametrize("device", ["cuda:99", "cdua", 5.5], ids=str)
def test_a_recorded_text_on_a_device_that_is_none(device: Any) -> None:
    refused(errors.InvalidSetting, "device", lambda: DraftFree([1], device))


def test_no_agreement_before_a_run(tiny_pair: Pair) -> None:
    refused(errors.InvalidSetting, "did not propose", ForcedDraft(tiny_pair.draft, [1], [True]).agreement)


@pytest.mark.parametrize("proposed", [None, 5], ids=str)
def test_proposals_that_are_no_list(proposed: Any, tiny_pair: Pair) -> None:
    call = lambda: speculative(tiny_pair.target, Scripted(lambda at, k: proposed), PROMPT, 4)  # noqa: E731
    refused(errors.InvalidSetting, f"the proposer returned {proposed}", call)


@pytest.mark.parametrize("wrong", [320, -1])
def test_a_proposed_tensor_with_an_id_that_the_target_lacks(wrong: int, tiny_pair: Pair) -> None:
    tensor: Any = torch.tensor([1, wrong])
    call = lambda: speculative(tiny_pair.target, Scripted(lambda at, k: tensor), PROMPT, 4)  # noqa: E731
    refused(errors.InvalidSetting, "a token id that", call)


class Forgetful(Proposer):
    """Its begin does not call super's."""

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        pass

    def propose(self, k: int) -> list[int]:
        return [1] * k


def test_a_begin_of_ones_own_without_super(tiny_pair: Pair) -> None:
    refused(errors.InvalidSetting, "Forgetful", lambda: speculative(tiny_pair.target, Forgetful(), PROMPT, 9))


class Wrong(Acceptance):
    def __init__(self, decision: Any) -> None:
        self.decision = decision

    def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
        return self.decision


def ints(*values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


DECISIONS = {
    "none": None,
    "a count": 1,
    "a list": [1, [1, 2, 3]],
    "ints": (1, [1, 2, 3]),
    "a tensor": ints(1, 2),
    "three parts": (ints(1), ints(1, 2, 3), ints(1)),
    "a count of floats": Decision(torch.tensor(1.0), ints(1, 2, 3)),
    "tokens of int32": Decision(torch.tensor(1), ints(1, 2, 3, dtype=torch.int32)),
    "tokens in two dimensions": Decision(torch.tensor(1), ints([1, 2, 3])),
    "tokens without the target's": Decision(torch.tensor(1), ints(1, 2)),
    "two counts": Decision(ints(1, 1), ints(1, 2, 3)),
    "elsewhere": Decision(torch.tensor(1, device="meta"), ints(1, 2, 3)),
    "fewer than none": Decision(torch.tensor(-1), ints(1, 2, 3)),
    "more than proposed": Decision(torch.tensor(3), ints(1, 2, 3)),
    "an id too large": Decision(torch.tensor(1), ints(1, 320, 3)),
    "an id below 0": Decision(torch.tensor(1), ints(-1, 2, 3)),
}


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_wrong_decision_of_a_rule_of_ones_own(name: str, formulation: str, tiny_pair: Pair) -> None:
    draft, rule = DraftModel(tiny_pair.draft), Wrong(DECISIONS[name])
    refused(
        errors.InvalidSetting, "the acceptance rule",
        lambda: speculative(tiny_pair.target, draft, PROMPT, 9, 2, acceptance=rule, formulation=formulation),
    )  # fmt: skip


class Padded(Acceptance):
    """Refuses everything, commits 7, and pads with what is no id."""

    def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
        return Decision(torch.tensor(0), ints(7, *[-5, 999][: proposals.shape[0]]))


def test_tokens_behind_the_targets_own_are_padding(tiny_pair: Pair) -> None:
    """Anything may stand there: what no round commits is no token."""
    proposer = Scripted(lambda at, k: [1] * k)
    done = speculative(tiny_pair.target, proposer, PROMPT, 4, 2, acceptance=Padded())
    assert done.tokens == [7] * 4


@pytest.mark.parametrize("given", [5, "text", True], ids=str)
def test_what_is_no_prefill(given: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    target, draft = tiny_pair.target, DraftModel(tiny_pair.draft, given)
    refused(
        errors.InvalidSetting, "prefilled is a", lambda: autoregressive(target, PROMPT, 4, prefilled=given)
    )
    refused(errors.InvalidSetting, "prefilled is a", lambda: speculative(target, draft, PROMPT, 4))


@pytest.mark.parametrize(
    ("prompt", "count", "error"),
    [(None, 8, errors.InvalidPrompt), ([320], 8, errors.InvalidPrompt), (PROMPT, "8", errors.InvalidSetting),
     (PROMPT, -5, errors.InvalidSetting), (PROMPT, 10**15, errors.ContextTooLong)],
    ids=str,
)  # fmt: skip
def test_a_stored_prefill_is_asked_for_as_it_was_computed(
    prompt: Any, count: Any, error: type[errors.SpecDecError], tiny_pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "p.safetensors"
    Prefilled.compute(tiny_pair.target, "some text", 8).save(file)
    with pytest.raises(error):
        Prefilled.load(file, tiny_pair.target, prompt, count, seconds=0)
    assert Prefilled.load(file, tiny_pair.target, "some text", 8, seconds=0).length > 0


class Wrapped(Proposer):
    """A draft inside a proposer of one's own."""

    def __init__(self, inner: DraftModel) -> None:
        self.inner = inner

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        self.inner.begin(prompt, max_new_tokens)

    def propose(self, k: int) -> torch.Tensor:
        return self.inner.propose(k)

    def commit(self, accepted: int, tokens: torch.Tensor, known: list[int]) -> None:
        self.inner.commit(accepted, tokens, known)

    def catch_up(self, leave: int) -> None:
        self.inner.catch_up(leave)


class Masking(Acceptance):
    """Writes into the logits it is given."""

    def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
        logits[:, logits.argmax(-1)] = -1e9
        return Greedy()(proposals, logits, position)


def test_a_rule_that_writes_into_the_logits_leaves_the_prefill_as_it_was(tiny_pair: Pair) -> None:
    target = tiny_pair.target
    start = Prefilled.compute(target, PROMPT, 9)
    text = autoregressive(target, PROMPT, 9, prefilled=start).tokens
    for proposals in ([], [1]):
        proposer = Scripted(lambda at, k, p=proposals: p[:k])
        speculative(target, proposer, PROMPT, 3, acceptance=Masking(), prefilled=start)
    assert autoregressive(target, PROMPT, 9, prefilled=start).tokens == text


class Greeting(Proposer):
    """Changes the prompt it is given."""

    def begin(self, prompt: list[int], max_new_tokens: int) -> None:
        super().begin(prompt, max_new_tokens)
        prompt.insert(0, 1)

    def propose(self, k: int) -> list[int]:
        return []


def test_a_proposer_that_changes_its_prompt_changes_no_text(tiny_pair: Pair) -> None:
    text = autoregressive(tiny_pair.target, PROMPT, 4).tokens
    assert speculative(tiny_pair.target, Greeting(), PROMPT, 4).tokens == text


class LastWrong(Acceptance):
    """Greedy, but the last token of the run is no id: behind it nothing runs that would fail."""

    def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
        accepted, tokens = Greedy()(proposals, logits, position)
        return Decision(accepted, tokens if position < 3 else torch.full_like(tokens, -1))


def test_a_wrong_token_in_the_last_round_is_refused_too(tiny_pair: Pair) -> None:
    proposer = Scripted(lambda at, k: [])
    refused(
        errors.InvalidSetting, "commits [-1]",
        lambda: speculative(tiny_pair.target, proposer, PROMPT, 4, acceptance=LastWrong()),
    )  # fmt: skip


@pytest.mark.parametrize("rule", [None, Greedy, "greedy"], ids=str)
def test_what_is_no_rule_to_record(rule: Any) -> None:
    refused(errors.InvalidSetting, "the rule to record", lambda: Recorded(rule))


@pytest.mark.parametrize("name", DECISIONS)
def test_a_recorded_rule_is_checked_like_any_other(name: str, tiny_pair: Pair) -> None:
    rule = Recorded(Wrong(DECISIONS[name]))
    assert rule.rows() == []
    draft = DraftModel(tiny_pair.draft)
    refused(
        errors.InvalidSetting, "the acceptance rule",
        lambda: speculative(tiny_pair.target, draft, PROMPT, 9, 2, acceptance=rule),
    )  # fmt: skip


def test_counts_of_int32_and_prompts_from_an_iterator(tiny_pair: Pair) -> None:
    class Short(Acceptance):
        def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
            accepted, tokens = Greedy()(proposals, logits, position)
            return Decision(accepted.int(), tokens)

    draft = DraftModel(tiny_pair.draft)
    start: Any = iter
    text = autoregressive(tiny_pair.target, start(PROMPT), 9).tokens
    assert speculative(tiny_pair.target, draft, start(PROMPT), 9, acceptance=Short()).tokens == text


def test_one_prefill_for_target_and_draft(tiny_pair: Pair) -> None:
    """One model may play both parts, each with a cache of its own."""
    target = tiny_pair.target
    one, other = (Prefilled.compute(target, PROMPT, 9) for _ in range(2))
    refused(
        errors.CacheError, "were committed",
        lambda: speculative(target, DraftModel(target, one), PROMPT, 9, prefilled=one),
    )  # fmt: skip
    roomy = Prefilled.compute(target, PROMPT, 100)
    for formulation in FORMULATIONS:
        wrapped = Wrapped(DraftModel(target, roomy))
        refused(
            errors.CacheError, "were committed",
            lambda w=wrapped, f=formulation: speculative(target, w, PROMPT, 20, formulation=f, prefilled=roomy),
        )  # fmt: skip
    text = autoregressive(target, PROMPT, 9).tokens
    assert speculative(target, DraftModel(target, one), PROMPT, 9, prefilled=other).tokens == text


@pytest.mark.parametrize("at", [1, 5, 8])
def test_plain_decoding_beside_another_use_of_its_prefill(
    at: int, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's run appends to the same cache after the ``at``-th step, the last one included."""
    target, calls = tiny_pair.target, []
    forward = target.forward

    def disturbed(token: torch.Tensor, cache: KVCache) -> torch.Tensor:
        logits = forward(token, cache)
        calls.append(1)
        if len(calls) == at:
            forward(token, cache)
        return logits

    one = Prefilled.compute(target, PROMPT, 20)
    monkeypatch.setattr(target, "forward", disturbed)
    refused(errors.CacheError, "were committed", lambda: autoregressive(target, PROMPT, 9, prefilled=one))
    assert len(calls) == at, "in the step that shows it"


def test_stop_tokens_from_a_generator(tiny_pair: Pair) -> None:
    text = autoregressive(tiny_pair.target, PROMPT, 9).tokens
    done = autoregressive(tiny_pair.target, PROMPT, 9, (token for token in text[2:3]))
    assert done.tokens == text[: text.index(text[2]) + 1]


@pytest.mark.parametrize("given", [None, "pair", 4], ids=str)
def test_what_is_no_model(given: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    given = tiny_pair if given == "pair" else given
    refused(errors.InvalidSetting, "the draft is a", lambda: DraftModel(given))
    refused(errors.InvalidSetting, "the target is a", lambda: autoregressive(given, PROMPT, 4))
    refused(errors.InvalidSetting, "the target is a", lambda: speculative(given, Scripted([]), PROMPT, 4))


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, None], ids=str)
def test_chunks(chunk: Any, tiny_pair: Pair, nothing_runs: None) -> None:
    refused(errors.InvalidSetting, "chunk", lambda: Prefilled.compute(tiny_pair.target, PROMPT, 4, chunk))


def test_a_prefill_serves_its_own_model_and_prompt(tiny_pair: Pair) -> None:
    """The keys of another one fit in shape, and would give a wrong text without a sign of it."""
    target, twin = tiny_pair.target, load_pair("tiny").target
    start, other = Prefilled.compute(target, PROMPT, 4), [*PROMPT[:-1], PROMPT[-1] + 1]
    refused(errors.CacheError, "another prompt", lambda: autoregressive(target, other, 4, prefilled=start))
    refused(errors.CacheError, "another model", lambda: autoregressive(twin, PROMPT, 4, prefilled=start))
    draft = DraftModel(tiny_pair.draft, Prefilled.compute(tiny_pair.draft, other, 4))
    refused(errors.CacheError, "another prompt", lambda: speculative(target, draft, PROMPT, 4))


def test_a_prefill_of_another_length_or_without_room(tiny_pair: Pair) -> None:
    start = Prefilled.compute(tiny_pair.target, PROMPT, 4)
    refused(errors.CacheError, "12", lambda: autoregressive(tiny_pair.target, PROMPT[1:], 4, prefilled=start))
    refused(
        errors.ContextTooLong, "5 new", lambda: autoregressive(tiny_pair.target, PROMPT, 5, prefilled=start)
    )


def test_pairs_and_profiles() -> None:
    refused(errors.UnknownPair, "smoll", lambda: load_pair("smoll"))
    refused(
        errors.UnknownProfile, "did you mean 'cpu'", lambda: load_design(ROOT / "design.toml").profile("cpuu")
    )
    refused(errors.InvalidSetting, "fp16", lambda: load_pair("tiny", dtype="fp16"))


def test_text_prompts_and_both_arms(tiny_pair: Pair) -> None:
    text = "What a target verifies"
    ids = tiny_pair.tokenizer.encode(text)
    ar = specdec_lib.autoregressive(tiny_pair.target, text, 8)
    done = specdec_lib.speculative(tiny_pair.target, specdec_lib.DraftModel(tiny_pair.draft), text, 8)
    assert ar.tokens == done.tokens == autoregressive(tiny_pair.target, ids, 8).tokens


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_readme_s_example(
    dtype: str, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs, warms up before it times, and claims equal tokens in FP32 only."""
    code = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    ran: list[str] = []
    texts = {"autoregressive": [1, 2], "speculative": [1, 2] if dtype == "fp32" else [1, 3]}

    def arm(name: str) -> Any:
        def run(*given: Any, **more: Any) -> Any:
            ran.append(name)
            done = getattr(decoding, name)(*given, **more)
            return replace(done, tokens=texts[name])

        return run

    monkeypatch.setattr(specdec_lib, "load_pair", lambda name: replace(tiny_pair, dtype=dtype), raising=False)
    for name in texts:
        monkeypatch.setattr(specdec_lib, name, arm(name), raising=False)
    exec(code, {})
    assert ran == ["autoregressive", "speculative"] * 2 and "R = " in capsys.readouterr().out
    if dtype == "fp32":
        texts["speculative"] = [1, 3]
        with pytest.raises(AssertionError):
            exec(code, {})


def test_every_name_of_the_front_door() -> None:
    for name in specdec_lib.__all__:
        assert getattr(specdec_lib, name).__name__ == name
    assert specdec_lib.Prefilled is Prefilled, "a parameter of both arms and of DraftModel"
    with pytest.raises(AttributeError, match="sepculative"):
        _ = specdec_lib.sepculative  # type: ignore[attr-defined]


def test_completion_knows_the_front_door_before_it_is_used() -> None:
    code = (
        "import sys, specdec_lib\n"
        "missing = {*specdec_lib.__all__, '__version__', 'load_pair'} - set(dir(specdec_lib))\n"
        "sys.exit(str(missing or '') or ('torch' in sys.modules and 'torch was loaded') or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("modules", "absent"),
    [("errors", "torch pandas scipy"),
     ("stats, checks, analysis, records, costmodel", "torch"),
     ("design, jobs, study, measure, provenance", "torch transformers"),
     ("worker", "transformers pandas scipy")],
    ids=["front door", "statistics", "jobs and measure", "a job's process"],
)  # fmt: skip
def test_what_an_import_brings_along(modules: str, absent: str) -> None:
    """The report needs no torch; a measured process needs no transformers."""
    found = f"' '.join(set({absent.split()!r}) & set(sys.modules))"
    code = f"import sys; from specdec_lib import {modules}\nsys.exit({found} or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_bare_model_is_no_proposer(tiny_pair: Pair) -> None:
    with pytest.raises(errors.InvalidSetting, match=r"DraftModel\(model\)"):
        speculative(tiny_pair.target, tiny_pair.draft, [1, 2, 3], 4)  # pyright: ignore[reportArgumentType]
