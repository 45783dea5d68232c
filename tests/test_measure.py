"""From a design to validated rows: planned, run, interrupted, resumed; real processes where they matter."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from specdec_lib import errors, jobs, load, worker
from specdec_lib import study as study_module
from specdec_lib.design import Design, parse_design
from specdec_lib.errors import TableError
from specdec_lib.generation import STAGES
from specdec_lib.jobs import read_job, write_job
from specdec_lib.load import Snapshot, others_share
from specdec_lib.measure import aa_runs, confirmatory, first_divergence
from specdec_lib.pairs import load_tokenizer
from specdec_lib.plan import plan
from specdec_lib.prompts import build_prompt
from specdec_lib.records import read_table, write_table
from specdec_lib.study import Study, open_study

ROOT = Path(__file__).parent.parent
CONTEXT = 256
TIMES = ["decode_s", "prefill_s", "draft_prefill_s", "others_cpu_share", "peak_rss_bytes", "cpu_mhz"]


def small_design(families: int = 1, repeats: int = 1, **profile: Any) -> Design:
    """The frozen design's file with one small profile, "toy"."""
    content = tomllib.loads((ROOT / "design.toml").read_text())
    content["measurement"]["dtype"] = "fp32"
    names = content["measurement"]["families"][:families]
    content["measurement"]["development"] = content["measurement"]["development"][:1]
    toy = {
        "title": "t",
        "pair": "tiny-llama",
        "isolation": "block",
        "threads": 1,
        "phases": ["confirmatory"],
    }
    toy |= {"families": names, "contexts": [CONTEXT], "repeats": repeats, "new_tokens": 12} | profile
    content["profiles"] = {"toy": toy | {"minutes": {"confirmatory": 1}}}
    return parse_design(content)


def study_in(folder: Path, design: Design | None = None) -> Study:
    return open_study("toy", folder / "data" / "toy", design or small_design())


def timeless(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=[name for name in TIMES if name in table])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, pd.DataFrame]:
    """One family, one repeat, real processes."""
    folder = tmp_path_factory.mktemp("study")
    runs, stages = confirmatory(study_in(folder), CONTEXT)
    return folder, runs, stages


def test_end_to_end(undisturbed: tuple[Path, pd.DataFrame, pd.DataFrame], tmp_path: Path) -> None:
    folder, runs, stages = undisturbed
    study = study_in(folder)
    assert len(runs) == 2 and set(runs["arm"]) == {"ar", "spec"}
    assert set(runs["new_tokens"]) == {12} and set(runs["design_hash"]) == {study.design_hash}
    assert set(runs["first_divergence_tokens"].isna()) == {True}
    assert len(set(runs["tokens_sha256"])) == 1
    assert set(runs["threads"]) == {1} and set(runs["isolation"]) == {"block"}
    assert set(runs["job"]) == {job.name for job in plan(study.profile)}
    assert min(*runs["decode_s"], *runs["prefill_s"]) > 0
    spec, ar = (runs[runs["arm"] == arm].iloc[0] for arm in ("spec", "ar"))
    assert spec["host_reads_n"] == spec["rounds_n"] and ar["target_calls_n"] == 11 and ar["host_reads_n"] == 1
    assert spec["target_calls_n"] > spec["rounds_n"], "the frozen design is the reference formulation"
    assert spec["draft_prefill_s"] > 0 == ar["draft_prefill_s"]
    for arm, rows in stages.groupby("arm"):
        assert set(rows["stage"]) == set(STAGES)
        assert sum(rows["stage_s"]) == pytest.approx(rows["total_s"].iloc[0], rel=0.02), arm
    path = tmp_path / "confirmatory-256.csv"
    write_table(runs, path, "confirmatory")
    assert len(read_table(path, "confirmatory", design_hash=study.design_hash)) == 2
    assert sorted(p.name for p in study.folder.rglob("*") if p.is_file()) == sorted(
        [
            "calibrate.json",
            *(f"{job}.json" for job in runs["job"]),
            f"prefill-256-{runs['family'].iloc[0]}.json",
        ]
    )
    for job in (study.folder / "jobs").iterdir():
        text = job.read_text()
        assert str(folder) not in text and str(ROOT) not in text and os.uname().nodename not in text


