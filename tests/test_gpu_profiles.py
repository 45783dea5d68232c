"""What GPU profiles add, on the CPU's tiny pair: scripted acceptance, shared processes, outcomes, refusals."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec_lib import jobs, provenance, room
from specdec_lib import study as study_module
from specdec_lib.costfit import fit
from specdec_lib.costmodel import counts_from_trace
from specdec_lib.costs import costs_table, fitting_variants
from specdec_lib.design import load_design, parse_design
from specdec_lib.errors import InvalidDesign, InvalidSetting, JobFailed, OutOfDeviceMemory, TableMissing
from specdec_lib.guesses import guessed_R
from specdec_lib.jobs import Served, read_job, write_job
from specdec_lib.measure import confirmatory, scripted_passes
from specdec_lib.mechanisms import chosen_variants, proposals_tables, run_phase
from specdec_lib.pairs import pair_digest
from specdec_lib.pipeline import runner
from specdec_lib.predictions import break_even_table, predictions_table
from specdec_lib.prompts import prompts_digest
from specdec_lib.records import write_table
from specdec_lib.roofline import weight_bytes
from specdec_lib.study import Study, open_study, sharing
from specdec_lib.variants import PHASES
from tests.test_measure import CONTEXT, ROOT, small_design
from tests.test_mechanisms import MECHANISMS

RAW = tomllib.loads((ROOT / "design.toml").read_text(encoding="utf-8"))
ALPHA = 0.6
SCRIPTED: dict[str, Any] = {"isolation": "context", "scripted": {str(CONTEXT): ALPHA}}
ALONE: dict[str, Any] = SCRIPTED | {"isolation": "block"}


def study_in(folder: Path, families: int = 1, **profile: Any) -> Study:
    return open_study(
        "toy", folder / "data" / "toy", small_design(families, mechanisms=MECHANISMS, **profile)
    )


# --- the design ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, entry in RAW["profiles"].items() if entry.get("committed")])
def test_committed_rows_are_of_this_design(name: str) -> None:
    """A field that a profile does not set must not change its hash: its rows would be orphaned."""
    recorded = ROOT / "data" / name / "provenance.json"
    if not recorded.is_file():
        pytest.skip(f"data/{name} is not there")
    design = load_design(ROOT / "design.toml")
    digest = design.measurement_hash(name, prompts_digest(), pair_digest(design.profile(name).pair))
    assert json.loads(recorded.read_text())["design_hash"] == digest


def gpu_profile(**fields: Any) -> dict[str, Any]:
    content = copy.deepcopy(RAW)
    entry = {
        "title": "t", "pair": "qwen2.5-shapes", "device": "cuda", "isolation": "context",
        "phases": ["confirmatory"], "minutes": {"confirmatory": 1},
    }  # fmt: skip
    content["profiles"]["gpu"] = entry | fields
    return content


CAPTURED = {"mode": "compiled", "formulation": "repair-free", "bonus": True}
ALPHAS = {"2048": 0.77, "4096": 0.755, "8192": 0.735}


@pytest.mark.parametrize(
    "fields",
    [
        CAPTURED, CAPTURED | {"mode": "graphs"}, CAPTURED | {"k": 1}, {"scripted": ALPHAS}, {"memory_cap_gib": 8},
        {"scripted": ALPHAS, "traces_from": "cpu-full"}, {"scripted": ALPHAS | {"2048": 0.5}}, {"dtype": "bf16"},
        {"k": 5}, {"bonus": True}, {"formulation": "repair-free"},
    ],
)  # fmt: skip
def test_what_a_profile_sets_is_part_of_its_hash(fields: dict[str, Any]) -> None:
    plain, other = (parse_design(gpu_profile(**f)).measurement_hash("gpu", "p", "m") for f in ({}, fields))
    assert plain != other


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"mode": "compiled"}, "repair-free rounds with bonus"),
        (CAPTURED | {"bonus": False}, "bonus false"),
        (CAPTURED | {"device": "cpu"}, "needs a GPU"),
        (CAPTURED | {"device": "auto"}, "needs a GPU"),
        ({"memory_cap_gib": 8, "device": "cpu"}, "memory_cap_gib needs a GPU"),
        ({"mode": "graph"}, "mode"),
        ({"scripted": {"2048": 0.7}}, "gives an alpha at"),
        ({"scripted": ALPHAS | {"2048": 1.5}}, "scripted"),
        ({"traces_from": "cpu-full"}, "a scripted profile takes the traces"),
        ({"scripted": ALPHAS, "traces_from": "gpu"}, "one that records them"),
        ({"scripted": ALPHAS, "traces_from": "cpu-fulll"}, "'cpu-full'"),
    ],
)
def test_what_cannot_work_is_refused_before_work(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidDesign) as caught:
        parse_design(gpu_profile(**fields), "design.toml")
    assert says in str(caught.value) and "profiles.gpu" in str(caught.value)


# --- scripted acceptance ------------------------------------------------------------------------------------


def test_a_scripted_confirmatory_run_imposes_its_alpha(jobs_here: list[str], tmp_path: Path) -> None:
    """Both arms and all families in one process per block, prefills made inside; rounds are those of the bits."""
    study = study_in(tmp_path, families=2, repeats=3, **SCRIPTED)
    runs: Any
    runs, stages = confirmatory(study, CONTEXT)
    assert jobs_here == ["calibrate", "confirmatory-256-AB", "confirmatory-256-BA"] and len(runs) == 12
    assert not list(tmp_path.rglob("*.safetensors")) and set(runs["isolation"]) == {"context"}
    assert set(runs["mode"]) == {"eager"} and len(stages) == 2 * 5
    p = study.profile
    for (family, arm), rows in runs.groupby(["family", "arm"]):
        bits = scripted_passes(p, family, CONTEXT)
        expected = counts_from_trace(bits, p.k, p.new_tokens, p.formulation, p.bonus)
        if arm == "spec":
            assert set(rows["rounds_n"]) == {expected.rounds}
            assert set(rows["accepted_tokens"]) == {expected.accepted}
    assert len({tuple(scripted_passes(p, f, CONTEXT)) for f in p.families}) == 2
    assert set(runs["first_divergence_tokens"].isna()) == {True}, "the imposed text is AR's own"


@pytest.mark.parametrize("phase", ["all-accept", "draft-free", "dial", "formulations", "cost-model"])
def test_scripted_phases_replay_one_script(phase: str, jobs_here: list[str], tmp_path: Path) -> None:
    runs: Any
    study = study_in(tmp_path, **ALONE)
    runs, _ = run_phase(study, phase)
    names = [v.name for v in PHASES[phase]]
    assert list(dict.fromkeys(runs["variant"])) == ["ar", *names]
    assert set(runs["label"]) - {"synthetic", "oracle"} <= {"real"}
    assert set(runs[runs["label"] == "real"]["variant"]) == {"ar"}, (
        "nothing of a scripted profile is real but AR"
    )
    family, p = study.profile.families[0], study.profile
    checked = 0
    for v in chosen_variants(p, phase):
        if v.trace == "recorded":
            assert v.k
            bits = scripted_passes(p, family, CONTEXT)
            expected = counts_from_trace(bits, v.k, p.new_tokens, v.formulation, v.bonus)
            assert set(runs[runs["variant"] == v.name]["rounds_n"]) == {expected.rounds}
            checked += 1
    assert checked or phase in ("all-accept", "draft-free")
    assert jobs_here[2] == f"text-{CONTEXT}-{family}" and not [
        name for name in jobs_here if name.startswith("trace")
    ]
    guessed = guessed_R(study, phase)
    assert set(guessed["variant"]) == set(names)


def test_a_cell_keeps_its_script_whatever_happens_to_the_source(jobs_here: list[str], tmp_path: Path) -> None:
    design = small_design(mechanisms=MECHANISMS)
    recording = open_study("toy", tmp_path / "data" / "recording", design)
    _, traces = proposals_tables(recording)
    source = recording.folder / "traces.csv"
    write_table(traces, source, "traces")
    scripted = small_design(mechanisms=MECHANISMS, **ALONE)
    profile = scripted.profile("toy").model_copy(update={"traces_from": "recording"})
    study = open_study("toy", tmp_path / "data" / "toy", scripted)._replace(profile=profile)
    runs: Any
    runs, _ = run_phase(study, "formulations")
    bits = [bit == "1" for bit in traces["passes"].iloc[0]]
    expected = counts_from_trace(bits, profile.k, profile.new_tokens)
    assert set(runs[runs["variant"] == "reference"]["rounds_n"]) == {expected.rounds}
    source.unlink()
    again, _ = run_phase(study, "formulations")
    assert again.equals(runs)
    with pytest.raises(TableMissing, match="no table recording/traces.csv"):
        run_phase(study._replace(folder=tmp_path / "data" / "other"), "formulations")


def test_traces_that_nothing_recorded_are_refused_before_any_step(tmp_path: Path) -> None:
    design = small_design(mechanisms=MECHANISMS, **ALONE)
    profile = design.profile("toy").model_copy(update={"traces_from": "recording", "phases": ("dial",)})
    runner.require_traces(tmp_path, profile.model_copy(update={"phases": ("confirmatory",)}))
    with pytest.raises(TableMissing, match=r"data/recording(.|\n)*make runs PROFILE=recording"):
        runner.require_traces(tmp_path, profile)
    (tmp_path / "data" / "recording").mkdir(parents=True)
    (tmp_path / "data" / "recording" / "traces.csv").write_text("")
    runner.require_traces(tmp_path, profile)


def test_the_cost_line_of_a_scripted_profile(jobs_here: list[str], tmp_path: Path) -> None:
    study = study_in(tmp_path, **ALONE)
    table: Any = costs_table(study)
    free = table[table["formulation"] == "repair-free"]
    assert set(free["rejections_n"]) == {0}, "all accepted: few rounds, though the weights are random"
    assert set(free["k"]) == {1, 2, 4, 8} and set(table[table["formulation"] == "reference"]["k"]) == {1}
    assert fit(table)[0].draft_forward(CONTEXT, 4) > 0
    predicted, digest = predictions_table(study, table)
    assert len(predicted) == len(PHASES["cost-model"]) and len(digest) == 64
    traces: Any
    proposals, traces = proposals_tables(study)
    assert proposals.empty and traces["rounds_n"].isna().all() and traces["identical"].isna().all()
    assert len(break_even_table(study, table, traces)) == 2


# --- what a captured mode can run ---------------------------------------------------------------------------


def test_captured_modes_keep_what_their_rounds_are() -> None:
    profile = small_design(mechanisms=MECHANISMS).profile("toy")
    captured = profile.model_copy(update={"mode": "compiled", "formulation": "repair-free", "bonus": True})
    scripted = captured.model_copy(update={"scripted": {CONTEXT: ALPHA}})
    for phase in ("all-accept", "draft-free", "dial", "formulations", "cost-model"):
        for one in (captured, scripted):
            plain, *others = chosen_variants(one, phase)
            assert plain.proposer == "none" and others
            assert all(v.bonus and v.formulation == "repair-free" for v in others)
            assert {v.rule for v in others} <= {"greedy", "imposed"}
        assert not {v.label for v in chosen_variants(scripted, phase)[1:]} & {"real", "not exact"}
    for phase in ("control-plane", "relaxed"):
        with pytest.raises(InvalidSetting, match=f"no variant of phase '{phase}'"):
            chosen_variants(captured, phase)
    assert chosen_variants(profile, "relaxed")[1:], "an eager profile with real acceptance runs everything"
    study = Study(small_design(), captured.model_copy(update={"repeats": 3}), "", Path(), {})
    assert [v.k for v in fitting_variants(study)[1:]] == list(range(1, 9)), "and no repair"


def test_the_mode_and_the_cap_are_in_the_orders_that_they_concern() -> None:
    profile = small_design().profile("toy").model_copy(update={"mode": "compiled", "memory_cap_gib": 0.5})
    study = Study(small_design(), profile, "d", Path(), {"device": "cuda", "dtype": "bf16"})
    assert study.spec("decode", "n")["mode"] == "compiled"
    assert study.spec("mechanism", "n")["memory_cap_bytes"] == 1 << 29
    assert "memory_cap_bytes" not in study.spec("numerics", "n"), (
        "the FP32 control stands beside the measured models"
    )
    plain = study._replace(profile=small_design().profile("toy")).spec("decode", "n")
    assert not {"mode", "memory_cap_bytes"} & set(plain), "older jobs stay valid"


# --- shared processes ---------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    processes: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def start(*given: Any, **how: Any) -> Any:
        processes.append(real(*given, **how))
        return processes[-1]

    monkeypatch.setattr(jobs.subprocess, "Popen", start)
    return processes


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Served, Study]]:
    study = Study(
        small_design(),
        small_design().profile("toy"),
        "d",
        tmp_path / "toy",
        {"device": "cpu", "dtype": "fp32"},
    )
    server = Served(1)
    yield server, study
    server.close()


def test_one_process_works_off_jobs_and_a_death_is_named(
    served: tuple[Served, Study], started: list[subprocess.Popen[str]]
) -> None:
    server, study = served
    family = study.profile.families[0]
    order = study.spec("prefill", "a", families=[family], context=CONTEXT)
    first = server.run(order, study.job_file(order))
    again = order | {"name": "b"}
    assert server.run(again, study.job_file(again))["prompt_sha256"] == first["prompt_sha256"]
    assert len(started) == 1 and read_job(study.job_file(order))["spec"] == order
    with pytest.raises(JobFailed, match=r"KeyError: 'no such kind'"):
        server.run(order | {"name": "c", "kind": "no such kind"}, study.job_file({"name": "c"}))
    assert not study.job_file({"name": "c"}).exists() and started[0].returncode == 1
    third = order | {"name": "d"}
    server.run(third, study.job_file(third))
    assert len(started) == 2, "a new process after a death"
    os.kill(started[1].pid, signal.SIGKILL)
    with pytest.raises(JobFailed, match="status -9"):
        server.run(order | {"name": "e"}, study.job_file({"name": "e"}))
    server.close()
    assert all(process.returncode is not None for process in started)


def test_a_phase_has_one_process_and_resumes(
    tmp_path: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Isolation "context": all jobs of a phase in one process. Interrupted between two jobs, it goes on from there."""
    study = study_in(tmp_path, isolation="context")
    started.clear()
    real, ran = Served.run, []

    def interrupted(self: Served, spec: dict[str, Any], path: Path) -> dict[str, Any]:
        if spec["name"].startswith("draft-free") and "stopped" not in ran:
            ran.append("stopped")
            raise KeyboardInterrupt
        ran.append(spec["name"])
        return real(self, spec, path)

    monkeypatch.setattr(Served, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_phase(study, "draft-free")
    assert len(started) == 1 and started[0].returncode is not None, "the process is gone"
    runs, _ = run_phase(study, "draft-free")
    family = study.profile.families[0]
    assert ran == [f"prefill-256-{family}", f"trace-256-{family}", "stopped", f"draft-free-256-{family}"]
    assert len(started) == 2 and len(runs) == 6
    with sharing(study) as together, sharing(together) as inner:
        assert inner.server is together.server is not None
    with sharing(study_in(tmp_path / "other", isolation="block")) as alone:
        assert alone.server is None


@pytest.mark.parametrize("cap", [8.0, None])
def test_graphs_of_many_k_do_not_stay_under_a_cap(cap: float | None, tmp_path: Path) -> None:
    """Every k has caches of its own, beside which the next prefill may not fit. A new process costs five seconds: where
    nothing is capped, the old one goes on."""

    class Server(Served):
        closed = 0

        def run(self, spec: dict[str, Any], path: Path) -> dict[str, Any]:
            return {}

        def close(self) -> None:
            self.closed += 1

    server = Server(1)
    profile = small_design().profile("toy").model_copy(update={"mode": "compiled", "memory_cap_gib": cap})
    study = Study(small_design(), profile, "d", tmp_path, {"device": "cuda", "dtype": "bf16"}, server)
    for kind, closed in (("prefill", 0), ("decode", 0), ("costs", 1), ("mechanism", 2), ("numerics", 2)):
        study.run(study.spec(kind, kind))
        assert server.closed == (closed if cap else 0), kind


# --- too little memory --------------------------------------------------------------------------------------


def test_too_little_memory_is_an_outcome(
    jobs_here: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_in(tmp_path, families=2, repeats=3, **SCRIPTED)
    whole, _ = confirmatory(study, CONTEXT)
    run_here, full = study_module.run_job, {"confirmatory-256-BA"}
    tried: list[str] = []

    def small(spec: dict[str, Any], path: Path, threads: int) -> dict[str, Any]:
        tried.append(spec["name"])
        if spec["name"] not in full:
            return run_here(spec, path, threads)
        write_job(path, spec, {"out_of_memory": "CUDA out of memory. Tried to allocate 2 GiB"})
        return read_job(path)["result"]

    monkeypatch.setattr(study_module, "run_job", small)
    said: list[str] = []
    study = study_in(tmp_path / "small", families=2, repeats=3, **SCRIPTED)
    runs, _ = confirmatory(study, CONTEXT, said.append)
    assert 0 < len(runs) < len(whole) and "Tried to allocate 2 GiB" in " ".join(said)
    tried.clear()
    again, _ = confirmatory(study, CONTEXT)
    assert again.equals(runs) and not tried, "an outcome is not measured again"
    assert provenance.write_provenance(study)["out_of_memory"] == {
        "confirmatory-256-BA": "CUDA out of memory. Tried to allocate 2 GiB"
    }
    full.add("confirmatory-256-AB")
    with pytest.raises(OutOfDeviceMemory, match="confirmatory-256-BA"):
        confirmatory(study_in(tmp_path / "smaller", families=2, repeats=3, **SCRIPTED), CONTEXT)


def test_a_gpu_too_small_is_refused_before_work_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    design = parse_design(gpu_profile(**CAPTURED, scripted=ALPHAS))
    profile = design.profile("gpu")
    need = room.needed_bytes(profile)
    assert 4.5 * room.GIB < need < 6 * room.GIB and need > room.needed_bytes(profile, 2048)
    assert room.needed_bytes(profile) > room.needed_bytes(design.profile("qwen-8gb")), (
        "graphs have their own caches"
    )
    monkeypatch.setattr(room, "free_bytes", lambda: room.needed_bytes(profile, 2048))
    with pytest.raises(OutOfDeviceMemory) as caught:
        room.require_room(design, profile)
    assert "contexts, 2048 would fit" in str(caught.value) and "cpu-full" in str(caught.value)
    capped = parse_design(gpu_profile(memory_cap_gib=1)).profile("gpu")
    monkeypatch.setattr(room, "free_bytes", lambda: None)
    with pytest.raises(OutOfDeviceMemory, match="under its cap of 1 GiB"):
        room.require_room(design, capped)
    room.require_room(design, profile)  # nothing tells the free memory: a job's own outcome will


def test_the_estimate_counts_what_is_loaded(tiny_qwen2_pair: Any) -> None:
    target = tiny_qwen2_pair.target
    assert weight_bytes(target.config, 4) == target.step_bytes


# --- where it was measured ----------------------------------------------------------------------------------


def test_provenance_is_the_measuring_machines(
    jobs_here: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables made elsewhere must not claim this machine. On a CPU nothing is recorded beside the jobs."""
    study = study_in(tmp_path)
    assert provenance.recorded_machine(study.folder) is None
    monkeypatch.setenv(provenance.COMMIT, "c" * 40)
    monkeypatch.setattr(provenance, "cpu_model", lambda: "the one that measured")
    provenance.record_machine(study.folder, 4)
    monkeypatch.undo()
    written = provenance.write_provenance(study)
    assert written["machine"]["cpu"] == "the one that measured" and written["machine"]["threads_used"] == 4
    assert written["git"] == {"commit": "c" * 40, "dirty": None} and "measured" in written
    assert str(tmp_path) not in (study.folder / "machine.json").read_text()
