"""Derived tables from made-up runs whose ratios, exclusions and verdicts are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec_lib.analysis import (
    equality_table,
    exclusions_table,
    families_table,
    sensitivity_table,
    summary_table,
)
from specdec_lib.errors import TableError, UnknownProfile
from specdec_lib.records import read_table, write_table
from specdec_lib.validity import plant_slowdown
from tests.synthetic_runs import DESIGN, DESIGN_HASH, make_runs

FAMILIES = DESIGN.measurement.families
CLEAN: Any = make_runs(ratio=0.5, family_sd=0.1, noise=0.003, seed=3)
TABLE: Any = families_table(CLEAN, DESIGN)


def test_medians_ratios_and_acceptance_of_a_clean_study() -> None:
    table: Any = families_table(make_runs(ratio=0.5), DESIGN)
    assert table["family"].tolist() == [*FAMILIES] * 3
    assert table["context_tokens"].tolist() == [c for c in (2048, 4096, 8192) for _ in range(16)]
    assert table["in_inference"].all() and table["excluded_by"].isna().all()
    assert set(table["design_hash"]) == {DESIGN_HASH} and set(table["analysis_hash"]) == {
        DESIGN.analysis_hash()
    }
    row = table.iloc[0]
    assert (row["ar_median_s"], row["spec_median_s"], row["R"]) == pytest.approx((2.0, 4.0, 0.5))
    assert row["R_with_prefill"] == pytest.approx((2 + 1) / (4 + 1.25))
    assert (row["acceptance"], row["alpha"]) == pytest.approx((0.54, 0.7682), abs=1e-4)
    assert row["tokens_per_round"] == pytest.approx(64 / 23)
    assert (row["ar_runs_n"], row["spec_runs_n"], row["rounds_n"], row["target_calls_n"]) == (5, 5, 23, 38)


def test_one_cold_prefill_moves_no_family() -> None:
    """Prompts of a context are equally long; the first family of a process is read with cold kernels."""
    runs = CLEAN.copy()
    first = runs["family"] == FAMILIES[0]
    runs.loc[first & (runs["context_tokens"] == 2048), ["prefill_s", "draft_prefill_s"]] *= 30
    runs.loc[runs["context_tokens"] == 8192, "prefill_s"] *= 2
    cold: Any = families_table(runs, DESIGN)
    assert list(cold["R_with_prefill"][:32]) == list(TABLE["R_with_prefill"][:32])
    assert set(cold["ar_prefill_s"][:16]) == {1.0} and set(cold["ar_prefill_s"][32:]) == {2.0}


def test_a_median_and_not_a_mean_stands_for_a_cell() -> None:
    runs = CLEAN.copy()
    runs.loc[runs.index[0], "decode_s"] = 100.0
    assert families_table(runs, DESIGN).iloc[0]["R"] == pytest.approx(TABLE.iloc[0]["R"], rel=0.01)


def test_the_summary_is_the_geometric_mean_with_its_interval() -> None:
    summary: Any = summary_table(TABLE, DESIGN)
    for row, (_, cells) in zip(summary.to_dict("records"), TABLE.groupby("context_tokens"), strict=True):
        assert row["R_GM"] == pytest.approx(np.exp(np.log(cells["R"]).mean()))
        assert row["low"] < row["R_GM"] < row["high"] < 1 and row["verdict"] == "does not"
        assert (row["n"], row["n_in_inference"], row["slower_families_n"]) == (16, 16, 16)
        assert row["low"] < 0.5 < row["high"]  # the truth that was put in
        assert row["method"] == DESIGN.analysis.interval.method


@pytest.mark.parametrize(("ratio", "verdict"), [(1.5, "pays"), (1.0, "undecided"), (0.7, "does not")])
def test_the_verdict_follows_the_truth(ratio: float, verdict: str) -> None:
    runs = make_runs(ratio=ratio, family_sd=0.1, noise=0.003, seed=2)
    assert set(summary_table(families_table(runs, DESIGN), DESIGN)["verdict"]) == {verdict}


def test_a_planted_slow_down_is_detected() -> None:
    # AR against itself, 1 % noise and 1 % between families: no effect. Then one arm is made 10 % slower.
    runs: Any = make_runs(ratio=1.0, family_sd=0.01, noise=0.01, seed=3)
    before = summary_table(families_table(runs, DESIGN), DESIGN)
    assert set(before["verdict"]) == {"undecided"}
    planted = summary_table(families_table(plant_slowdown(runs, "spec", 1.1), DESIGN), DESIGN)
    assert set(planted["verdict"]) == {"does not"}
    assert planted["R_GM"].tolist() == pytest.approx((before["R_GM"] / 1.1).tolist())
    assert runs["decode_s"].max() < 2.2  # the runs given are left as they were
    events = runs.assign(device_event_s=runs["decode_s"])
    slower = plant_slowdown(events, "spec", 1.1)
    assert slower["device_event_s"].equals(slower["decode_s"]), (
        "else a check on a GPU sees two clocks, not a slow arm"
    )


def test_an_excluded_cell_leaves_the_inference_and_stays_in_the_description() -> None:
    runs = CLEAN.copy()
    at = (runs["family"] == FAMILIES[3]) & (runs["context_tokens"] == 8192)
    runs.loc[at, "others_cpu_share"] = 0.3
    runs.loc[at & (runs["repeat"] == 2) & (runs["arm"] == "spec"), "tokens_sha256"] = "b" * 64
    table: Any = families_table(runs, DESIGN)
    out = table[~table["in_inference"]]
    assert out[["family", "context_tokens"]].values.tolist() == [[FAMILIES[3], 8192]]
    assert out["excluded_by"].tolist() == ["deterministic;undisturbed"]
    summary: Any = summary_table(table, DESIGN)
    assert summary["n"].tolist() == [16] * 3 and summary["n_in_inference"].tolist() == [16, 16, 15]
    kept: Any = table[(table["context_tokens"] == 8192) & table["in_inference"]]
    assert summary["R_GM"].iloc[2] == pytest.approx(np.exp(np.log(kept["R"]).mean()))
    assert summary["R_GM_all"].iloc[2] == pytest.approx(summary_table(TABLE, DESIGN)["R_GM"].iloc[2])
    listed = exclusions_table(runs, DESIGN)
    assert listed[["context_tokens", "family", "check"]].values.tolist() == [
        [8192, FAMILIES[3], "deterministic"],
        [8192, FAMILIES[3], "undisturbed"],
    ]
    assert (
        "30 %" in listed["note"].iloc[1] and listed["limit"].iloc[1] == DESIGN.analysis.checks.cpu.undisturbed
    )
    sensitivity: Any = sensitivity_table(table, DESIGN)
    at_8k = sensitivity[sensitivity["context_tokens"] == 8192].set_index("variant")
    assert (at_8k.loc["inference", "n"], at_8k.loc["all cells", "n"]) == (15, 16)
    assert f"without {FAMILIES[3]}" not in at_8k.index and len(at_8k) == 2 + 3 + 15


def test_nothing_is_excluded_when_the_plan_excludes_on_nothing() -> None:
    analysis = DESIGN.analysis.model_copy(update={"exclude_on": ()})
    runs = CLEAN.assign(others_cpu_share=0.3)
    table: Any = families_table(runs, DESIGN.model_copy(update={"analysis": analysis}))
    assert table["in_inference"].all() and not table["undisturbed_passed"].any()


def test_three_families_give_no_interval() -> None:
    runs = CLEAN.copy()
    runs.loc[runs["family"].isin(FAMILIES[3:]), "others_cpu_share"] = 0.3
    summary: Any = summary_table(families_table(runs, DESIGN), DESIGN)
    assert set(summary["verdict"]) == {"no interval"} and summary["low"].isna().all()
    assert summary["n_in_inference"].tolist() == [3, 3, 3] and summary["R_GM"].notna().all()


def test_no_family_left_gives_no_mean_but_a_description() -> None:
    summary: Any = summary_table(families_table(CLEAN.assign(others_cpu_share=0.3), DESIGN), DESIGN)
    assert summary["R_GM"].isna().all() and summary["R_GM_all"].notna().all()


def test_a_quick_look_has_no_interval_and_says_what_it_cannot_check() -> None:
    table: Any = families_table(make_runs("cpu", ratio=0.5), DESIGN)
    assert table[["dispersion_passed", "stationary_passed", "order_passed"]].isna().all(axis=None)
    assert table["in_inference"].all() and table["complete_passed"].all()
    assert set(summary_table(table, DESIGN)["verdict"]) == {"no interval"}


def test_leaving_a_family_out_is_the_estimate_without_it() -> None:
    found: Any = sensitivity_table(TABLE, DESIGN)
    assert len(found) == 3 * (2 + 3 + 16)
    at_2k: Any = TABLE[TABLE["context_tokens"] == 2048]
    row = found[(found["context_tokens"] == 2048) & (found["variant"] == f"without {FAMILIES[0]}")].iloc[0]
    assert row["n"] == 15 and row["R_GM"] == pytest.approx(np.exp(np.log(at_2k["R"][1:]).mean()))
    bounds = found[found["variant"].str.endswith("interval")].groupby("variant")["low"].first()
    assert len(set(bounds)) == 3  # three methods, three intervals
    chosen = found[found["variant"] == f"{DESIGN.analysis.interval.method} interval"]["low"]
    assert chosen.tolist() == found[found["variant"] == "inference"]["low"].tolist()


def test_equality_counts_families_and_divergence() -> None:
    runs = CLEAN.copy()
    for family, at in ((FAMILIES[1], 12), (FAMILIES[2], 40)):
        chosen = (runs["family"] == family) & (runs["arm"] == "spec") & (runs["context_tokens"] == 2048)
        runs.loc[chosen, "tokens_sha256"] = "c" * 64
        runs.loc[chosen, "first_divergence_tokens"] = at
    table = families_table(runs, DESIGN)
    first = equality_table(table).iloc[0]
    assert (first["n"], first["identical_n"], first["deterministic_n"]) == (16, 14, 16)
    assert (first["first_divergence_min_tokens"], first["first_divergence_median_tokens"]) == (12, 26.0)
    assert equality_table(table)["identical_n"].tolist() == [14, 16, 16]
    assert summary_table(table, DESIGN)["identical_families_n"].tolist() == [14, 16, 16]


def test_a_cell_with_one_arm_is_out_and_named() -> None:
    gone = (CLEAN["family"] == FAMILIES[0]) & (CLEAN["arm"] == "spec")
    table: Any = families_table(CLEAN[~gone], DESIGN)
    row = table.iloc[0]
    assert np.isnan(row["R"]) and not row["in_inference"] and row["excluded_by"] == "complete"
    assert not row["identical"]
    nothing_excludes = DESIGN.analysis.model_copy(update={"exclude_on": ()})
    lenient: Any = families_table(CLEAN[~gone], DESIGN.model_copy(update={"analysis": nothing_excludes}))
    assert not lenient.iloc[0]["in_inference"] and lenient.iloc[0]["excluded_by"] == "complete"
    assert summary_table(table, DESIGN)["n_in_inference"].tolist() == [15, 15, 15]
    with pytest.raises(TableError, match="no family has both arms"):
        summary_table(families_table(CLEAN[CLEAN["arm"] == "ar"], DESIGN), DESIGN)


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = CLEAN.sample(frac=1, random_state=5)
    again: Any = families_table(shuffled, DESIGN)
    assert again.equals(TABLE)


def test_changing_the_analysis_changes_only_its_hash_on_the_rows() -> None:
    interval = DESIGN.analysis.interval.model_copy(update={"seed": 1})
    other = DESIGN.model_copy(update={"analysis": DESIGN.analysis.model_copy(update={"interval": interval})})
    table: Any = families_table(CLEAN, other)
    assert set(table["analysis_hash"]) != set(TABLE["analysis_hash"])
    assert table.drop(columns="analysis_hash").equals(TABLE.drop(columns="analysis_hash"))


def test_the_limits_follow_the_device() -> None:
    shares = CLEAN.assign(others_cpu_share=0.025)  # between the limits of the two
    on_cpu: Any = families_table(shares, DESIGN)
    on_gpu: Any = families_table(shares, DESIGN, "gpu")
    assert on_cpu["undisturbed_passed"].all() and not on_gpu["undisturbed_passed"].any()


@pytest.mark.parametrize("column", ["pair", "device", "dtype", "design_hash"])
def test_two_machines_or_designs_are_not_analysed_together(column: str) -> None:
    other = {"pair": "x", "device": "cuda", "dtype": "bf16", "design_hash": "f" * 16}[column]
    mixed = CLEAN.assign(**{column: [other] + [CLEAN[column].iloc[0]] * (len(CLEAN) - 1)})
    with pytest.raises(TableError, match=f"column {column} has several values"):
        families_table(mixed, DESIGN)


def test_no_rows_and_an_unknown_profile_are_named() -> None:
    with pytest.raises(TableError, match="no rows"):
        families_table(CLEAN[:0], DESIGN)
    with pytest.raises(UnknownProfile):
        families_table(CLEAN.assign(profile="other"), DESIGN)


def test_every_derived_table_can_be_stored(tmp_path: Path) -> None:
    derived = {
        "families": TABLE,
        "summary": summary_table(TABLE, DESIGN),
        "sensitivity": sensitivity_table(TABLE, DESIGN),
        "equality": equality_table(TABLE),
        "exclusions": exclusions_table(CLEAN, DESIGN),
    }
    for name, table in derived.items():
        path = write_table(table, tmp_path / f"{name}.csv", name)
        assert read_table(path, name, DESIGN_HASH).equals(table)
