"""Statistics on data whose answers are known, and the symmetries that every estimate must have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from specdec_lib.design import Interval, Method
from specdec_lib.errors import InvalidSetting
from specdec_lib.stats import (
    acceptance_from_alpha,
    alpha_from_acceptance,
    estimate,
    expected_tokens_per_round,
    family_interval,
    geometric_mean,
    paired_ratios,
    robust_cv,
    robust_slope,
    verdict,
)

METHODS: list[Method] = ["percentile", "bca", "t-log"]
SKEWED = [0.42, 0.45, 0.47, 0.5, 0.51, 0.52, 0.55, 0.9]
times = st.lists(st.floats(0.1, 10), min_size=4, max_size=12)


def plan_of(method: Method = "bca", level: float = 0.95) -> Interval:
    return Interval(method=method, level=level, resamples=400, seed=3, min_families=4, min_repeats=3)


def test_the_geometric_mean_of_known_ratios() -> None:
    assert geometric_mean(paired_ratios([2.0, 8.0], [1.0, 2.0])) == pytest.approx(math.sqrt(8))
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def test_t_on_logs_is_the_textbook_interval() -> None:
    logs = np.log(SKEWED)
    half = 2.364624 * logs.std(ddof=1) / math.sqrt(8)  # t, 7 degrees of freedom, 97.5 %
    low, high = family_interval(SKEWED, plan_of("t-log"))
    assert (math.log(low), math.log(high)) == pytest.approx(
        (logs.mean() - half, logs.mean() + half), rel=1e-6
    )


def test_the_percentile_bootstrap_is_near_the_exact_one() -> None:
    # Two values, n = 4: the mean of log R over resamples is binomial, so the exact quantiles are known.
    ratios = [math.exp(-1), math.exp(-1), math.exp(1), math.exp(1)]
    exact = (2 * scipy_stats.binom.ppf([0.05, 0.95], 4, 0.5) - 4) / 4
    found = np.log(family_interval(ratios, plan_of("percentile", 0.9)))
    assert found == pytest.approx(exact)


def test_bca_moves_with_the_skew_and_percentile_is_scipys() -> None:
    percentile, bca = (np.log(family_interval(SKEWED, plan_of(method))) for method in ("percentile", "bca"))
    assert np.all(bca > percentile)  # the long tail is to the right
    rng = np.random.default_rng(3)
    direct = scipy_stats.bootstrap((np.log(SKEWED),), np.mean, n_resamples=400, method="BCa", rng=rng)
    assert bca == pytest.approx([direct.confidence_interval.low, direct.confidence_interval.high], rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(times, st.floats(0.1, 10), st.sampled_from(METHODS))
def test_scaling_the_spec_times_scales_everything_inversely(
    spec: list[float], s: float, method: Method
) -> None:
    ar = [2.0] * len(spec)
    before = estimate(paired_ratios(ar, spec), plan_of(method))
    after = estimate(paired_ratios(ar, [t * s for t in spec]), plan_of(method))
    for name in ("R_GM", "low", "high"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) / s, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    times.flatmap(lambda ratios: st.tuples(st.just(ratios), st.permutations(ratios))),
    st.sampled_from(METHODS),
)
def test_the_order_of_families_does_not_matter(pair: tuple[list[float], list[float]], method: Method) -> None:
    one, other = (estimate(ratios, plan_of(method)) for ratios in pair)
    assert (one.low, one.high, one.verdict) == (other.low, other.high, other.verdict)
    assert pytest.approx(other.R_GM) == one.R_GM


@settings(max_examples=25, deadline=None)
@given(times, st.sampled_from(METHODS))
def test_an_interval_is_ordered_and_finite(ratios: list[float], method: Method) -> None:
    low, high = family_interval(ratios, plan_of(method))
    assert 0 < low <= high < math.inf


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.5, 1.0, 0.1 + 0.2])
def test_equal_ratios_collapse_to_the_point(method: Method, value: float) -> None:
    result = estimate([value] * 3 + [value * (1 - 1e-15)], plan_of(method))
    assert result.low == result.high == pytest.approx(value)
    assert estimate([1.0] * 4, plan_of(method)).verdict == "undecided"


def test_too_few_families_or_repeats_give_no_interval() -> None:
    few = estimate([0.5, 0.6, 0.7], plan_of())
    assert (few.n, few.low, few.high, few.verdict, few.method) == (3, None, None, "no interval", None)
    assert pytest.approx(0.21 ** (1 / 3)) == few.R_GM
    assert estimate([0.5, 0.6, 0.7, 0.8], plan_of(), repeats=2).verdict == "no interval"
    assert estimate([0.5, 0.6, 0.7, 0.8], plan_of(), repeats=3).verdict == "does not"
    assert estimate([], plan_of()).R_GM is None


def test_the_verdict_rule() -> None:
    cases = [(1.01, 2.0), (0.5, 0.99), (0.9, 1.1), (1.0, 1.2), (0.8, 1.0), (None, None)]
    expected = ["pays", "does not", "undecided", "undecided", "undecided", "no interval"]
    assert [verdict(*bounds) for bounds in cases] == expected


@pytest.mark.parametrize("wrong", [[], [1.0, 0.0], [1.0, -2.0], [1.0, math.nan], [1.0, math.inf]])
def test_times_that_cannot_be_are_named(wrong: list[float]) -> None:
    with pytest.raises(InvalidSetting, match="positive and finite"):
        geometric_mean(wrong)


def test_arms_of_different_length_are_named() -> None:
    with pytest.raises(InvalidSetting, match="2 AR times against 1"):
        paired_ratios([1.0, 2.0], [1.0])


def test_published_acceptance_is_these_alphas() -> None:
    found = [alpha_from_acceptance(acceptance, 4) for acceptance in (0.54, 0.52, 0.49)]
    assert found == pytest.approx([0.77, 0.755, 0.735], abs=0.003)
    assert 64 / expected_tokens_per_round(0.77, 4) == pytest.approx(23, abs=0.5)
    assert 64 / expected_tokens_per_round(0.54, 4) == pytest.approx(32, abs=0.5)


@given(st.floats(0, 1), st.integers(1, 16))
def test_alpha_and_acceptance_invert_each_other(alpha: float, k: int) -> None:
    assert alpha_from_acceptance(acceptance_from_alpha(alpha, k), k) == pytest.approx(alpha, abs=1e-9)


@given(st.floats(0.01, 0.99), st.integers(1, 16), st.booleans())
def test_the_closed_forms(alpha: float, k: int, bonus: bool) -> None:
    assert acceptance_from_alpha(alpha, k) == pytest.approx(alpha * (1 - alpha**k) / (k * (1 - alpha)))
    tokens = (1 - alpha ** (k + bonus)) / (1 - alpha)
    assert expected_tokens_per_round(alpha, k, bonus) == pytest.approx(tokens)


def test_all_accepted_and_none() -> None:
    assert [expected_tokens_per_round(1.0, 4, bonus) for bonus in (False, True)] == [4, 5]
    assert [expected_tokens_per_round(0.0, 4, bonus) for bonus in (False, True)] == [1, 1]
    assert [alpha_from_acceptance(a, 4) for a in (0.0, 1.0)] == [0.0, 1.0]


@pytest.mark.parametrize(("value", "k"), [(-0.1, 4), (1.1, 4), (math.nan, 4), (0.5, 0)])
def test_no_probability_or_no_k_is_named(value: float, k: int) -> None:
    for function in (alpha_from_acceptance, acceptance_from_alpha, expected_tokens_per_round):
        with pytest.raises(InvalidSetting):
            function(value, k)


def test_robust_cv_ignores_one_outlier_and_is_the_cv_of_normal_data() -> None:
    assert robust_cv([1.0, 1.1, 0.9, 1.0, 50.0]) == pytest.approx(1.4826 * 0.1, rel=1e-4)
    normal = np.random.default_rng(0).normal(10, 0.5, 20001)
    assert robust_cv(normal) == pytest.approx(0.05, rel=0.03)


def test_robust_slope_is_the_drift_over_the_series() -> None:
    assert robust_slope([1.0, 1.1, 1.2, 1.3, 1.4]) == pytest.approx(0.1 * 5 / 1.2)
    assert robust_slope([1.0, 1.0, 9.0, 1.0, 1.0]) == 0.0
    assert robust_slope([1.4, 1.3, 1.2, 1.1, 1.0]) == pytest.approx(-0.1 * 5 / 1.2)
    with pytest.raises(InvalidSetting):
        robust_slope([1.0])