def test_a_process_that_has_its_cell_alone_makes_its_own_prefill(
    tmp_path: Path, jobs_here: list[str]
) -> None:
    study = study_in(tmp_path, small_design(families=2, isolation="cell"))
    runs, stages = confirmatory(study, CONTEXT)
    assert jobs_here == ["calibrate", *(job.name for job in plan(study.profile))]
    assert (
        min(runs["prefill_s"]) > 0 and set(runs["isolation"]) == {"cell"} and len(stages) == 2 * len(STAGES)
    )
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_run_that_others_disturbed_is_measured_again_and_kept_aside(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.5, 0.0, 0.5, 0.5, 0.5])  # the second run stays disturbed: two more are all it gets
    monkeypatch.setattr(worker, "others_share", lambda before, after: next(shares))
    study = study_in(tmp_path, small_design(isolation="cell", repeat_disturbed=2))
    runs, _ = confirmatory(study, CONTEXT)
    assert list(runs["others_cpu_share"]) == [0.0, 0.5] and list(runs["set_aside_n"]) == [1, 2]
    aside = read_job(study.job_file({"name": runs["job"].iloc[0]}))["result"]["aside"]
    assert [row["others_cpu_share"] for row in aside] == [0.5] * 3, "the raw rows stay in the job's file"
    assert [row["arm"] for row in aside] == ["ar", "spec", "spec"]


