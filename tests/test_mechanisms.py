"""The mechanism phases: what is planned, run, gathered and fitted. Jobs run in this process on the tiny pair."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specdec_lib import costs
from specdec_lib import predictions as predictions_module
from specdec_lib import study as study_module
from specdec_lib.costfit import Costs, CostsAt, fit, fit_table, in_sample_residuals
from specdec_lib.costmodel import counts_from_trace
from specdec_lib.decoding import autoregressive
from specdec_lib.errors import InvalidSetting
from specdec_lib.mechanisms import (
    cells,
    chosen_variants,
    numerics_table,
    proposals_tables,
    run_phase,
    traces_of,
)
from specdec_lib.numerics import OPERATIONS, WIDTHS, Tap, tapped, width_rows
from specdec_lib.pairs import Pair
from specdec_lib.predictions import break_even_table, predictions_table, residuals_table
from specdec_lib.prefilled import Prefilled
from specdec_lib.ratios import ratios
from specdec_lib.records import read_table, write_table
from specdec_lib.study import Study, open_study
from specdec_lib.variants import PHASES, Variant, check_variants, passes_of, resolved
from tests.engine_tools import PROMPT
from tests.test_measure import small_design

CONTEXT = 256
MECHANISMS = {"families": {CONTEXT: 1}, "repeats": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mechanisms") / "data" / "toy"


@pytest.fixture(autouse=True)
def ran(jobs_here: list[str]) -> list[str]:
    """Every test's jobs run in this process; their names, in order."""
    return jobs_here


def study_in(folder: Path, **profile: Any) -> Study:
    return open_study("toy", folder, small_design(mechanisms=MECHANISMS, **profile))


@pytest.fixture
def study(folder: Path) -> Study:
    """One family at one context; finished jobs are shared by the tests of this file."""
    return study_in(folder)


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_gives_every_variant_on_every_cell(
    phase: str, study: Study, ran: list[str], tmp_path: Path
) -> None:
    runs: Any
    quality: Any
    runs, quality = run_phase(study, phase, quality=phase == "relaxed")
    names = ["ar", *(v.name for v in PHASES[phase])]
    assert list(dict.fromkeys(runs["variant"])) == names and len(runs) == 2 * len(names)
    assert not runs.duplicated(["variant", "repeat"]).any()
    backwards = runs[runs["repeat"] == 2].sort_values("position")["variant"]
    assert list(backwards) == names[::-1], "even repeats run backwards"
    exact = runs[~runs["label"].isin(["not exact"]) & (runs["variant"] != "draft's text")]
    assert set(exact["first_divergence_tokens"].isna()) == {True} and set(exact["equal_share"]) == {1.0}
    assert set(runs["new_tokens"]) == {12} and set(runs["design_hash"]) == {study.design_hash}
    write_table(runs, tmp_path / "phase.csv", "mechanism")
    pd.testing.assert_frame_equal(read_table(tmp_path / "phase.csv", "mechanism"), runs)
    found = ratios(runs)
    assert list(found["variant"]) == names[1:]
    row = found.iloc[0]
    times = runs[runs["variant"] == row["variant"]]["decode_s"]
    ar = runs[runs["variant"] == "ar"]["decode_s"].median()
    assert row["R"] == pytest.approx(ar / times.median()) and row["R_low"] <= row["R"] <= row["R_high"]
    if phase == "relaxed":
        assert list(quality["variant"]) == names and max(quality["mean_log_probability"]) < 0
    else:
        assert quality.empty
    ran.clear()
    again, _ = run_phase(study, phase, quality=phase == "relaxed")
    assert ran == [], "finished jobs are not run again"
    pd.testing.assert_frame_equal(again, runs)


