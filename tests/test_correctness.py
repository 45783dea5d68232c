"""The correctness rows: they pass for the engine as it is, and a fault of each layer turns them red."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from specdec_lib import correctness
from specdec_lib.acceptance import Acceptance, Decision
from specdec_lib.correctness import differing, forced, margin_rows, row, token_rows
from specdec_lib.decoding import autoregressive
from specdec_lib.model import DecoderModel
from specdec_lib.pairs import Pair, load_pair
from specdec_lib.prefilled import Prefilled
from specdec_lib.records import validate
from tests.engine_tools import PROMPT

BF16_MARGIN = 0.5


@pytest.fixture(scope="module")
def bf16_pair() -> Pair:
    return load_pair("tiny-llama", "cpu", "bf16")


def test_rows_fit_their_table(tiny_pair: Pair) -> None:
    rows = list(token_rows(tiny_pair, {"a": PROMPT, "b": PROMPT[:3]}, 12, (1, 4)))
    assert len(rows) == 2 * 2 * 2 * 2 and all(r["passed"] and r["value"] == 0 for r in rows)
    table = pd.DataFrame(rows).assign(profile="toy", design_hash="0" * 16)
    assert len(validate(table, "correctness")) == len(rows)


def test_a_token_that_differs_is_counted(tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """An acceptance rule that lets one proposal too many pass."""

    class Lenient(Acceptance):
        def __call__(self, proposals: torch.Tensor, logits: torch.Tensor, position: int) -> Decision:
            return Decision(torch.tensor(proposals.shape[0]), torch.cat((proposals, logits[-1:].argmax(-1))))

    monkeypatch.setattr("specdec_lib.decoding.Greedy", Lenient)
    rows = list(token_rows(tiny_pair, {"a": PROMPT}, 12, (4,)))
    assert not any(r["passed"] for r in rows) and all(r["value"] > 0 for r in rows)


def test_against_transformers(tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    ar = autoregressive(tiny_pair.target, PROMPT, 12).tokens
    for theirs, differ in ((ar, 0), ([*ar[:5], ar[5] + 1, *ar[6:]], 1)):
        monkeypatch.setattr(correctness, "transformers_greedy", lambda *_, theirs=theirs: theirs)
        first = next(iter(token_rows(tiny_pair, {"a": PROMPT}, 12, (4,), reference=object())))
        assert first["check"] == "tokens, AR against transformers"
        assert first["value"] == differ and first["passed"] is (differ == 0)


@pytest.mark.parametrize(
    ("tokens", "against", "differ"),
    [([1, 2], [1, 2], 0), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([1, 2, 3], [2], 3), ([], [], 0)],
)
def test_differing(tokens: list[int], against: list[int], differ: int) -> None:
    assert differing(tokens, against) == differ


def test_a_value_at_the_limit_passes_and_nan_does_not() -> None:
    assert row("s", "c", "fp32", 1.0, 1.0, "llama")["passed"]
    assert not row("s", "c", "fp32", 1.1, 1.0, "llama")["passed"]
    assert not row("s", "c", "fp32", float("nan"), 1.0, "llama")["passed"]


def test_the_margin_rule_in_bf16(bf16_pair: Pair) -> None:
    """Tokens need not be equal in BF16; each must be the M = 1 argmax or a near-tie under teacher forcing."""
    rows = list(margin_rows(bf16_pair, {"a": PROMPT, "b": PROMPT[:4]}, 24, 4, BF16_MARGIN))
    assert len(rows) == 2 * 3 and all(r["passed"] for r in rows), rows
    assert {r["dtype"] for r in rows} == {"bf16"}


@pytest.mark.parametrize("position", [0, 1, 11])
def test_the_margin_rule_sees_one_wrong_token(
    position: int, bf16_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large-margin flip is a fault, however rare: one token exchanged for its logits' smallest."""
    speculative = correctness.speculative

    def flipped(*arguments: Any, **options: Any) -> Any:
        done = speculative(*arguments, **options)
        start = Prefilled.compute(bf16_pair.target, PROMPT, 12)
        logits = forced(bf16_pair.target, start, PROMPT, done.tokens, 1)
        done.tokens[position] = int(logits[position].argmin())
        return done

    monkeypatch.setattr(correctness, "speculative", flipped)
    rows = [
        r for r in margin_rows(bf16_pair, {"a": PROMPT}, 12, 4, BF16_MARGIN) if r["check"] == "margin rule"
    ]
    assert rows and not any(r["passed"] for r in rows)


@pytest.mark.parametrize("width", [1, 2, 5, 40])
def test_teacher_forcing_predicts_each_token_from_those_before(width: int, tiny_pair: Pair) -> None:
    tokens = autoregressive(tiny_pair.target, PROMPT, 12).tokens
    start = Prefilled.compute(tiny_pair.target, PROMPT, 12)
    logits = forced(tiny_pair.target, start, PROMPT, tokens, width)
    assert logits.shape == (12, tiny_pair.target.config.vocab)
    assert logits.argmax(-1).tolist() == tokens
    whole = tiny_pair.target.forward(torch.tensor(PROMPT + tokens), tiny_pair.target.new_cache(24))
    assert torch.allclose(logits, whole[len(PROMPT) - 1 : -1], atol=1e-3)


def test_a_wrong_forward_shows_in_the_logit_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer's norm slightly off is far above 1e-4 of the largest logit."""
    init = DecoderModel.__init__

    def off(self: DecoderModel, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self.layers[1].norm_mlp = self.layers[1].norm_mlp * 1.01

    monkeypatch.setattr(DecoderModel, "__init__", off)
    assert not any(r["passed"] for r in correctness.logit_rows("llama", prompt=6, rows=3))


def test_smol_in_bf16_and_fp32_on_a_short_prompt(smol_folder: Path) -> None:
    """Real weights: FP32 tokens equal, BF16 within the margin."""
    for dtype in ("fp32", "bf16"):
        pair = load_pair("smol", "cpu", dtype)
        prompt = pair.tokenizer.encode("Speculative decoding drafts a few tokens with a small model and")
        if dtype == "fp32":
            rows = list(token_rows(pair, {"short": prompt}, 12, (4,)))
        else:
            rows = list(margin_rows(pair, {"short": prompt}, 12, 4, BF16_MARGIN))
        assert rows and all(r["passed"] for r in rows), rows