def test_warm_up_is_whole_once_per_process(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []
    real = worker.autoregressive
    monkeypatch.setattr(
        worker, "autoregressive", lambda *given, **more: lengths.append(given[2]) or real(*given, **more)
    )
    design = small_design(families=2, repeats=2, isolation="context", new_tokens=20)
    confirmatory(study_in(tmp_path, design), CONTEXT)
    assert lengths == [20, 20, worker.WARM_TOKENS, 20] * 2, "of a second family the buffers are touched"


def test_both_blocks_warm_up_in_one_order(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process allocates first decides where everything lies: AB and BA may differ in the timed order only."""
    order = arms_run(monkeypatch)
    confirmatory(study_in(tmp_path, small_design(repeats=2, isolation="context")), CONTEXT)
    timed = (["ar", "spec", "stages"], ["spec", "ar"])
    assert order == ["spec", "ar", *timed[0], "spec", "ar", *timed[1]]


def test_every_timed_run_comes_before_any_instrumented_one(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU an instrumented run captures graphs, and what is replayed in that process later takes another time."""
    instrumented: list[list[int]] = []
    order = arms_run(monkeypatch, instrumented)
    study = study_in(tmp_path, small_design(families=3, repeats=2, isolation="context"))
    _, stages = confirmatory(study, CONTEXT)
    again = ["spec", "stages"]  # its prefills are made anew, and touched
    timed = (["ar", "spec"], ["spec", "ar"])
    first, second = (["spec", "ar", *block] * 3 for block in timed)
    assert order == first + again * 3 + second
    families = study.profile.families
    assert list(dict.fromkeys(stages["family"])) == list(families)
    tokenizer = load_tokenizer(study.profile.pair)
    prompts = [build_prompt(family, CONTEXT, tokenizer, study.profile.new_tokens) for family in families]
    assert instrumented == prompts, "each family's stages are those of its own prompt"


def arms_run(monkeypatch: pytest.MonkeyPatch, instrumented: list[list[int]] | None = None) -> list[str]:
    """The arms in the order in which they will run; "stages" is an instrumented one, whose prompt is noted."""
    order: list[str] = []

    def spy(arm: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, instrument: bool, **more: Any) -> Any:
            order.append("stages" if instrument else arm)
            if instrument and instrumented is not None:
                instrumented.append(given[2])
            return real(*given, instrument=instrument, **more)

        return run

    for arm, name in (("ar", "autoregressive"), ("spec", "speculative")):
        monkeypatch.setattr(worker, name, spy(arm, getattr(worker, name)))
    return order


@pytest.mark.parametrize(
    "beside", [{"throttled": True}, {"other_gpu_processes_n": 1}, {"other_gpu_processes_n": None}]
)
def test_a_run_under_a_throttled_or_shared_gpu_is_measured_again(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch, beside: dict[str, Any]
) -> None:
    calm = {"throttled": False, "other_gpu_processes_n": 0, "device_event_s": 1.0}
    readings = iter([calm | beside, calm, calm, calm])
    monkeypatch.setattr(worker, "gpu_columns", lambda device, event_s: next(readings))
    monkeypatch.setattr(worker, "others_share", lambda before, after: 0.0)
    study = study_in(tmp_path, small_design(isolation="cell", repeat_disturbed=2))
    runs, _ = confirmatory(study, CONTEXT)
    assert list(runs["set_aside_n"]) == [0 if None in beside.values() else 1, 0]


def test_measured_runs_alone_look_for_a_free_core(
    tmp_path: Path, jobs_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []

    @contextmanager
    def spy(device: object) -> Iterator[None]:
        entered.append(str(device))
        yield

    monkeypatch.setattr(worker, "on_free_core", spy)
    runs, _ = confirmatory(study_in(tmp_path, small_design(isolation="cell")), CONTEXT)
    assert entered == ["cpu"] * (len(runs) + 1), "and the instrumented one, whose stages give costs"


def test_the_free_core_is_the_fastest_now_and_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {3, 5, 7}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda who, cores: asked.append(set(cores)), raising=False)
    monkeypatch.setattr(load, "_pace", {3: 0.7, 5: 0.4, 7: 0.5}.__getitem__)
    with load.on_free_core("cuda:0"):
        assert asked == [{5}]
    assert asked == [{5}, {3, 5, 7}]
    with pytest.raises(ValueError, match="a run"), load.on_free_core("cuda"):
        raise ValueError("a run failed")
    assert asked[2:] == [{5}, {3, 5, 7}], "also after a failure"
    with load.on_free_core("cpu"):
        pass
    assert len(asked) == 4, "on a CPU the work takes every core"


def test_a_system_that_refuses_a_core_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(who: int, cores: set[int]) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    ran = []
    with load.on_free_core("cuda"):
        ran.append(1)
    assert ran == [1]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot choose its core here")
def test_a_cores_pace() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        assert all(0 < load._pace(core) < 1 for core in sorted(allowed))
        assert os.sched_getaffinity(0) == {max(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def test_finished_jobs_are_not_run_again(
    undisturbed: tuple[Path, pd.DataFrame, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    folder, runs, stages = undisturbed
    again, stages_again = confirmatory(study_in(folder), CONTEXT)
    pd.testing.assert_frame_equal(again, runs)
    pd.testing.assert_frame_equal(stages_again, stages)


STARTED = (
    "import sys; from pathlib import Path; from tests.test_measure import *\n"
    "confirmatory(study_in(Path(sys.argv[1])), CONTEXT)"
)


def test_kill_9_leaves_no_result_and_the_next_run_completes(
    undisturbed: tuple[Path, pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    """The ordering process is killed while a job runs: the job's process goes too, nothing is half done."""
    folder, runs, _ = undisturbed
    shutil.copytree(folder / "data", tmp_path / "data")
    job = tmp_path / "data" / "toy" / "jobs" / f"{runs['job'].iloc[0]}.json"
    job.unlink()  # and its prefill caches are gone: they are made again first
    caches = tmp_path / "data" / "toy" / ".prefill"
    with subprocess.Popen([sys.executable, "-c", STARTED, str(tmp_path)], cwd=ROOT) as ordering:
        started: dict[int, psutil.Process] = {}  # one makes the caches, the next decodes
        deadline = time.monotonic() + 90
        while len(started) < 2:
            assert ordering.poll() is None and time.monotonic() < deadline
            started |= {process.pid: process for process in psutil.Process(ordering.pid).children()}
            time.sleep(0.01)
        ordering.send_signal(signal.SIGKILL)
    measuring = list(started.values())[-1]
    while measuring.is_running() and measuring.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the measuring process outlived the one that ordered it"
        time.sleep(0.01)
    assert not job.exists() and not list(job.parent.glob(".*"))
    again, _ = confirmatory(study_in(tmp_path), CONTEXT)
    pd.testing.assert_frame_equal(timeless(again), timeless(runs))
    assert not list(caches.iterdir())


BLOCKS = small_design(families=2, repeats=3, isolation="block")


def test_the_plan_is_run_in_order(jobs_here: list[str], tmp_path: Path) -> None:
    """Isolation "block": a process per family, block and arm; each prefill once; caches gone at the end."""
    study = study_in(tmp_path, BLOCKS)
    runs, stages = confirmatory(study, CONTEXT)
    decodes = [name for name in jobs_here if name.startswith("confirmatory")]
    assert decodes == [job.name for job in plan(study.profile)] and len(decodes) == 8
    assert jobs_here[:2] == ["calibrate", f"prefill-256-{study.profile.families[0]}"] and len(jobs_here) == 11
    assert len(runs) == 2 * 2 * 3 and not runs.duplicated(["family", "arm", "repeat"]).any()
    assert len(set(zip(runs["family"], runs["tokens_sha256"], strict=True))) == 2
    assert not stages.duplicated(["family", "arm", "stage"]).any() and len(stages) == 2 * len(STAGES)
    assert not list((study.folder / ".prefill").iterdir())


def test_damaged_caches_are_made_again(
    undisturbed: tuple[Path, pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    """Cut by a full disk, or written by an older version: the job that trips over them does not fail for good."""
    folder, runs, _ = undisturbed
    shutil.copytree(folder / "data", tmp_path / "data")
    (tmp_path / "data" / "toy" / "jobs" / f"{runs['job'].iloc[0]}.json").unlink()
    caches = tmp_path / "data" / "toy" / ".prefill"
    caches.mkdir(exist_ok=True)
    for role in ("target", "draft"):
        (caches / f"{runs['family'].iloc[0]}-{CONTEXT}-{role}.safetensors").write_bytes(b"of another version")
    again, _ = confirmatory(study_in(tmp_path), CONTEXT)
    pd.testing.assert_frame_equal(timeless(again), timeless(runs))
    assert not list(caches.iterdir())


def test_an_interruption_anywhere_and_a_rerun(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted once before every job, and without its caches after some: the same table, each job once."""
    whole, _ = confirmatory(study_in(tmp_path / "whole", BLOCKS), CONTEXT)
    expected = list(jobs_here)
    jobs_here.clear()
    run_here, stops = study_module.run_job, set(expected)

    def interrupted(spec: dict[str, Any], path: Path, threads: int) -> dict[str, Any]:
        if spec["name"] in stops:
            stops.remove(spec["name"])
            raise KeyboardInterrupt
        return run_here(spec, path, threads)

    monkeypatch.setattr(study_module, "run_job", interrupted)
    for attempt in range(len(expected) + 1):
        try:
            table, _ = confirmatory(study_in(tmp_path, BLOCKS), CONTEXT)
            break
        except KeyboardInterrupt:
            if attempt % 3 == 2:
                shutil.rmtree(tmp_path / "data" / "toy" / ".prefill", ignore_errors=True)
    else:
        pytest.fail("it never got through")
    pd.testing.assert_frame_equal(timeless(table), timeless(whole))
    again = [name for name in jobs_here if not name.startswith("prefill")]
    assert again == [name for name in expected if not name.startswith("prefill")], "no finished job ran again"
    assert sorted(p.name for p in (tmp_path / "data/toy/jobs").iterdir()) == sorted(
        f"{name}.json" for name in expected
    )
    assert not list((tmp_path / "data/toy/.prefill").iterdir())


def test_a_deleted_job_alone_is_measured_anew(jobs_here: list[str], tmp_path: Path) -> None:
    design = small_design(repeats=2)
    before, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
    for name in list(jobs_here):
        jobs_here.clear()
        (tmp_path / "data" / "toy" / "jobs" / f"{name}.json").unlink()
        after, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
        assert [n for n in jobs_here if not n.startswith("prefill")] == (
            [name] if not name.startswith("prefill") else []
        )
        pd.testing.assert_frame_equal(timeless(after), timeless(before))


def _edit(job: Path, change: Callable[[dict[str, Any]], None]) -> None:
    body = read_job(job)
    change(body["spec"])
    write_job(job, body["spec"], body["result"])


def test_other_engine_sources_measure_everything_anew(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmatory(study_in(tmp_path), CONTEXT)
    first = list(jobs_here)
    monkeypatch.setattr("specdec_lib.paths.measuring_hash", lambda captured=False: "f" * 16)
    confirmatory(study_in(tmp_path), CONTEXT)
    assert jobs_here == first * 2
    for job in (tmp_path / "data" / "toy" / "jobs").iterdir():
        assert read_job(job)["spec"][jobs.ENGINE] == "f" * 16


def test_a_committed_profile_keeps_what_was_measured(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design = small_design(committed=True)
    before, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
    jobs_here.clear()
    monkeypatch.setattr("specdec_lib.paths.measuring_hash", lambda captured=False: "f" * 16)
    after, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
    assert jobs_here == []
    pd.testing.assert_frame_equal(after, before)


def test_a_folder_of_ones_own_is_not_committed(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another name the profile is measured here: what older sources left there is measured anew."""
    design, folder = small_design(committed=True), tmp_path / "data" / "my-toy"
    study = open_study("toy", folder, design)
    assert not study.profile.committed and study_in(tmp_path, design).profile.committed
    assert study.design_hash == study_in(tmp_path, design).design_hash, "the same frozen design"
    confirmatory(study, CONTEXT)
    jobs_here.clear()
    monkeypatch.setattr("specdec_lib.paths.measuring_hash", lambda captured=False: "f" * 16)
    confirmatory(open_study("toy", folder, design), CONTEXT)
    assert jobs_here


def test_provenance_names_the_machine_that_measured_not_the_one_that_looks(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec_lib import provenance

    design = small_design(committed=True)
    monkeypatch.setattr(provenance, "cpu_model", lambda: "the one that measured")
    study = study_in(tmp_path, design)
    confirmatory(study, CONTEXT)
    first = provenance.write_provenance(study)
    monkeypatch.setattr(provenance, "cpu_model", lambda: "the one that looks")
    later = study_in(tmp_path, design)
    confirmatory(later, CONTEXT)
    assert not any(later.measured)
    kept = provenance.write_provenance(later)
    assert kept["machine"] == first["machine"] and kept["machine"]["cpu"] == "the one that measured"
    assert kept["git"] == first["git"] and kept["packages"] == first["packages"]

    record = later.folder / "provenance.json"
    whole = record.read_text()
    for damaged in ("{", "[]"):
        record.write_text(damaged)
        with pytest.raises(TableError, match=r"data/toy/provenance.json is damaged(.|\n)*written anew"):
            provenance.write_provenance(later)
    record.write_text(whole)

    job = next((tmp_path / "data" / "toy" / "jobs").glob("confirmatory-*.json"))
    job.unlink()
    again = study_in(tmp_path, design)
    confirmatory(again, CONTEXT)
    assert any(again.measured)
    assert provenance.write_provenance(again)["machine"]["cpu"] == "the one that looks"


def test_more_threads_than_cores_are_refused_where_they_would_measure(
    jobs_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only there: what a larger machine measured is read on any."""
    design = small_design(threads=99)
    monkeypatch.setattr("specdec_lib.room.cores", lambda: 2)
    with pytest.raises(errors.InvalidSetting, match=r"'toy' has threads = 99; .*: 2\n"):
        study_in(tmp_path, design)
    assert not jobs_here and not (tmp_path / "data").exists()
    monkeypatch.setattr("specdec_lib.room.cores", lambda: 99)
    runs, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
    monkeypatch.setattr("specdec_lib.room.cores", lambda: 2)
    jobs_here.clear()
    again, _ = confirmatory(study_in(tmp_path, design), CONTEXT)
    pd.testing.assert_frame_equal(again, runs)
    next((tmp_path / "data" / "toy" / "jobs").glob("confirmatory-*.json")).unlink()
    with pytest.raises(errors.InvalidSetting, match="threads = 99"):
        confirmatory(study_in(tmp_path, design), CONTEXT)
    assert not jobs_here


def test_another_design_is_refused_before_anything_runs(jobs_here: list[str], tmp_path: Path) -> None:
    confirmatory(study_in(tmp_path), CONTEXT)
    jobs_here.clear()
    jobs_before = {p: p.read_bytes() for p in (tmp_path / "data" / "toy" / "jobs").iterdir()}
    with pytest.raises(errors.MixedDesign, match="design_hash"):
        study_in(tmp_path, small_design(new_tokens=13))
    assert jobs_here == [] and {p: p.read_bytes() for p in jobs_before} == jobs_before


def test_a_damaged_job_is_named(jobs_here: list[str], tmp_path: Path) -> None:
    confirmatory(study_in(tmp_path), CONTEXT)
    job = next((tmp_path / "data" / "toy" / "jobs").glob("confirmatory-*-ar.json"))
    job.write_text(job.read_text().replace('"arm": "ar"', '"arm": "spec"', 1))
    with pytest.raises(errors.JobDamaged, match=job.name):
        confirmatory(study_in(tmp_path), CONTEXT)


def test_ar_against_ar(jobs_here: list[str], tmp_path: Path) -> None:
    """The same plan with AR in both arms, on development families, beside the confirmatory jobs."""
    study = study_in(tmp_path, small_design(repeats=2))
    confirmatory(study, CONTEXT)
    runs = aa_runs(study, CONTEXT)
    assert set(runs["arm"]) == {"ar", "ar-again"} and len(runs) == 4
    assert set(runs["family"]) == set(study.design.measurement.development)
    assert not set(runs["family"]) & set(study.profile.families)
    assert set(runs["rounds_n"]) == {0} and len(set(runs["tokens_sha256"])) == 1


def test_unknown_context_and_profile(jobs_here: list[str], tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSetting, match="512"):
        confirmatory(study_in(tmp_path), 512)
    with pytest.raises(errors.UnknownProfile):
        open_study("toyy", tmp_path, small_design())


@pytest.mark.parametrize(
    ("tokens", "against", "index"),
    [
        ([1, 2], [1, 2], None),
        ([1, 2], [1, 3], 1),
        ([2], [1], 0),
        ([1], [1, 2], 1),
        ([1, 2], [1], 1),
        ([], [], None),
    ],
)
def test_first_divergence(tokens: list[int], against: list[int], index: int | None) -> None:
    assert first_divergence(tokens, against) == index


def test_others_share() -> None:
    """0 on an idle machine, 1 for one busy core; coarse ticks never make it negative."""
    before = Snapshot(wall=10.0, machine=100.0, own=5.0)
    assert others_share(before, Snapshot(12.0, 102.0, 7.0)) == 0
    assert others_share(before, Snapshot(12.0, 104.0, 7.0)) == 1
    assert others_share(before, Snapshot(12.0, 101.99, 7.0)) == 0
    mine = Snapshot.take()
    spin = time.perf_counter() + 0.3
    while time.perf_counter() < spin:
        pass
    after = Snapshot.take()
    assert after.own - mine.own > 0.02, "this process' own time is known"