def test_counts_of_every_variant_are_what_its_trace_says(study: Study) -> None:
    """The identities, in every variant and for every phase: rounds, calls, and what is proposed."""
    runs: Any
    _, traces = proposals_tables(study)
    (recorded,) = traces["passes"]
    bits = [bit == "1" for bit in recorded]
    family, k, new = study.profile.families[0], study.profile.k, study.profile.new_tokens
    for phase in PHASES:
        runs, _ = run_phase(study, phase, quality=phase == "relaxed")
        for v in resolved(phase, k, new)[1:]:
            if v.rule in ("relaxed", "all") and v.setting != 0:
                continue
            assert v.k
            passes = passes_of(v, bits, family, CONTEXT)
            expected = counts_from_trace(passes, v.k, new, v.formulation, v.bonus)
            for row in runs[runs["variant"] == v.name].to_dict("records"):
                assert (row["rounds_n"], row["proposed_tokens"], row["target_calls_n"]) == (
                    expected.rounds, expected.proposed, expected.target_calls,
                ), (phase, v.name)  # fmt: skip
                assert row["draft_calls_n"] == (0 if v.proposer == "free" else expected.draft_forwards)
                assert row["block_rows_tokens"] == sum(rows * n for rows, n in expected.blocks.items())
                if v.bonus:
                    assert new == row["accepted_tokens"] + row["rounds_n"]
                if v.proposer != "naive":
                    assert row["host_reads_n"] == row["rounds_n"] and row["host_copies_n"] == 0


def test_a_phase_alone_makes_what_it_needs(tmp_path: Path, ran: list[str]) -> None:
    runs, _ = run_phase(study_in(tmp_path / "data" / "toy"), "draft-free")
    family = runs["family"].iloc[0]
    assert ran == ["calibrate", f"prefill-256-{family}", f"trace-256-{family}", f"draft-free-256-{family}"]


