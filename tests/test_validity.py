"""Coverage of the intervals, limits from A/A runs, and R = 1 for an arm against itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from specdec_lib.analysis import families_table, summary_table
from specdec_lib.errors import InvalidSetting
from specdec_lib.validity import (
    DEFAULT_THRESHOLDS,
    bootstrap_bounds,
    bootstrap_means,
    choose_method,
    coverage_table,
    t_bounds,
    thresholds_from_aa,
)
from tests.synthetic_runs import DESIGN, make_runs


@pytest.mark.parametrize("method", ["percentile", "BCa"])
@pytest.mark.parametrize("n", [4, 16])
def test_the_fast_bootstrap_is_scipys_on_the_same_resamples(method: str, n: int) -> None:
    samples = np.random.default_rng(n).gamma(2.0, size=(5, n))  # skewed, so that BCa differs from percentile
    for sample in samples:
        theirs = scipy_stats.bootstrap((sample,), np.mean, n_resamples=999, method=method, rng=1)
        ours = bootstrap_bounds(sample[None], theirs.bootstrap_distribution[None], 0.95, method.lower())[0]
        assert ours == pytest.approx([theirs.confidence_interval.low, theirs.confidence_interval.high])


def test_resampled_means_have_the_right_law() -> None:
    logs = np.random.default_rng(0).normal(size=(3, 8))
    means = bootstrap_means(logs, 20_000, np.random.default_rng(1))
    assert means.shape == (3, 20_000)
    assert means.mean(axis=1) == pytest.approx(logs.mean(axis=1), abs=0.01)
    assert means.std(axis=1) == pytest.approx(logs.std(axis=1) / np.sqrt(8), rel=0.02)


def test_t_bounds_are_scipys() -> None:
    logs = np.random.default_rng(0).normal(size=(3, 8))
    theirs = scipy_stats.ttest_1samp(logs, 0, axis=1).confidence_interval(0.9)
    assert pytest.approx(np.array([theirs.low, theirs.high])) == t_bounds(logs, 0.9).T


def test_t_on_logs_covers_and_the_bootstrap_of_four_families_does_not() -> None:
    table: Any = coverage_table(replications=1500, resamples=600)
    found = table.set_index(["families_n", "method"])
    for n in (4, 16):
        row = found.loc[(n, "t-log")]
        assert row["coverage"] == pytest.approx(0.95, abs=4 * row["coverage_error"])
    for method in ("percentile", "bca"):
        assert found.loc[(4, method), "coverage"] < 0.86
        assert 0.88 < found.loc[(16, method), "coverage"] < 0.95
    expected = 2 * scipy_stats.t.ppf(0.975, 15) * 0.3 / 4 * 0.983  # c4(16) sigma is the mean sample deviation
    assert found.loc[(16, "t-log"), "mean_width"] == pytest.approx(expected, rel=0.02)
    assert choose_method(table) == DESIGN.analysis.interval.method == "t-log"


def test_coverage_is_reproducible_and_free_of_sigma() -> None:
    one, same, wide = (
        coverage_table((8,), sigma=s, replications=100, resamples=200) for s in (0.2, 0.2, 0.4)
    )
    assert one.equals(same)
    assert one["coverage"].tolist() == wide["coverage"].tolist()
    assert (wide["mean_width"] / one["mean_width"]).tolist() == pytest.approx([2.0] * 3)
    with pytest.raises(InvalidSetting):
        coverage_table((1,), replications=10)


def test_the_rule_prefers_the_narrowest_that_covers() -> None:
    table = coverage_table((8,), replications=50, resamples=200)
    good = table.assign(coverage=[0.95, 0.97, 0.95], coverage_error=0.005, mean_width=[0.3, 0.2, 0.4])
    assert choose_method(good) == "bca"
    assert choose_method(good.assign(coverage=[0.95, 0.9, 0.95])) == "percentile"
    assert choose_method(good.assign(coverage=[0.8, 0.7, 0.85])) == "t-log"


def aa_families(noise: float) -> Any:
    runs = make_runs(ratio=1.0, noise=noise, seed=4, arms=("ar", "ar-again"))
    return families_table(runs, DESIGN, arms=("ar", "ar-again"))


def test_an_arm_against_itself_gives_one() -> None:
    families = aa_families(0.01)
    assert families["acceptance"].isna().all()
    for row in summary_table(families, DESIGN).to_dict("records"):
        assert row["low"] < 1 < row["high"] and row["verdict"] == "undecided"


def test_thresholds_follow_the_noise_within_bounds() -> None:
    families = aa_families(0.0)
    values = np.linspace(0.001, 0.048, 48)
    families = families.assign(dispersion_value=values, stationary_value=0.5, order_value=0.0)
    found: Any = thresholds_from_aa(families, "cpu").set_index("check")
    assert found.loc["dispersion", "observed"] == values[45]  # 95 % of 48 cells: the 46th
    assert found.loc["dispersion", "threshold"] == 0.05  # 0.046, up to half a per cent
    assert found.loc["stationary", "threshold"] == 0.10  # at most twice the default
    assert found.loc["order", "threshold"] == 0.025  # at least half of it
    assert found.loc["undisturbed", "threshold"] == 0.025 and found["cells_n"].tolist() == [48] * 4


def test_a_value_on_the_grid_is_not_rounded_up() -> None:
    families = aa_families(0.0).assign(dispersion_value=0.035, order_value=0.0301)
    found: Any = thresholds_from_aa(families, "cpu").set_index("check")
    assert found.loc["dispersion", "threshold"] == 0.035 and found.loc["order", "threshold"] == 0.035


def test_a_check_that_no_cell_could_compute_keeps_its_default() -> None:
    families = aa_families(0.0).assign(order_value=np.nan)
    found: Any = thresholds_from_aa(families, "gpu").set_index("check")
    assert found.loc["order", "threshold"] == DEFAULT_THRESHOLDS["gpu"].order
    assert found.loc["order", "cells_n"] == 0 and np.isnan(found.loc["order", "observed"])
    with pytest.raises(InvalidSetting):
        thresholds_from_aa(families, "tpu")
