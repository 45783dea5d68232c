"""The cost line: exact counts against every possible run, known limits, and the audit of the published
tables."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.costfit import t_interval
from specdec_lib.costmodel import (
    FORMULATIONS,
    audit,
    best_k,
    break_even_alpha,
    counts_from_trace,
    expected_counts,
    long_run_counts,
    predicted_R,
)
from specdec_lib.errors import InvalidSetting
from specdec_lib.records import read_table

PUBLISHED = Path(__file__).parent.parent / "data/published"


@pytest.fixture(scope="module")
def audited() -> dict[str, list[float]]:
    confirmatory = read_table(PUBLISHED / "confirmatory.csv", "published-confirmatory")
    phases = read_table(PUBLISHED / "phases.csv", "published-phases")
    return {str(name): list(column) for name, column in audit(confirmatory, phases).items()}


def one_run(bits: tuple[int, ...], k: int, formulation: str, bonus: bool) -> Counter[str]:
    """Counts of the run in which position i of the output is proposed rightly iff bits[i]; the engine, token
    by token.

    Written from the description of the two caches, with explicit cache lengths, not from the formulas under
    test.
    """
    n, counts = len(bits), Counter[str]()
    done = target = draft = 0  # committed tokens, and how many of them each cache holds
    while True:
        room = n - done
        limit = min(k, room - bonus)
        for i in range(limit):  # the draft runs what it has not seen, then proposes the next token
            if draft < done + i:
                counts["draft"] += 1
                draft = done + i
        rows = (done - target) + limit
        if rows:
            counts[f"rows {rows}"] += 1
        accepted = next((i for i in range(limit) if not bits[done + i]), limit)
        emitted = accepted + (1 if accepted < limit or bonus or limit == 0 else 0)
        counts += Counter(rounds=1, proposed=limit, accepted=accepted, rejections=int(accepted < limit))
        target, draft = done + accepted, min(draft, done + accepted)  # rejected tokens leave both caches
        done += emitted
        if done == n:
            return counts
        if formulation == "repair-free":
            target = done - 1
        elif accepted < limit:
            counts += Counter(repairs=1, draft=1)
            target = draft = done
        else:
            waiting = int(bonus)
            if draft < done - waiting:
                counts["draft"] += 1
                draft = done - waiting


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.77, 1.0])
def test_expected_counts_are_the_mean_over_every_possible_run(
    formulation: str, bonus: bool, k: int, alpha: float
) -> None:
    n = 9
    mean: Counter[str] = Counter()
    for bits in product((0, 1), repeat=n):
        weight = alpha ** sum(bits) * (1 - alpha) ** (n - sum(bits))
        for name, count in one_run(bits, k, formulation, bonus).items() if weight else ():
            mean[name] += weight * count  # pyright: ignore[reportArgumentType]
    found = expected_counts(alpha, k, n, formulation, bonus)
    shown = {
        "rounds": found.rounds, "proposed": found.proposed, "accepted": found.accepted, "draft":
        found.draft_forwards, "rejections": found.rejections, "repairs": found.repairs,
    } | {f"rows {rows}": count for rows, count in found.blocks.items()}  # fmt: skip
    assert {name: value for name, value in shown.items() if value} == pytest.approx(
        {name: value for name, value in mean.items() if value}
    )


@given(
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.integers(1, 8),
    st.sampled_from(FORMULATIONS),
    st.booleans(),
)
def test_a_trace_fixes_every_count(bits: list[bool], k: int, formulation: str, bonus: bool) -> None:
    found = counts_from_trace(bits, k, len(bits), formulation, bonus)
    expected = one_run(tuple(map(int, bits)), k, formulation, bonus)
    shown = {
        "rounds": found.rounds, "proposed": found.proposed, "accepted": found.accepted, "draft":
        found.draft_forwards, "rejections": found.rejections, "repairs": found.repairs,
    } | {f"rows {rows}": count for rows, count in found.blocks.items()}  # fmt: skip
    assert {name: value for name, value in shown.items() if value} == {
        name: value for name, value in expected.items() if value
    }


def test_a_trace_shorter_than_the_run_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="63 positions for a run of 64"):
        counts_from_trace([True] * 63, 4, 64)


@given(st.floats(0, 1), st.integers(1, 8), st.integers(2, 80), st.sampled_from(FORMULATIONS), st.booleans())
def test_the_identities_of_the_engine(alpha: float, k: int, n: int, formulation: str, bonus: bool) -> None:
    counts = expected_counts(alpha, k, n, formulation, bonus)
    plain = 0 if bonus else counts.rejections
    assert counts.accepted + (counts.rounds if bonus else plain) == pytest.approx(n)
    assert counts.accepted <= counts.proposed + 1e-9
    if formulation == "repair-free":
        assert counts.repairs == 0 and counts.target_calls <= counts.rounds + 1e-9


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("alpha", [0.2, 0.77])
def test_a_long_run_reaches_the_renewal_limit(formulation: str, bonus: bool, alpha: float) -> None:
    limit = long_run_counts(alpha, 4, formulation, bonus)
    short, long = (expected_counts(alpha, 4, n, formulation, bonus) for n in (4000, 8000))
    assert long.rounds - short.rounds == pytest.approx(4000 / limit.emitted)
    per_round = 1 / (long.rounds - short.rounds)
    for name in ("proposed", "accepted", "rejections", "draft_forwards", "repairs", "target_calls"):
        assert (getattr(long, name) - getattr(short, name)) * per_round == pytest.approx(getattr(limit, name))
    assert predicted_R(0.3, 1.1, 4, alpha, formulation, bonus, new_tokens=8000) == pytest.approx(
        predicted_R(0.3, 1.1, 4, alpha, formulation, bonus, new_tokens=None), rel=2e-3
    )


def test_runs_that_can_be_counted_by_hand() -> None:
    # k = 4, 64 tokens, all accepted: 16 rounds of 4 draft forwards, but the last round's d_4 is never run,
    # and in the first the draft's first proposal comes from its prefill: 16 x 3 + 15 catch-ups.
    all_accepted = expected_counts(1.0, 4, 64)
    assert (all_accepted.rounds, all_accepted.draft_forwards, all_accepted.repairs) == (16, 63, 0)
    assert all_accepted.blocks == {4: 16.0}
    assert predicted_R(0.0, 1.0, 4, 1.0) == pytest.approx(63 / 16)
    # With bonus 13 rounds: 12 of 5 tokens, the last of 3 + 1.
    bonus = expected_counts(1.0, 4, 64, "repair-free", bonus=True)
    assert bonus.rounds == 13 and bonus.blocks == {4: 2.0, 5: 11.0}
    # Nothing accepted: one token a round and a repair after each but the last.
    none = expected_counts(0.0, 4, 64)
    assert (none.rounds, none.repairs, none.target_calls) == (64, 63, 127)


def test_published_counts_of_rounds_and_calls() -> None:
    for alpha in (0.768, 0.753, 0.734):
        counts = expected_counts(alpha, 4, 64)
        assert 23 <= counts.rounds <= 25 and 37.5 <= counts.target_calls <= 41.5


def test_the_audit_is_the_studys_arithmetic(audited: dict[str, list[float]]) -> None:
    assert audited["v_steps"] == pytest.approx([1.10, 1.16, 1.17], abs=0.005)
    assert audited["c_steps"] == pytest.approx([0.88] * 3, abs=0.01)
    assert audited["alpha"] == pytest.approx([0.77, 0.755, 0.735], abs=0.003)
    assert audited["R_predicted"] == pytest.approx([0.530, 0.516, 0.492], abs=0.001)
    assert audited["R_published"] == [0.531, 0.485, 0.522]
    assert audited["rounds_n"] == pytest.approx([22.8, 23.2, 24.0], abs=0.05)
    assert audited["roofline_share"][0] == pytest.approx(0.30, abs=0.01)
    assert audited["ar_step_s"][0] == pytest.approx(0.0405, abs=1e-4)


def test_the_audit_of_the_bonus_row(audited: dict[str, list[float]]) -> None:
    pairs = zip(audited["c_steps"], audited["v_steps"], audited["R_bonus_predicted"], strict=True)
    assert all(pytest.approx(64 / (13 * (5 * c + v))) == R for c, v, R in pairs)
    assert audited["R_bonus_predicted"] == pytest.approx(audited["R_bonus_published"], abs=0.05)


def test_the_finite_prediction_is_a_little_lower(audited: dict[str, list[float]]) -> None:
    for long_run, finite in zip(audited["R_predicted"], audited["R_predicted_finite"], strict=True):
        assert finite == pytest.approx(long_run, abs=0.006) and finite < long_run


@given(st.floats(0.01, 1.0), st.floats(1.0, 2.0), st.integers(1, 8), st.floats(0.05, 0.95))
def test_more_acceptance_is_helps_and_more_cost_hurts(c: float, v: float, k: int, alpha: float) -> None:
    R = predicted_R(c, v, k, alpha)
    assert predicted_R(c, v, k, min(1.0, alpha + 0.05)) >= R - 1e-9
    dearer = [predicted_R(c + 0.1, v, k, alpha), predicted_R(c, v + 0.1, k, alpha)]
    dearer += [predicted_R(c, v, k, alpha, repair=1.2), predicted_R(c, v, k, alpha, overhead=0.1)]
    assert max(dearer) <= R


@given(st.floats(0.01, 0.6), st.floats(1.0, 1.5), st.integers(2, 8), st.sampled_from([64, None]))
def test_break_even_is_where_R_is_one(c: float, v: float, k: int, n: int | None) -> None:
    alpha = break_even_alpha(c, v, k, "repair-free", True, new_tokens=n)
    if alpha is None:
        assert predicted_R(c, v, k, 1.0, "repair-free", True, new_tokens=n) < 1
    elif alpha > 0:
        assert predicted_R(c, v, k, alpha, "repair-free", True, new_tokens=n) == pytest.approx(1)


def test_break_even_at_the_ends() -> None:
    assert break_even_alpha(0.887, 1.104, 4) is None  # the published pair: not even with every token accepted
    assert break_even_alpha(0.0, 0.5, 4, "repair-free", True) == 0.0


def test_best_k_follows_the_costs() -> None:
    assert best_k(1.0, 1.0, 0.5)[0] == 1
    free_k, free_R = best_k(0.0, 1.0, 0.9, "repair-free", True, new_tokens=None)
    assert free_k == 16 and free_R == pytest.approx((1 - 0.9**17) / 0.1)

    def steep(rows: int) -> float:
        return 1 + 0.5 * (rows - 1)

    k, R = best_k(0.1, steep, 0.7, "repair-free", True)
    assert k < best_k(0.1, 1.0, 0.7, "repair-free", True)[0]
    assert max(predicted_R(0.1, steep, each, 0.7, "repair-free", True) for each in range(1, 17)) == R


def test_v_may_depend_on_the_rows_of_the_block() -> None:
    assert predicted_R(0.2, lambda rows: 1.1, 4, 0.7) == pytest.approx(predicted_R(0.2, 1.1, 4, 0.7))
    assert predicted_R(0.2, lambda rows: 1 + rows / 100, 4, 0.7) > predicted_R(0.2, 1.04, 4, 0.7)


def test_bad_settings_are_named() -> None:
    with pytest.raises(InvalidSetting, match="reference or repair-free"):
        predicted_R(0.1, 1.0, 4, 0.5, "repairfree")
    with pytest.raises(InvalidSetting, match="at least 2"):
        predicted_R(0.1, 1.0, 4, 0.5, new_tokens=1)
    for alpha, k in ((1.2, 4), (0.5, 0)):
        for new_tokens in (64, None):
            with pytest.raises(InvalidSetting):
                predicted_R(0.1, 1.0, k, alpha, new_tokens=new_tokens)


def test_two_development_families_give_no_interval() -> None:
    assert t_interval([1.0, 3.0]) == (2.0, None, None)
    mean, low, high = t_interval([1.0, 2.0, 3.0])
    assert low is not None and high is not None
    expected = scipy.stats.t.interval(0.95, 2, loc=2.0, scale=1 / math.sqrt(3))
    assert (mean, low, high) == pytest.approx((2.0, *expected))
