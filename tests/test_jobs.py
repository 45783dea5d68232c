"""Job files and job processes: whole or not there, checked when read, never mixed, never run twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib import errors, jobs
from specdec_lib.jobs import finished, read_job, run_job, write_job

SPEC = {"name": "a", "kind": "decode", "design_hash": "d", jobs.ENGINE: "e", "runs": [1, 2], "prefill_s": 1.5}
RESULT = {"rows": [{"decode_s": 1.25, "arm": "ar"}], "tokens": [3, 4], "none": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpu" / "jobs" / "a.json"


@pytest.fixture
def written(path: Path) -> Path:
    write_job(path, SPEC, RESULT)
    return path


def test_a_job_comes_back(written: Path) -> None:
    assert read_job(written) == {"spec": SPEC, "result": RESULT}
    assert [p.name for p in written.parent.iterdir()] == ["a.json"]


def test_layout_does_not_matter_but_values_do(written: Path) -> None:
    """Another indentation (a formatter, git's line ends) is the same job; another digit is not."""
    text = written.read_text()
    written.write_text(json.dumps(json.loads(text)))
    assert read_job(written)["result"] == RESULT
    for old, new in (
        ("1.25", "1.26"),
        ('"ar"', '"spec"'),
        ("null", "0"),
        ('"d"', '"x"'),
        ('"rows"', '"row"'),
    ):
        assert old in text
        written.write_text(text.replace(old, new))
        with pytest.raises(errors.JobDamaged, match="data/cpu/jobs/a.json"):
            read_job(written)


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_truncated_job_is_damaged(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("jobs") / "jobs" / "a.json"
    write_job(path, SPEC, RESULT)
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(errors.JobDamaged) as raised:
        read_job(path)
    assert "delete it and run again" in str(raised.value) and str(path.parent) not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "5", '{"spec": {}}', "\xff"])
def test_what_is_no_job_is_damaged(written: Path, text: str) -> None:
    written.write_bytes(text.encode("latin-1"))
    with pytest.raises(errors.JobDamaged):
        read_job(written)


def test_a_finished_job(written: Path, tmp_path: Path) -> None:
    assert finished(tmp_path / "none.json", SPEC, keep_engine=False) is None
    assert finished(written, SPEC, keep_engine=False) == RESULT


def test_other_engine_sources_mean_again_unless_the_profile_is_committed(written: Path) -> None:
    newer = SPEC | {jobs.ENGINE: "f"}
    assert finished(written, newer, keep_engine=False) is None
    assert finished(written, newer, keep_engine=True) == RESULT


def test_seconds_of_another_job_are_no_design(written: Path) -> None:
    """A prefill that is measured anew takes another time; the jobs that decode from it stay valid."""
    assert finished(written, SPEC | {"prefill_s": 1.6}, keep_engine=False) == RESULT


@pytest.mark.parametrize("key", ["design_hash", "runs", "kind"])
@pytest.mark.parametrize("engine", ["e", "f"])
@pytest.mark.parametrize("keep", [True, False])
def test_another_design_is_refused_not_overwritten(written: Path, key: str, engine: str, keep: bool) -> None:
    with pytest.raises(errors.MixedDesign) as raised:
        finished(written, SPEC | {key: "other", jobs.ENGINE: engine}, keep_engine=keep)
    assert key in str(raised.value) and "data/cpu/jobs/a.json" in str(raised.value)
    assert "data/cpu " in raised.value.remedy


def test_a_key_more_or_less_is_another_design(written: Path) -> None:
    with pytest.raises(errors.MixedDesign, match="bonus"):
        finished(written, SPEC | {"bonus": True}, keep_engine=False)


def test_a_job_that_fails_says_why_and_leaves_nothing(path: Path) -> None:
    with pytest.raises(errors.JobFailed) as raised:
        run_job(SPEC | {"kind": "decodee"}, path, 1)
    said = str(raised.value)
    assert "KeyError: 'decodee'" in said and "job a ended with status 1" in said
    assert str(Path(jobs.__file__).parent.parent) not in said, "no path of this machine"
    assert len(said.splitlines()) <= 16
    assert list(path.parent.iterdir()) == []


def test_an_error_of_the_studys_own_is_not_hidden_by_a_traceback(path: Path) -> None:
    spec = SPEC | {"kind": "calibrate", "device": "neither", "dtype": "fp32"}
    with pytest.raises(errors.JobFailed) as raised:
        run_job(spec, path, 1)
    said = str(raised.value)
    assert said.startswith("job a stopped. ") and "'neither'" in said and said.count("Remedy") == 1
    assert "Traceback" not in said and "status" not in said


class _Process:
    """Stands in for the process: ends as it is told, or is interrupted."""

    returncode = 0
    killed = waited = False

    def __init__(self, interrupt: bool) -> None:
        self.interrupt = interrupt

    def communicate(self, order: str) -> tuple[str, None]:
        assert set(json.loads(order)) == {"spec", "path", "threads", "parent"}
        if self.interrupt:
            raise KeyboardInterrupt
        return "nothing to see", None

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> None:
        self.waited = True


def test_a_job_without_a_result_failed_whatever_its_status(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: _Process(interrupt=False))
    with pytest.raises(errors.JobFailed, match="status 0 and no result"):
        run_job(SPEC, path, 1)


def test_ctrl_c_ends_the_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(interrupt=True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    with pytest.raises(KeyboardInterrupt):
        run_job(SPEC, path, 1)
    assert process.killed and process.waited and not path.exists()


def test_threads_are_pinned_before_torch_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def start(command: list[str], env: dict[str, str], **_: Any) -> _Process:
        seen.update(env, command=command)
        return _Process(interrupt=False)

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(errors.JobFailed):
        run_job(SPEC, path, 3)
    assert {seen[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"3"}
    assert seen["command"][0] == sys.executable, "the environment's own interpreter"
