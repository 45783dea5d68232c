"""The mechanism chapters on a made-up machine whose times follow a known cost line exactly; and on none at all."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specdec_lib.costmodel import Counts, counts_from_trace
from specdec_lib.files import canonical_json, sha256_text
from specdec_lib.records import read_table, write_table
from specdec_lib.report import (
    acceptance,
    bestk,
    chain,
    costline,
    curve,
    dial,
    folders,
    freedraft,
    mechanisms,
    oracles,
    places,
    replay,
    residuals,
    stages,
    style,
    synthesis,
    text,
    traces,
    waterfall,
)
from specdec_lib.variants import AR, Variant, passes_of, resolved

pytestmark = pytest.mark.usefixtures("nothing_committed")

REPOSITORY = Path(__file__).parent.parent
HASH, CONTEXT, N, K, STEP = "0123456789abcdef", 2048, 64, 4, 0.02
C, BASE, ROW, REPAIR, OVERHEAD = 0.2, 0.9, 0.1, 1.1, 0.05
BITS = {"summarise-proceedings": "1101" * 16, "question-document": "1110111110" * 6 + "1110"}
DEVELOPMENT = ("dev-poem", "dev-log")
PHASES = ("all-accept", "draft-free", "dial", "formulations", "cost-model")


def verify(rows: float) -> float:
    return BASE + ROW * rows


def counts(v: Variant, bits: list[bool], family: str) -> Counts:
    imposed = passes_of(v, bits, family, CONTEXT)
    passes = [True] * N if v.rule == "all" else imposed
    assert v.k
    found = counts_from_trace(passes, v.k, N, v.formulation, v.bonus)
    return dataclasses.replace(found, draft_forwards=0) if v.proposer == "free" else found


def seconds(found: Counts) -> float:
    return STEP * found.cost(C, verify, REPAIR, OVERHEAD)


def settings(v: Variant) -> dict[str, Any]:
    plain = v.proposer == "none"
    return {
        "variant": v.name, "k": None if plain else v.k, "bonus": None if plain else v.bonus,
        "formulation": None if plain else v.formulation,
    }  # fmt: skip


def tallies(found: Counts | None) -> dict[str, Any]:
    """The counts of a run as columns; None is AR."""
    if found is None:
        zero = dict.fromkeys(
            (
                "rounds_n",
                "proposed_tokens",
                "accepted_tokens",
                "rejections_n",
                "draft_calls_n",
                "block_rows_tokens",
            ),
            0,
        )
        return zero | {"new_tokens": N, "target_calls_n": N - 1, "decode_s": STEP * (N - 1)}
    return {
        "new_tokens": N, "decode_s": seconds(found), "rounds_n": found.rounds, "proposed_tokens": found.proposed,
        "accepted_tokens": found.accepted, "rejections_n": found.rejections, "target_calls_n": found.target_calls,
        "draft_calls_n": found.draft_forwards, "block_rows_tokens": sum(r * n for r, n in found.blocks.items()),
    }  # fmt: skip


BASE_ROW = {"profile": "cpu", "design_hash": HASH, "context_tokens": CONTEXT}


def mechanism_rows(phase: str, prediction: str | None = None) -> pd.DataFrame:
    rows = []
    for family, passes in BITS.items():
        bits = [bit == "1" for bit in passes]
        for position, v in enumerate(resolved(phase, K, N)):
            found = None if v.proposer == "none" else counts(v, bits, family)
            for repeat in (1, 2):
                rows.append(
                    BASE_ROW | settings(v) | tallies(found)
                    | {
                        "pair": "smol", "dtype": "fp32", "device": "cpu", "mode": "eager", "threads": 2,
                        "family": family, "phase": phase, "label": v.label, "setting": v.setting, "repeat": repeat,
                        "position": position, "job": f"{phase}-{family}", "host_reads_n": 1, "host_copies_n": 0,
                        "host_bytes": 8, "tokens_sha256": "ab" * 8, "first_divergence_tokens": None,
                        "equal_share": 1.0, "others_cpu_share": 0.0, "cpu_mhz": None, "peak_rss_bytes": 1,
                        "prediction_sha256": prediction,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def fit_rows() -> pd.DataFrame:
    parts = [
        ("ar step", None, 1.0),
        ("draft forward", None, C),
        ("repair", None, REPAIR),
        ("round overhead", None, OVERHEAD),
    ]
    parts += [("verification", k, verify(k + 1)) for k in range(1, 9)]
    rows = []
    for name, k, steps in parts:
        cost = {f"{part}{end}": value for part, value in (("cost", steps * STEP), ("steps", steps))
                for end in ("", "_low", "_high")}  # fmt: skip
        renamed = {f"{key}_s" if key.startswith("cost") else key: value for key, value in cost.items()}
        rows.append(BASE_ROW | {"component": name, "k": k, "families_n": 2, "extrapolated": False} | renamed)
    return pd.DataFrame(rows)


def costs_rows() -> pd.DataFrame:
    rows = []
    engine = Variant("repair-free", bonus=True, formulation="repair-free")
    fitted = [dataclasses.replace(engine, name=f"repair-free, k = {k}", k=k) for k in range(1, 9)]
    variants = [AR, *fitted, Variant("reference", k=K)]
    for family in DEVELOPMENT:
        for v in variants:
            found = (
                None
                if v.proposer == "none"
                else counts(v, [bit == "1" for bit in BITS["question-document"]], family)
            )
            stage: dict[str, Any] = {
                "draft_s": 0.0,
                "verify_s": STEP * (N - 1),
                "accept_s": 0.0,
                "repair_s": 0.0,
            }
            if found:
                catch_up = STEP * C * (found.rounds - 1) * (v.formulation == "reference")
                stage = {
                    "draft_s": STEP * C * found.draft_forwards - catch_up,
                    "verify_s": STEP * sum(n * verify(r) for r, n in found.blocks.items()),
                    "accept_s": STEP * OVERHEAD * found.rounds,
                    "repair_s": STEP * REPAIR * found.repairs + catch_up,
                }
            rows.append(
                BASE_ROW
                | {"family": family, "repeat": 1, "other_s": 0.0}
                | settings(v)
                | tallies(found)
                | stage
            )
    return pd.DataFrame(rows)


def prediction_rows() -> list[dict[str, Any]]:
    rows = []
    for family, passes in BITS.items():
        bits = [bit == "1" for bit in passes]
        for v in resolved("cost-model", K, N)[1:]:
            found = counts(v, bits, family)
            R = (N - 1) * STEP / seconds(found)
            rows.append(
                settings(v)
                | {
                    "context_tokens": CONTEXT, "family": family, "label": v.label, "pass_share": 0.75,
                    "counts_from": "trace", "rounds_by_trace_n": found.rounds,
                    "rounds_n": found.rounds, "draft_calls_n": found.draft_forwards,
                    "target_calls_n": found.target_calls, "ar_predicted_s": (N - 1) * STEP,
                    "spec_predicted_s": seconds(found), "R_predicted": R, "R_predicted_low": None,
                    "R_predicted_high": R * 1.01, "extrapolated": False,
                }
            )  # fmt: skip
    return rows


def proposals_rows() -> pd.DataFrame:
    """Two rounds of two: one accepted whole; one refused at place 1 (rank 3, gap 0.5), place 2 unreached (rank 9)."""
    rows = []
    for round_n, place, rank, gap, accepted, reached in (
        (0, 1, 1, 0.0, True, True), (0, 2, 1, 0.0, True, True),
        (1, 1, 3, 0.5, False, True), (1, 2, 9, 4.0, False, False),
    ):  # fmt: skip
        rows.append(
            BASE_ROW | {
                "family": "question-document", "round_n": round_n, "block_position": place, "position_tokens": place,
                "token_id": 1, "rank": rank, "probability": 0.1, "gap_logits": gap, "accepted": accepted,
                "reached": reached,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def trace_rows() -> pd.DataFrame:
    rows = []
    for family, passes in BITS.items():
        found = counts_from_trace([bit == "1" for bit in passes], K, N)
        rows.append(
            BASE_ROW | {
                "family": family, "passes": passes, "pass_share": passes.count("1") / N, "rounds_n": found.rounds,
                "rounds_by_trace_n": found.rounds, "acceptance": found.accepted / found.proposed, "alpha": 0.7,
                "identical": True,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The design and the published tables; nothing measured."""
    shutil.copyfile(REPOSITORY / "design.toml", tmp_path / "design.toml")
    shutil.copytree(REPOSITORY / "data" / "published", tmp_path / "data" / "published")
    return tmp_path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table of the made-up machine, written once."""
    folder = tmp_path_factory.mktemp("tables")
    rows = prediction_rows()
    digest = sha256_text(canonical_json(rows))
    for phase in PHASES:
        table = mechanism_rows(phase, digest if phase == "cost-model" else None)
        write_table(table, folder / f"{phase}.csv", "mechanism")
    shared = {"profile": "cpu", "design_hash": HASH}
    write_table(pd.DataFrame([shared | row for row in rows]), folder / "predictions.csv", "predictions")
    write_table(fit_rows(), folder / "cost-fit.csv", "cost-fit")
    write_table(costs_rows(), folder / "costs.csv", "costs")
    write_table(proposals_rows(), folder / "acceptance.csv", "proposals")
    write_table(trace_rows(), folder / "traces.csv", "traces")
    even = BASE_ROW | {
        "formulation": "repair-free", "bonus": True, "k": K, "c_steps": C, "v_steps": verify(5), "alpha": 0.75,
        "break_even_alpha": None, "best_k": 4, "R_at_best_k": 1.5, "extrapolated": False,
    }  # fmt: skip
    write_table(pd.DataFrame([even]), folder / "break-even.csv", "break-even")
    record = {
        "profile": "cpu", "design_hash": HASH, "machine": {"cpu": "Example CPU", "threads_used": 2},
        "device": {"device": "cpu", "dtype": "fp32"},
        "models": {"target": {"step_bytes": 3e8, "kv_bytes_per_token": 0, "layers": 30},
                   "draft": {"step_bytes": 1e8, "kv_bytes_per_token": 0, "layers": 4}},
    }  # fmt: skip
    (folder / "provenance.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def one(project: Path, tables: Path) -> folders.Results:
    """The made-up machine as a folder of results, free to be changed by the test."""
    shutil.copytree(tables, project / "data" / "mine")
    return next(found for found in folders.all_folders(project) if found.name == "mine")


def slower(one: folders.Results, file: str, factor: float, **where: Any) -> None:
    """Multiply some measured times of a table."""
    path = one.folder / file
    table = read_table(path, "mechanism")
    chosen = pd.Series(True, index=table.index)
    for column, value in where.items():
        chosen &= table[column] == value
    assert chosen.any()
    table.loc[chosen, "decode_s"] *= factor
    write_table(table, path, "mechanism")
    one._made.clear()  # an opened folder derives its tables once; pages open it again


# -- pages


SHOWS = (
    acceptance.show_shares, places.show, traces.show_cells, traces.show_traces, oracles.show_all_accept, freedraft.show,
    dial.show_curve, dial.show_crossing, replay.show, stages.show_audit, stages.show, costline.show,
    residuals.show_first, residuals.show, bestk.show, synthesis.show_published, synthesis.show_waterfall,
    chain.show_boundary,
)  # fmt: skip


def test_every_section_shows_without_data(project: Path, shown: list[str]) -> None:
    for show in SHOWS:
        before = len(shown)
        show(project)
        assert len(shown) > before, show
    for name in ("results", *chain.STEPS):
        before = len(shown)
        chain.show_step(name, project)
        assert len(shown) > before
    told = " ".join(shown)
    assert "make runs PROFILE=cpu-full" in told and "Example CPU" not in told


def test_every_section_shows_its_data(
    one: folders.Results, project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for phase in ("all-accept", "draft-free"):
        oracles.show(phase, project)
        oracles.show_rounds(phase, project)
    for show in SHOWS:
        before = len(shown)
        show(project)
        assert len(shown) > before, show
    monkeypatch.setattr(folders.Results, "quick", False)  # of a quick look the chain says nothing
    for name in ("acceptance", "all-accept", "draft-free", "dial", "formulations", "cost-model"):
        chain.show_step(name, project)
        assert shown[-1].startswith("`mine (this machine)`: "), name
    figures = [part for part in shown if "study-figure" in part]
    assert len(figures) >= 9
    for figure in figures:
        assert 'alt="' in figure and ("Example CPU, 2 threads, FP32" in figure or "Published" in figure)
        if any(of_R in figure for of_R in ("R over", "Predicted against", "Waterfall", "R_GM of every")):
            assert any(label in figure for label in ("(real)", "synthetic", "oracle")), figure[:300]


# -- acceptance


def test_shares_name_their_denominators() -> None:
    proposals = proposals_rows()
    found = acceptance.shares(proposals).set_index("population")
    assert list(found["n"]) == [4, 3, 1, 2]
    assert list(found["rank_n"]) == [3, 3, 1, 1] and list(found["gap_n"]) == [3, 3, 1, 1]
    shown = acceptance.shares_table(acceptance.shares(proposals))
    assert shown.iloc[0]["gap ≤ 1 logit"] == "57.4\u00a0%" and "(1 of 2)" in shown.iloc[4]["gap ≤ 1 logit"]
    before = acceptance.share_sentences(acceptance.shares(proposals))
    proposals.loc[2, "gap_logits"] = 1.5
    after = acceptance.share_sentences(acceptance.shares(proposals))
    assert "100.0\u00a0%" in before[0] and "0.0\u00a0%" in after[0] and before[0] != after[0]
    assert "all proposed" in before[1]


def test_places_are_conditional_and_unconditional() -> None:
    frame = places.positions(proposals_rows())
    assert list(frame["conditional"]) == [0.5, 1.0] and list(frame["unconditional"]) == [0.5, 0.5]
    assert places.counted_alpha(frame) == pytest.approx(2 / 3)
    assert places.wilson(5, 10) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    assert places.wilson(0, 0) == (None, None)
    assert "nothing speaks against one alpha" in places.position_sentence(frame)
    many = frame.assign(low=[0.49, 0.98], high=[0.51, 1.0])
    assert "does not describe every place" in places.position_sentence(many)


def test_the_trace_gives_the_rounds_or_is_said_not_to() -> None:
    table = trace_rows()
    assert "In all 2 cells" in traces.trace_sentences(table)[1]
    assert "In the one cell" in traces.trace_sentences(table.iloc[:1])[1]
    table.loc[0, ["rounds_n", "identical"]] = [30, False]
    assert (
        "in 1 of 2 cells; not in summarise-proceedings at 2K (30 against" in traces.trace_sentences(table)[1]
    )
    assert "the eager draft's" in traces.trace_sentences(table, captured=True)[1]
    assert "acceptance, real run" not in traces.traces_table(table, {}), "of another text than the trace"
    assert traces.follow_ups(["1100"], "1") == (1, 2) and traces.follow_ups(["1100"], "0") == (0, 1)
    told = traces.trace_sentences(table.assign(passes="1" * 32 + "0" * 32))[0]
    assert "passes come in runs, inside single traces too" in told
    assert "is not shown" in traces.trace_sentences(table.assign(passes="10" * 32))[0]
    told = traces.runs_sentence(["1" * 63 + "0", "0" * 63 + "1"])
    assert "come in runs, but not inside single traces" in told, "two alphas, pooled, are no runs"
    assert "Too few" in traces.runs_sentence(["1111"])
    assert "0.667 [" not in told and "Wilson" in told


# -- oracles


def test_the_costs_are_found_again_from_R(one: folders.Results) -> None:
    full, free = (mechanisms.by_family(one, phase) for phase in ("all-accept", "draft-free"))
    row = oracles.draft_costs(full, free, N).iloc[0]
    assert row["v"] == pytest.approx(verify(4) + OVERHEAD)
    assert row["c_counted"] == pytest.approx(C) and row["c_formula"] == pytest.approx(C * 63 / 64)
    assert row["c_limit"] == pytest.approx((63 / 16 - row["v"]) / 4)
    cheap = oracles.draft_cost_sentences(oracles.draft_costs(full, free, N), {CONTEXT: C})
    assert "perfect acceptance pays at every context" in cheap[0] and "differs by" in cheap[1]
    dear = oracles.draft_costs(full.assign(R=full["R"] / 4), free, N)
    assert "even perfect acceptance does not pay" in oracles.draft_cost_sentences(dear, {})[0]
    for few in (dear.assign(n=1), dear.assign(spread=9.0)):
        (told,) = oracles.draft_cost_sentences(few, {})
        assert "whether perfect acceptance pays is undecided at 2K (R = " in told and "too dear" not in told
    both = pd.concat([dear, dear.assign(context_tokens=8192, R=1.5)])
    told = oracles.draft_cost_sentences(both, {})[0]
    assert "perfect acceptance pays at 8K; even perfect acceptance does not pay at 2K" in told
    assert "could not pay there" in oracles.published_c_sentence()[0] and "N = 64" in oracles.COUNTED
    bonus = freedraft.verification_costs(free, N).set_index("variant").loc["draft-free, bonus"]
    assert bonus["rounds_n"] == 13 and bonus["reached"] == pytest.approx(1 / bonus["v"])
    costs = freedraft.verification_costs(free, N)
    both = pd.concat([costs.assign(v=1.09), costs.assign(v=1.11, context_tokens=8192)], ignore_index=True)
    (told,) = freedraft.verification_sentences(both)
    assert "hardly more than a step (at most 10 %) at 2K, clearly more (above 10 %) at 8K." in told


def test_a_verification_below_one_step_limits_no_draft(one: folders.Results) -> None:
    full, free = (mechanisms.by_family(one, phase) for phase in ("all-accept", "draft-free"))
    fast = free.assign(R=free["R"] * 5, context_tokens=8192)  # v below one AR step
    frame = oracles.draft_costs(
        pd.concat([full, full.assign(context_tokens=8192)]), pd.concat([free, fast]), N
    )
    limits = oracles.draft_cost_table(frame, "here")["largest c with R = 1 (by v)"]
    assert list(limits)[-2:] == [text.number(frame["c_limit"].iloc[0]), oracles.BELOW]
    costs, beside = oracles.draft_cost_sentences(frame, {CONTEXT: C, 8192: C})
    alone = oracles.draft_cost_sentences(frame[frame["steady"]], {CONTEXT: C})
    assert "at most " + limits.iloc[-2] + " (no limit at 8K: v below a step)" in costs
    assert costs.replace(" (no limit at 8K: v below a step)", "") == alone[0] and beside == alone[1]
    (none,) = oracles.draft_cost_sentences(frame[~frame["steady"]], {8192: C})
    assert none.startswith("No limit of c can be told (v below a step at 8K") and "not measured" not in none


def test_a_verification_below_one_step_gets_no_verdict(
    one: folders.Results, project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.Results, "quick", False)
    assert freedraft.above_ceiling(mechanisms.by_family(one, "draft-free"), N).empty
    freedraft.show(project)
    assert "hardly more" in "".join(shown) or "clearly more" in "".join(shown)
    assert "unsteady" not in chain.STEPS["draft-free"](one)
    shown.clear()
    slower(one, "draft-free.csv", 0.2, variant="draft-free")  # five times as fast: above its ceiling
    told = "".join((freedraft.show(project), shown)[1])
    assert "In 2 of 4 cells (at 2K) R lies above its ceiling" in told and "no verdict" in told
    assert "clearly more" not in told and "it goes when drafting is free" not in told
    assert "above the ceiling" in chain.one_variant("draft-free", "draft-free")(one)


def test_rounds_follow_from_counting(one: folders.Results) -> None:
    cells = mechanisms.by_family(one, "all-accept")
    told = oracles.round_sentences(cells, N)
    assert (
        "16 rounds for 64 tokens by arithmetic, measured in all 2 cells" in told[0] and "13 rounds" in told[1]
    )
    cells.loc[cells["variant"] == "all accepted, bonus", "rounds_n"] = 16
    assert "measured in 0 of 2 cells only" in oracles.round_sentences(cells, N)[1]


# -- dial


def test_one_family_has_one_value_and_no_range(one: folders.Results) -> None:
    cells = mechanisms.by_family(one, "dial")
    alone = curve.curve(cells[cells["family"] == cells["family"].iloc[0]])
    for value, R in zip(dial.curve_table(alone, {}, {}, N)["range"], alone["R_GM"], strict=True):
        assert value == f"{style.number(R)} (one family)"
    assert "without a spread" in dial._spread(alone) and "range" in dial._spread(alone.assign(n=2))


@pytest.mark.parametrize(
    ("ratios", "alpha"),
    [([0.5, 0.5, 2.0], 0.75), ([1.0, 1.2, 1.4], 0.0), ([0.5, 0.6, 0.9], None), ([0.5, 1.0, 2.0], 0.5)],
)
def test_the_crossing_is_interpolated_in_log_R(ratios: list[float], alpha: float | None) -> None:
    assert curve.crossing([0.0, 0.5, 1.0], ratios) == (None if alpha is None else pytest.approx(alpha))


def test_the_dial_follows_the_line_for_the_bits_drawn(one: folders.Results) -> None:
    cells = mechanisms.by_family(one, "dial")
    lines = costline.lines(one)
    bits, frame = curve.by_bits(cells, lines, N), curve.curve(cells)
    for row in frame.to_dict("records"):
        assert bits[CONTEXT, row["alpha"]] == pytest.approx(row["R_GM"])
    assert "off by 0.0\u00a0% in the mean" in curve.bits_sentence(frame, bits)
    told = curve.crossing_sentences(frame, lines, N)[0]
    assert "R crosses 1 at alpha" in told and "The cost line says: alpha = " in told
    never = frame.assign(R_GM=frame["R_GM"] / 10)
    assert "stays below 1" in curve.crossing_sentences(never, lines, N)[0]


def test_the_break_even_alpha_is_told_with_each_way_to_find_it(one: folders.Results) -> None:
    told = chain.dial_found(one)
    assert "measured by imposed bits alpha = " in told and "; by the cost line alpha = " in told
    assert "the luck of the few bits" in told
    (one.folder / "cost-fit.csv").unlink()
    assert "cost line" not in chain.dial_found(one) and "luck" not in chain.dial_found(one)
    over = curve.over_contexts({2048: 0.5, 4096: 0.6, 8192: None})
    assert over == "alpha = 0.500 to 0.600 over 2K and 4K and no alpha pays at 8K"
    assert curve.over_contexts({2048: 0.0, 4096: 0.6}) == "alpha = 0.600 at 4K and every alpha pays at 2K"


def test_each_folder_s_crossings_carry_its_name(
    one: folders.Results, project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(one.folder, project / "data" / "other")
    monkeypatch.setattr(folders.Results, "quick", False)
    for show in (dial.show_crossing, dial.show_curve):
        shown.clear()
        show(project)
        said = [part for part in shown if "R crosses 1" in part]
        assert ["**mine (this machine).** At 2K" in part for part in said] == [True, False]
        assert ["**other (this machine).** At 2K" in part for part in said] == [False, True]
        assert all(part.count("(this machine).**") == 1 for part in said), "once, not per paragraph"


def test_replay_is_held_against_the_real_draft(one: folders.Results) -> None:
    def told(cells: int) -> str:
        frame = replay.compared(mechanisms.by_family(one, "dial"))
        return replay.sentences(pd.concat([frame, frame]).head(cells))[0]

    assert "in all 3 cells" in told(3) and "costs what is real" in told(3)
    assert "2 cells, and so few decide nothing" in told(2) and "costs what is real" not in told(2)
    slower(one, "dial.csv", 1.2, variant="recorded trace")
    assert "do not stand for those of a real draft" in told(3) and "20.0\u00a0%" in told(3)
    assert "its time is 1.20 of the real run's: 1 cell, and so few" in told(1)
    assert "do not stand" not in told(1)


def test_captions_name_the_pair(
    one: folders.Results, project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for show in (
        traces.show_cells, traces.show_traces, oracles.show_all_accept, freedraft.show, dial.show_curve, replay.show,
        residuals.show,
    ):  # fmt: skip
        shown.clear()
        show(project)
        told = " ".join(shown)
        assert told.count("2 threads, FP32, pair smol.") == told.count("2 threads, FP32") > 0, show


# -- the cost line


def test_the_line_is_read_from_the_fit(one: folders.Results) -> None:
    line = costline.line_at(one.table("cost-fit.csv", "cost-fit"), CONTEXT)
    assert (line.c, line.repair, line.overhead) == (C, REPAIR, OVERHEAD)
    assert line.verify(1) == pytest.approx(verify(1)) and line.verify(9) == pytest.approx(verify(9))
    counted = counts_from_trace([True] * N, K, N)
    assert line.R_of(counted) == pytest.approx((N - 1) * STEP / seconds(counted))
    assert line.predicted_R(1.0, K, "reference", False, N) == pytest.approx(line.R_of(counted))


def test_the_largest_part_is_computed() -> None:
    fit = fit_rows()
    assert "The largest part is verification" in costline.fit_sentences(fit, K)[0]
    fit.loc[fit["component"] == "draft forward", "steps"] = 0.9
    assert "The largest part is the draft" in costline.fit_sentences(fit, K)[0]


def test_stage_shares_stand_beside_the_published_one() -> None:
    costs = costs_rows()
    told = stages.sentences(costs, K)[0]
    assert "60.8" in told and "the largest is verify" in told
    costs["draft_s"] *= 20
    assert "the largest" not in stages.sentences(costs, K)[0]


def test_the_prediction_was_first(one: folders.Results) -> None:
    predictions = one.table("predictions.csv", "predictions")
    runs = one.table("cost-model.csv", "mechanism")
    assert "All 40 measured rows carry it" in residuals.first_sentence(predictions, runs, "mine")
    predictions.loc[0, "R_predicted"] += 1e-9
    assert "Only 0 of 40" in residuals.first_sentence(predictions, runs, "mine")


def joined(one: folders.Results) -> Any:
    predictions = one.table("predictions.csv", "predictions")
    return residuals.residuals_table(predictions, mechanisms.by_family(one, "cost-model"))


def test_the_residual_verdict_flips_at_five_per_cent(one: folders.Results) -> None:
    frame = joined(one)
    assert frame["residual"].abs().max() < 1e-9 and residuals.large_sentences(frame)[0].startswith(
        "No residual"
    )
    for size, word in ((0.0499, "reaches"), (-0.0499, "reaches"), (0.0501, "misses"), (-0.0501, "misses")):
        assert f"**{word}**" in residuals.verdict_sentences(frame.assign(residual=size), [0.01])[0]
    assert "Bars: 95 % t interval of the prediction" in residuals.bars(frame.assign(R_predicted_low=0.9))
    none = residuals.bars(frame.assign(R_predicted_low=None))
    assert none.startswith("Bars: slowest and fastest repeat") and "too few for an interval" in none
    inside = list(residuals.in_sample_residuals(one.table("costs.csv", "costs")))
    shown = residuals.summary(frame, inside).set_index("set")
    assert shown.loc["in sample: development runs", "n"] == len(DEVELOPMENT) * 8
    assert shown.loc["out of sample: all held-out", "n"] == len(frame) == 18
    assert max(map(abs, inside)) < 1e-6


def test_a_large_residual_is_listed_with_its_cause(one: folders.Results) -> None:
    slower(one, "cost-model.csv", 1.25, variant="reference", family="question-document")
    frame = joined(one)
    shown = residuals.large_table(frame)
    assert len(shown) == 1 and shown.iloc[0]["due to"] == "the variant's time"
    assert (
        shown.iloc[0]["variant"] == "reference (real)" and shown.iloc[0]["variant's time"] == "+25.0\u00a0%"
    )
    slower(one, "cost-model.csv", 1.25, variant="ar", family="question-document")
    assert set(residuals.large_table(joined(one))["due to"]) == {"AR's time"}, (
        "reference is even again, the others are not"
    )


@pytest.mark.parametrize(
    ("ar", "spec", "rounds", "beyond", "expected"),
    [(0.2, 0.0, 20, False, "AR's time"), (0.0, 0.2, 20, False, "the variant's time"),
     (-0.08, 0.05, 20, False, "AR's time (-8.0\u00a0%), the variant's time (+5.0\u00a0%)"),
     (0.25, 0.12, 20, False, "AR's time (+25.0\u00a0%), the variant's time (+12.0\u00a0%)"),
     (0.25, 0.05, 20, False, "AR's time"), (0.0, 0.2, 21, False, "21 rounds instead of 20, the variant's time"),
     (-0.2, 0.0, 20, True, "AR's time, extrapolated context")],
)  # fmt: skip
def test_causes(ar: float, spec: float, rounds: int, beyond: bool, expected: str) -> None:
    row = {
        "ar_residual": ar, "spec_residual": spec, "residual": (1 + ar) / (1 + spec) - 1, "rounds_n": 20,
        "rounds_measured_n": rounds, "same_rounds": rounds == 20, "extrapolated": beyond,
        "R_predicted": 1.0, "R_low": 1.1, "R_high": 1.2, "disturbed": False, "others_cpu_share": 0.31,
    }  # fmt: skip
    assert residuals.cause(row) == expected
    assert residuals.cause(row | {"R_low": 0.9}) == f"{expected}, inside the spread of its repeats"
    assert (
        residuals.cause(row | {"disturbed": True}) == f"{expected}, run disturbed (others used 31.0\u00a0%)"
    )


def test_large_residuals_are_counted_by_which_times_are_off(one: folders.Results) -> None:
    frame: Any = joined(one).head(3)
    frame = frame.assign(
        ar_residual=[0.2, 0.1, 0.3], spec_residual=[-0.15, -0.1, 0.0], residual=0.2, R_low=9.0, R_high=9.0
    )
    (told,) = residuals.large_sentences(frame)
    assert told.endswith("Due to: both times (2) and AR's time (1).")


def test_the_best_k_predicted_and_found(one: folders.Results) -> None:
    frame = bestk.compared(
        one.table("predictions.csv", "predictions"), mechanisms.by_family(one, "cost-model")
    )
    assert list(frame["k"]) == [1, 2, 4, 6, 8] and list(frame["n"]) == [2] * 5
    assert ", and it was (R = " in bestk.sentences(frame)[0]
    best = int(frame.loc[frame["predicted"].idxmax(), "k"])
    other = frame.assign(measured=[2.0 if k == 1 else 1.5 for k in frame["k"]])
    assert (
        best != 1
        and "found best: 1" in bestk.sentences(other)[0]
        and "25.0\u00a0% less" in bestk.sentences(other)[0]
    )
    table = read_table(one.folder / "break-even.csv", "break-even")
    assert bestk.break_even_table(table).iloc[0][f"break-even alpha at k = {K}"] == "none pays"
    assert bestk.two_predictions(table.assign(best_k=best), frame) == []
    (told,) = bestk.two_predictions(table.assign(best_k=7), frame)
    assert told.endswith(f"two best k: 7 by the table and {best} by the figure at 2K.")


# -- synthesis


def test_one_family_is_its_own_range() -> None:
    """The geometric mean of one value may lie a rounding beside it; no error bar may be negative for that."""
    import matplotlib.pyplot as plt

    one = {"context_tokens": 2048, "k": 1, "n": 1, "predicted": 1.0}
    for beside in (1 - 1e-16, 1 + 3e-16):
        R = 1.1231
        plt.close(bestk.figure(pd.DataFrame([one | {"measured": R * beside, "low": R, "high": R}])))


def test_the_waterfall_sums_to_the_measured_time(one: folders.Results) -> None:
    fall = waterfall.waterfalls(one)[0]
    assert fall.n == 2 and fall.ar == N - 1
    assert fall.ar + sum(fall.parts.values()) == pytest.approx(fall.spec)
    assert fall.parts[waterfall.REST] == pytest.approx(0, abs=1e-9), "this machine follows its line"
    R = mechanisms.by_family(one, "formulations")
    reference = R[R["variant"] == "reference"]["R"]
    assert fall.spec == pytest.approx(((N - 1) / reference).mean())
    slower(one, "formulations.csv", 1.1, variant="reference")
    again = waterfall.waterfalls(one)[0]
    assert again.parts[waterfall.REST] == pytest.approx(0.1 * fall.spec)
    assert again.parts[waterfall.DRAFT] == fall.parts[waterfall.DRAFT]
    assert again.ar + sum(again.parts.values()) == pytest.approx(again.spec) and again.spec == pytest.approx(
        1.1 * fall.spec
    )
    assert again.saved["draft-free"] - fall.saved["draft-free"] == pytest.approx(0.1 * fall.spec)
    assert set(fall.labels.values()) == {"real", "synthetic", "oracle"}


def test_what_stands_in_the_way_is_computed(one: folders.Results) -> None:
    fall = waterfall.waterfalls(one)[0]
    saved = {"all accepted": 10.0, "draft-free": 60.0}
    for spec, kind in ((50.0, "nothing"), (70.0, "acceptance"), (80.0, "draft"), (130.0, "verification")):
        made = dataclasses.replace(fall, spec=spec, saved=saved, labels=dict.fromkeys(saved, "oracle"))
        assert waterfall.limit(made) == kind
    better = dataclasses.replace(fall, spec=70.0, saved={"repair-free": 10.0}, labels={"repair-free": "real"})
    assert waterfall.limit(better) == "engine"
    R_GM = {"reference": "0.904 [0.717, 1.14]", "repair-free": "1.24 [1.03, 1.49]"}
    judged = dataclasses.replace(
        better, R_GM=R_GM, verdicts={"reference": "undecided", "repair-free": "pays"}
    )
    told = synthesis.overall([judged])
    assert (
        "0.904 [0.717, 1.14] with the reference engine, which contains 1: undecided; 1.24 [1.03, 1.49]"
        in told
    )
    assert set(fall.R_GM) == {"reference", *fall.saved}, "of the folder's own tables"
    dear = dataclasses.replace(fall, spec=80.0, saved=saved, labels=dict.fromkeys(saved, "oracle"))
    assert "the draft is what is too dear at 2K" in synthesis.overall([dear])
    assert "R = 0.849 to 0.860" in synthesis.overall([dear])
    costly = dataclasses.replace(fall, parts=fall.parts | {waterfall.REPAIR: 99.0})
    assert "largest of them is repairs with 99.0" in synthesis.findings(costly)[0]
    assert "more than is saved" in synthesis.findings(costly)[0]


def test_R_of_the_mechanisms_is_labelled_as_theirs(
    one: folders.Results, project: Path, shown: list[str]
) -> None:
    fall = waterfall.waterfalls(one)[0]
    assert "(from the mean times of 2 mechanism families only)" in synthesis.findings(fall)[0]
    assert "mechanism" not in synthesis.findings(waterfall.published_waterfalls(project)[0])[0]
    assert synthesis.weight(fall).startswith(" (2 mechanism families; R_GM ")
    for step in ("all-accept", "draft-free"):
        assert chain.STEPS[step](one).endswith("; mechanism families only (2 at 2K).")
    synthesis.show_waterfall(project)
    assert "means over mechanism families only (2 at 2K)" in next(
        part for part in shown if "study-table" in part
    )
    assert "means over 2 mechanism families" in next(part for part in shown if "study-figure" in part)


def test_phases_that_did_the_same_work_must_agree(one: folders.Results) -> None:
    assert chain.phases_apart(one) == ""
    slower(one, "formulations.csv", 1.5, variant="repair-free, bonus")
    told = chain.phases_apart(one)
    assert (
        told.startswith("In `mine` phases that did the same work on the same text")
        and "more than 20\u00a0%" in told
    )
    assert "(repair-free, bonus, k = 4): " in told and "(formulations)" in told and "(cost-model)" in told


def test_what_is_cited_beside_the_rows_is_named(one: folders.Results, project: Path) -> None:
    told = chain.beside_sentence(project)
    assert told == "Cited beside these rows: the published tables of the article."


def test_R_of_everything_accepted_carries_its_k(one: folders.Results) -> None:
    assert "all accepted, bonus (synthetic), k = 4: R_GM = " in chain.STEPS["all-accept"](one)


def test_the_published_waterfall_is_the_audit(project: Path) -> None:
    falls = waterfall.published_waterfalls(project)
    assert [fall.context for fall in falls] == [2048, 4096, 8192]
    for fall in falls:
        assert fall.ar + sum(fall.parts.values()) == pytest.approx(fall.spec)
        assert pytest.approx(64 / fall.spec) == fall.R and waterfall.limit(fall) == "draft"
    assert math.isclose(falls[0].R, 0.531)


def test_labels_stand_at_every_variant(one: folders.Results) -> None:
    fall = waterfall.waterfalls(one)[0]
    for name in fall.saved:
        assert f"{name} ({fall.labels[name]})" in synthesis.alt(fall)
    assert "(synthetic)" in " ".join(
        dial.curve_table(curve.curve(mechanisms.by_family(one, "dial")), {}, {}, N)["alpha"]
    )
    assert text.context_name(CONTEXT) == "2K"
