"""The six timing checks: each fails on its own fault and on nothing else, and says when it cannot tell."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from specdec_lib.checks import CHECKS, Check, run_checks
from specdec_lib.design import CheckName, Thresholds
from tests.synthetic_runs import DESIGN, make_runs

FULL, QUICK = DESIGN.profile("cpu-full"), DESIGN.profile("cpu")
LIMITS = Thresholds(dispersion=0.05, stationary=0.05, order=0.05, undisturbed=0.05)


def cell(profile_name: str = "cpu-full", index: int = 0, **columns: Any) -> Any:
    """Runs of one (family, context) cell, without noise."""
    runs: Any = make_runs(profile_name, **columns)
    family = DESIGN.profile(profile_name).families[index]
    return runs[(runs["family"] == family) & (runs["context_tokens"] == 2048)].copy()


def failed(runs: Any, profile: Any = FULL) -> set[str]:
    return {name for name, check in run_checks(runs, LIMITS, profile).items() if check.passed is False}


def slow(runs: Any, factor: float, **where: Any) -> Any:
    """The runs with some decode times multiplied."""
    chosen = runs["decode_s"] > 0
    for column, value in where.items():
        chosen &= runs[column] == value
    runs.loc[chosen, "decode_s"] *= factor
    return runs


def test_the_table_of_checks_is_the_designs() -> None:
    assert tuple(CHECKS) == get_args(CheckName)


@pytest.mark.parametrize("index", [0, 1])
def test_a_clean_cell_passes_all_six(index: int) -> None:
    checks = run_checks(cell(index=index), LIMITS, FULL)
    assert all(check.passed is True for check in checks.values()), checks
    assert all(name == check.name and check.note for name, check in checks.items())


def test_small_noise_passes() -> None:
    assert failed(cell(noise=0.005, seed=1)) == set()


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda runs: runs[(runs["arm"] == "ar") | (runs["repeat"] != 3)], 0.9),
        (lambda runs: runs.assign(new_tokens=runs["new_tokens"].where(runs["repeat"] != 2, 63)), 0.8),
        (lambda runs: runs[runs["arm"] == "ar"], 0.5),
        (lambda runs: runs.assign(repeat=runs["repeat"].where(runs["repeat"] != 5, 4)), 0.8),
    ],
)
def test_missing_short_or_repeated_runs_are_incomplete(change: Any, share: float) -> None:
    check = run_checks(change(cell()), LIMITS, FULL)["complete"]
    assert check.passed is False and check.value == pytest.approx(share)
    assert f"{round(share * 10)} of 10" in check.note


def test_a_surplus_run_is_named() -> None:
    runs = cell()
    runs = runs.loc[[*runs.index, runs.index[0]]]
    check = run_checks(runs, LIMITS, FULL)["complete"]
    assert check.passed is False and "1 repeated" in check.note


def test_other_tokens_in_one_repeat_are_not_deterministic() -> None:
    runs = cell()
    runs.iloc[7, runs.columns.get_loc("tokens_sha256")] = "b" * 64
    assert failed(runs) == {"deterministic"}


def test_arms_may_differ_from_each_other() -> None:
    runs = cell()
    runs.loc[runs["arm"] == "spec", "tokens_sha256"] = "b" * 64
    assert failed(runs) == set()


def test_scattered_times_fail_dispersion_only() -> None:
    runs = cell()
    # Symmetric within each block (3 + 2) and over the repeats, so neither order nor drift is touched.
    for repeat, factor in zip(range(1, 6), (1.0, 0.9, 1.1, 1.1, 0.9), strict=True):
        runs = slow(runs, factor, arm="spec", repeat=repeat)
    check = run_checks(runs, LIMITS, FULL)["dispersion"]
    assert failed(runs) == {"dispersion"}
    assert check.value == pytest.approx(0.14826, rel=1e-3) and check.limit == LIMITS.dispersion


def test_drifting_times_fail_stationary() -> None:
    runs = cell()
    for repeat in range(1, 6):
        runs = slow(runs, 1 + 0.012 * (repeat - 3), arm="ar", repeat=repeat)
    assert failed(runs) == {"stationary"}
    assert run_checks(runs, LIMITS, FULL)["stationary"].value == pytest.approx(0.06)


def test_drift_follows_the_repeats_not_the_rows() -> None:
    runs = cell()
    for repeat in range(1, 6):
        runs = slow(runs, 1 + 0.012 * (repeat - 3), arm="ar", repeat=repeat)
    assert failed(runs.sample(frac=1, random_state=2)) == {"stationary"}


def test_blocks_that_disagree_fail_order() -> None:
    runs = slow(cell(), 1.06, arm="spec", block="BA")
    assert "order" in failed(runs)
    assert run_checks(runs, LIMITS, FULL)["order"].value == pytest.approx(0.06)
    assert "order" not in failed(slow(cell(), 1.04, arm="spec", block="BA"))


@pytest.mark.parametrize(("share", "passed"), [(0.05, True), (0.051, False)])
def test_load_by_others_in_any_one_run_disturbs(share: float, passed: bool) -> None:
    runs = cell()
    runs.iloc[3, runs.columns.get_loc("others_cpu_share")] = share
    check = run_checks(runs, LIMITS, FULL)["undisturbed"]
    assert check.passed is passed and check.value == share


def test_two_repeats_cannot_show_spread_drift_or_order() -> None:
    checks = run_checks(cell("cpu"), LIMITS, QUICK)
    unknown = {name for name, check in checks.items() if check.passed is None}
    assert unknown == {"dispersion", "stationary", "order"}
    assert all(checks[name].value is None and "not computed" in checks[name].note for name in unknown)
    assert {name for name, check in checks.items() if check.passed} == {
        "complete",
        "deterministic",
        "undisturbed",
    }


def test_one_repeat_cannot_show_determinism() -> None:
    runs = cell("cpu")
    check = run_checks(runs[runs["repeat"] == 1], LIMITS, QUICK)["deterministic"]
    assert check.passed is None


def gpu_check(**columns: Any) -> Check:
    runs = cell().assign(device="cuda:0", others_cpu_share=0.001, **columns)
    return run_checks(runs, DESIGN.analysis.thresholds("cuda"), FULL)["undisturbed"]


def test_a_gpu_needs_its_own_records() -> None:
    quiet: dict[str, Any] = {"throttled": False, "other_gpu_processes_n": 0}
    near = cell()["decode_s"] * 0.995
    assert gpu_check().passed is None and "not recorded" in gpu_check().note
    assert gpu_check(device_event_s=near, throttled=False, other_gpu_processes_n=None).passed is None
    assert gpu_check(device_event_s=near, **quiet).passed is True
    assert gpu_check(device_event_s=near * 0.98, **quiet).passed is False
    throttled = gpu_check(device_event_s=near, **quiet | {"throttled": True})
    assert throttled.passed is False and "throttled" in throttled.note
    crowded = gpu_check(device_event_s=near, **quiet | {"other_gpu_processes_n": 1})
    assert crowded.passed is False and "other GPU processes" in crowded.note


def test_on_a_gpu_ticks_are_no_load_and_load_is() -> None:
    """A run of 70 ms with one tick of 10 ms says 14 %; a tenth of a second of work by others is seen."""
    records: dict[str, Any] = {"throttled": False, "other_gpu_processes_n": 0, "device": "cuda"}
    runs = cell().assign(decode_s=0.07, device_event_s=0.07, **records)
    for seconds, passed in ((0.0, True), (0.01, True), (0.02, True), (0.1, False)):
        found = runs.assign(others_cpu_share=seconds / 0.07)
        check = run_checks(found, DESIGN.analysis.thresholds("cuda"), FULL)["undisturbed"]
        assert check.passed is passed
        assert check.value == pytest.approx(max(0.0, seconds - 0.02) / 0.07)