def test_an_interruption_loses_no_finished_cell(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before every job once, its caches lost: each job is measured once, the table is the same."""
    run_here, stops = study_module.run_job, {"trace", "draft-free"}

    def interrupted(spec: dict[str, Any], path: Path, threads: int) -> dict[str, Any]:
        if (kind := spec["name"].split("-256")[0]) in stops:
            stops.remove(kind)
            raise KeyboardInterrupt
        return run_here(spec, path, threads)

    monkeypatch.setattr(study_module, "run_job", interrupted)
    study = study_in(tmp_path / "data" / "toy")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_phase(study, "draft-free")
        for cache in (study.folder / ".prefill").iterdir():
            cache.unlink()
    runs, _ = run_phase(study, "draft-free")
    assert len(runs) == 6 and len([name for name in ran if "free" in name]) == 1


def test_proposals_and_traces(study: Study) -> None:
    proposals: Any
    traces: Any
    proposals, traces = proposals_tables(study)
    assert set(traces["identical"]) == {True}
    assert list(traces["rounds_n"]) == list(traces["rounds_by_trace_n"])
    assert proposals["accepted"].mean() == pytest.approx(traces["acceptance"].iloc[0])
    refused = proposals[proposals["reached"] & ~proposals["accepted"]]
    assert set(refused["rank"] > 1) == {True} and set(proposals[proposals["accepted"]]["rank"]) == {1}


def test_variants_that_cannot_run_are_refused_before_any_job(study: Study, ran: list[str]) -> None:
    bad = [
        (Variant("v", k=13), "k = 13 with 12"), (Variant("v", k=12, bonus=True), "k = 12 with 12"),
        (Variant("v", k=0), "k = 0"), (Variant("v", rule="relaxed", setting=-1.0), "delta = -1"),
        (Variant("v", trace="iid", setting=1.01), "alpha = 1.01"), (Variant("v", trace="iid"), "alpha = None"),
        (Variant("v", trace="iid", setting=math.nan), "alpha = nan"),
    ]  # fmt: skip
    for v, mention in bad:
        with pytest.raises(InvalidSetting, match=mention.replace("|", ".")):
            check_variants([v], 12)
    with pytest.raises(InvalidSetting, match="No mechanism phase 'dail'"):
        run_phase(study, "dail")
    with pytest.raises(InvalidSetting, match="measures no mechanism phases"):
        cells(small_design().profile("toy"))
    with pytest.raises(Exception, match="asks for 2 families at context 256"):
        small_design(mechanisms={"families": {256: 2}, "repeats": 1})
    assert not [name for name in ran if name != "calibrate"]


def test_iid_bits_nest_and_have_their_rate() -> None:
    def passes(alpha: float, family: str = "f") -> list[bool]:
        return passes_of(Variant("v", trace="iid", setting=alpha), [False] * 4000, family, 2048)

    low, high = passes(0.3), passes(0.8)
    assert all(b for a, b in zip(low, high, strict=True) if a), "raising alpha only adds passes"
    assert np.mean(low) == pytest.approx(0.3, abs=0.03) and np.mean(high) == pytest.approx(0.8, abs=0.03)
    assert not any(passes(0.0)) and all(passes(1.0)) and passes(0.3) == low != passes(0.3, "g")


# --- numerics -----------------------------------------------------------------------------------------------


def widths(pair: Pair) -> Any:
    start = Prefilled.compute(pair.target, PROMPT, 16)
    tokens = autoregressive(pair.target, PROMPT, 16, prefilled=start).tokens
    return pd.DataFrame(width_rows(pair.target, start, PROMPT, tokens, "fp32"))


def test_numerics_of_a_small_model(tiny_pair: Pair, study: Study) -> None:
    before = autoregressive(tiny_pair.target, PROMPT, 8).tokens
    rows = widths(tiny_pair)
    assert len(rows) == len(WIDTHS) * len(OPERATIONS) and rows["deterministic"].all()
    assert rows["chained_max"].max() < 1e-3 and rows["flips_n"].max() == 0
    assert rows.groupby("width")["first_to_differ"].sum().max() <= 1
    assert not any(isinstance(layer.qkv, Tap) for layer in tiny_pair.target.layers)
    assert autoregressive(tiny_pair.target, PROMPT, 8).tokens == before
    table = numerics_table(study)
    assert set(table["context_tokens"]) == {CONTEXT} and len(table) == len(rows)


@pytest.mark.parametrize(("name", "operation"), [("out", "o"), ("gate_up", "gate/up"), ("down", "down")])
def test_numerics_find_a_planted_difference(
    name: str, operation: str, tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A projection of layer 1 that is off by 0.01 for blocks of 4 rows and more, and by nothing else."""
    layer = tiny_pair.target.layers[1]
    inner = getattr(layer, name)
    monkeypatch.setattr(layer, name, lambda x: inner(x) + 0.01 * (x.shape[0] >= 4))
    rows = widths(tiny_pair)
    clean, off = rows[rows["width"] < 4], rows[rows["width"] >= 4]
    assert clean["alone_max"].max() < 1e-4
    alone = off[off["alone_max"] > 5e-3]
    assert set(alone["operation"]) == {operation} and set(alone["alone_layers_n"]) <= {1, 2}
    assert alone["alone_max"].to_numpy() == pytest.approx(0.01, rel=0.05)
    chained = off[(off["operation"] == "head") & (off["chained_max"] > 1e-3)]
    assert len(chained) == len(WIDTHS) - 2, "the free run carries it to the head"
    groups = dict(zip(rows["width"], rows["group_width"], strict=True))
    assert groups[9] not in (1, 2, 3), "the widths that are off are a group of their own"


def test_taps_come_off_after_a_failure(tiny_pair: Pair) -> None:
    with pytest.raises(RuntimeError), tapped(tiny_pair.target):
        raise RuntimeError
    assert not isinstance(tiny_pair.target.head, Tap)


# --- the cost line ------------------------------------------------------------------------------------------


def truth_at(thousands: float) -> CostsAt:
    """Linear in context and rows, so that what lies between the fitted points is known as well."""
    ar = 20e-3 + 2e-3 * thousands
    return CostsAt(
        ar, draft=5e-3 + 0.5e-3 * thousands, draft_round=0.4e-3, blocks={1: ar, 9: ar + 8e-3 + 0.8e-3 * thousands},
        repair=21e-3 + 2e-3 * thousands, overhead=1e-3, overhead_row=0.1e-3,
    )  # fmt: skip


TRUTH = Costs("a", {2048: truth_at(2), 8192: truth_at(8)})


def made_up_costs(contexts: tuple[int, ...] = (2048, 4096)) -> Any:
    """Rows whose times follow ``TRUTH`` exactly, with the counts of a random trace."""
    rng, rows = np.random.default_rng(1), []
    shared = {"profile": "toy", "design_hash": "0" * 16, "repeat": 1, "new_tokens": 64}
    none = dict.fromkeys(("draft_s", "verify_s", "accept_s", "repair_s", "other_s"), math.nan)
    for family in ("a", "b"):
        for context in contexts:
            cell = shared | {"family": family, "context_tokens": context}
            zero = dict.fromkeys(
                ("rounds_n", "proposed_tokens", "accepted_tokens", "rejections_n", "draft_calls_n",
                 "block_rows_tokens"), 0,
            )  # fmt: skip
            plain = {"variant": "ar", "k": None, "bonus": None, "formulation": None, "target_calls_n": 63}
            rows.append(cell | none | zero | plain | {"decode_s": 63 * TRUTH.ar_step(context)})
            bits = [bool(bit) for bit in rng.random(64) < 0.7]
            for formulation, bonus, ks in (("repair-free", True, range(1, 9)), ("reference", False, (4,))):
                for k in ks:
                    c = counts_from_trace(bits, k, 64, formulation, bonus)
                    verify = sum(n * TRUTH.verify(m, context) for m, n in c.blocks.items())
                    catch_ups = (c.rounds - 1) if formulation == "reference" else 0
                    here = truth_at(context / 1024)
                    draft = (c.draft_forwards - catch_ups) * here.draft + c.rounds * here.draft_round
                    repair = catch_ups * here.draft + c.repairs * here.repair
                    around = c.rounds * here.overhead + c.proposed * here.overhead_row
                    rows.append(
                        cell
                        | {
                            "variant": f"{formulation} {k}", "k": k, "bonus": bonus, "formulation": formulation,
                            "rounds_n": int(c.rounds), "proposed_tokens": int(c.proposed),
                            "accepted_tokens": int(c.accepted), "rejections_n": int(c.rejections),
                            "target_calls_n": int(c.target_calls), "draft_calls_n": int(c.draft_forwards),
                            "block_rows_tokens": int(sum(m * n for m, n in c.blocks.items())),
                            "draft_s": draft, "verify_s": verify, "accept_s": around,
                            "repair_s": repair, "other_s": 0.0,
                            "decode_s": draft + verify + repair + around,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


def test_the_fit_recovers_known_costs() -> None:
    for one in fit(made_up_costs()):
        for context in (2048, 4096, 8192):
            assert one.ar_step(context) == pytest.approx(TRUTH.ar_step(context))
            assert one.draft_forward(context, 4) == pytest.approx(TRUTH.draft_forward(context, 4))
            assert one.overhead(context, 4) == pytest.approx(TRUTH.overhead(context, 4))
            assert one.repair_forward(context) == pytest.approx(TRUTH.repair_forward(context), rel=1e-6)
            for rows in (2, 5, 9):
                assert one.verify(rows, context) == pytest.approx(TRUTH.verify(rows, context))
    assert in_sample_residuals(made_up_costs()).abs().max() < 1e-9


def test_a_family_that_lacks_a_context_is_not_drawn_out_to_it() -> None:
    table = made_up_costs()
    lacking = table[(table["family"] == "a") | (table["context_tokens"] == 2048)]
    (one,) = fit(lacking)
    assert one.family == "a" and one.ar_step(8192) == pytest.approx(TRUTH.ar_step(8192))
    assert len(fit(lacking[(lacking["family"] == "b") | (lacking["context_tokens"] == 4096)])) == 2, (
        "none is whole"
    )


def test_one_context_is_enough_to_predict_it() -> None:
    for one in fit(made_up_costs((2048,))):
        assert one.draft_forward(2048, 4) == pytest.approx(TRUTH.draft_forward(2048, 4))
        assert one.verify(5, 2048) == pytest.approx(TRUTH.verify(5, 2048))


def test_every_measured_block_lies_on_the_curve() -> None:
    """A verification that jumps at 6 rows: no straight line is drawn through it."""
    table = made_up_costs()
    table.loc[(table["formulation"] == "repair-free") & (table["k"] >= 5), "verify_s"] *= 1.5
    fitted = {one.family: one for one in fit(table)}
    for row in table[table["formulation"] == "repair-free"].to_dict("records"):
        calls = row["target_calls_n"]
        curve = fitted[row["family"]].verify(row["block_rows_tokens"] / calls, row["context_tokens"])
        assert curve == pytest.approx(row["verify_s"] / calls)


def test_a_slower_draft_moves_only_what_has_a_draft() -> None:
    table = made_up_costs()
    table["draft_s"] *= 2
    for one in fit(table):
        assert one.draft_forward(2048, 4) == pytest.approx(2 * TRUTH.draft_forward(2048, 4))
        assert one.verify(5, 2048) == pytest.approx(TRUTH.verify(5, 2048))


def test_where_acceptance_is_real_the_rounds_are_those_of_an_untimed_run(
    tmp_path: Path, ran: list[str]
) -> None:
    study = study_in(tmp_path / "data" / "toy")
    enough = study.design.analysis.interval.min_repeats
    full = study._replace(profile=study.profile.model_copy(update={"repeats": enough}))
    variants = list(chosen_variants(full.profile, "cost-model"))
    (found,) = predictions_module.counted(full, variants).values()
    assert set(found) == {v.name for v in variants if v.proposer == "draft"}
    assert sum(name.startswith("rounds") for name in ran) == 1
    assert not predictions_module.counted(study, variants), "a quick look takes the trace"
    passes = next(iter(traces_of(full).values()))["passes"]
    for v in variants:  # in FP32 no near-tie flips: trace and run agree to the last count
        if v.name in found:
            assert v.k
            assert found[v.name] == counts_from_trace(
                passes, v.k, full.profile.new_tokens, v.formulation, v.bonus
            )


def test_predictions_are_written_once_and_measured_rows_carry_their_hash(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path / "data" / "toy")
    found: Any
    table: Any = costs.costs_table(study)
    assert set(table["family"]) == set(study.design.measurement.development)
    assert not set(table["family"]) & set(study.profile.families), "never fitted on a held-out family"
    assert not [name for name in ran if name.startswith("cost-model")], "predicted before it is measured"
    predictions, digest = predictions_table(study, table)
    runs, _ = run_phase(study, "cost-model", prediction=digest)
    assert set(runs["prediction_sha256"]) == {digest} and len(digest) == 64
    found = residuals_table(predictions, ratios(runs))
    assert len(found) == len(PHASES["cost-model"]) and found["same_rounds"].all()
    assert found["residual"].to_numpy() == pytest.approx(
        found["R_measured"].to_numpy() / found["R_predicted"].to_numpy() - 1
    )
    free = found[found["variant"] == "draft-free, bonus"].iloc[0]
    assert free["draft_calls_n"] == 0

    def never(*_: object) -> None:
        raise AssertionError("predicted anew")

    monkeypatch.setattr(predictions_module, "_predicted", never)
    again, same = predictions_table(study, table)
    assert same == digest
    pd.testing.assert_frame_equal(again, predictions)
    _, frozen = predictions_table(study, table.assign(decode_s=table["decode_s"] * 2))
    assert frozen == digest, "a prediction stands, whatever is measured later"
    with pytest.raises(InvalidSetting, match="predictions have no measurement"):
        residuals_table(predictions, ratios(runs).iloc[1:])
    fitted = fit_table(study, table)
    steps = fitted[fitted["component"] == "ar step"]["steps"]
    assert set(steps) == {1.0} and set(fitted["extrapolated"]) == {False}
    _, traces = proposals_tables(study)
    found = break_even_table(study, table, traces)
    assert set(found["formulation"]) == {"reference", "repair-free"}
