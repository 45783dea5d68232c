"""The runner with real kernels: what it executes, keeps, refuses and resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specdec_lib import errors
from specdec_lib.pipeline.table import Promise
from tests.pipeline_project import REPOSITORY, Project

WRITE_A = '(folder / "a.csv").write_text("n\\n1\\n")'
WRITE_B = '(folder / "b.csv").write_text((folder / "a.csv").read_text())'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_exactly_what_depends_on_a_change(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel of the same name elsewhere must not be taken for this environment's own.
    fake = project.root / "jupyter" / "kernels" / "python3"
    fake.mkdir(parents=True)
    (fake / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(project.root / "jupyter"))
    project.phase("a", WRITE_A + '\nimport sys; (folder / "python").write_text(sys.executable)', "a.csv")
    project.phase("b", WRITE_B, "b.csv", needs=("a",))
    assert project.run().executed == ("a", "b")
    assert Path((project.data / "python").read_text()).resolve() == Path(sys.executable).resolve()
    assert not [name for name in files(project.data) if "tmp" in name]

    monkeypatch.setattr("specdec_lib.pipeline.runner.execute", _must_not_run)
    assert project.run().kept == ("a", "b")
    for path in project.root.rglob("*"):
        os.utime(path, (1, 1))  # `touch`, and a wrong clock
    assert project.run().executed == ()
    clone = project.root.parent / "clone"
    shutil.copytree(project.root, clone)
    assert project.run(root=clone).executed == ()
    assert str(project.root) not in (project.data / "manifest.json").read_text()
    monkeypatch.undo()

    # Edited by hand: that step again; its output is as before, so what depends on it stays.
    (project.data / "a.csv").write_text("n\n2\n")
    assert project.run().executed == ("a",)
    assert (project.data / "a.csv").read_text() == "n\n1\n"
    # A changed notebook with another result: both.
    project.phase("a", WRITE_A.replace("1", "3"), "a.csv")
    project.phases.reverse()
    assert project.run().executed == ("a", "b")
    assert (project.data / "b.csv").read_text() == "n\n3\n"


def test_what_a_killed_save_left_behind_goes(project: Project) -> None:
    project.phase("a", WRITE_A, "a.csv")
    left = project.data / "jobs" / ".x.json.abc.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("half a job")
    assert project.run().executed == ("a",)
    assert not left.exists()


def _must_not_run(*_: object) -> None:
    raise AssertionError("executed although nothing changed")


def test_committed_results_stay_whatever_the_sources_are(project: Project) -> None:
    project.phase("a", WRITE_A, "a.csv")
    design = project.root / "design.toml"
    design.write_text(design.read_text() + "committed = true\n")
    assert project.run().executed == ("a",)
    made = (project.root / "notebooks" / "a.ipynb").read_text()
    (project.root / "notebooks" / "a.ipynb").write_text(made.replace("Path", "Path "))
    (project.root / "specdec_lib").mkdir(exist_ok=True)
    (project.root / "specdec_lib" / "model.py").write_text("other = 1\n")
    assert project.run().executed == (), "nothing of it is missing"
    assert project.run(again=True).executed == ("a",), "asked for by name"
    (project.data / "a.csv").unlink()
    assert project.run().executed == ("a",), "missing"


def test_what_a_step_depends_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, engine sources, design and analysis count; a title does not."""
    ran: list[str] = []

    def record(root: Path, path: Path, parameters: dict[str, object]) -> dict[str, object]:
        ran.append(path.stem)
        project.data.mkdir(parents=True, exist_ok=True)
        target = project.data / "a.csv"
        target.unlink(missing_ok=True)
        target.write_text("n\n1\n")
        return {"cells": []}

    monkeypatch.setattr("specdec_lib.pipeline.runner.execute", record)
    project.phase("a", "", "a.csv", parameters={})
    design = project.root / "design.toml"
    source = project.root / "specdec_lib" / "model.py"
    (source.parent / "report").mkdir(parents=True)

    def runs() -> bool:
        ran.clear()
        project.run()
        first = bool(ran)
        ran.clear()
        project.run()
        assert not ran, "it must be up to date after running"
        return first

    assert runs()
    assert not runs()
    source.write_text("x = 1")
    assert runs()
    (source.parent / "report" / "style.py").write_text("x = 1")
    assert not runs()
    design.write_text(design.read_text().replace('title = "Toy"', 'title = "Another"'))
    assert not runs()
    design.write_text(design.read_text().replace("repeats = 5", "repeats = 6"))
    assert runs()
    design.write_text(design.read_text().replace("level = 0.95", "level = 0.9"))
    assert runs()


FAULTS = {
    "a cell raises": ("1 / 0", errors.CellFailed, "ZeroDivisionError"),
    "a cell leaves with status 0": ("import sys; sys.exit(0)", errors.CellFailed, "SystemExit"),
    "the kernel dies": ("os._exit(0)", errors.CellFailed, "kernel died"),
    "the disk is full": (
        'open("/dev/full", "w", 1).write("x" * 10000 + "\\n")',
        errors.CannotWrite,
        "No space left",
    ),
    "the promised file is missing": ("pass", errors.PromiseBroken, "data/toy/a.csv"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_step_leaves_nothing_and_fails_again(project: Project, fault: str) -> None:
    code, error, mention = FAULTS[fault]
    late = WRITE_A if error is errors.CellFailed else ""  # even when the promised file is written first
    project.phase("a", f"{late}\n{code}", "a.csv")
    for _ in range(2):
        with pytest.raises(error) as raised:
            project.run()
        assert "notebooks/a.ipynb" in str(raised.value) and mention in str(raised.value)
        assert str(project.root) not in str(raised.value)
        assert not (project.data / "notebooks").exists()
        assert not (project.data / "manifest.json").exists()


def test_an_old_table_does_not_count_as_written(project: Project) -> None:
    project.phase("a", WRITE_A, "a.csv")
    project.run()
    kept = (project.data / "notebooks" / "a.ipynb").read_bytes()
    project.phase("a", "pass", "a.csv")
    for _ in range(2):
        with pytest.raises(errors.PromiseBroken, match="renewing"):
            project.run()
    assert (project.data / "notebooks" / "a.ipynb").read_bytes() == kept


def test_a_table_of_another_design_is_stale(project: Project) -> None:
    table = (
        'import csv\nrows = Path("%s").read_text()\n(folder / "c.csv").write_text(rows.replace("@", "%s"))'
    )
    source = project.root / "rows.csv"
    header = "profile,design_hash,subject,model_kind,check,formulation,bonus,k,dtype,passed,value,limit"
    source.write_text(f"{header}\ntoy,@,m,llama,logits,,,,fp32,true,0.0,0.1\n")
    promise = Promise("c.csv", "correctness")
    project.phase("c", table % (source, "0" * 16), promise)
    for _ in range(2):
        with pytest.raises(errors.StaleTable) as raised:
            project.run()
        assert "notebooks/c.ipynb" in str(raised.value) and "data/toy/c.csv" in str(raised.value)
    from specdec_lib.design import load_design
    from tests.pipeline_project import toy_hash

    design = load_design(project.root / "design.toml")
    project.phase("c", table % (source, toy_hash(project.root, design, design.profile("toy"))), promise)
    assert project.run().executed == ("c",)


def test_an_error_of_the_study_is_said_once_and_as_it_is(project: Project) -> None:
    raises = "from specdec_lib.errors import JobDamaged\nraise JobDamaged('jobs/j.json is cut', remedy='delete it')"
    project.phase("a", raises, "a.csv")
    with pytest.raises(errors.CellFailed) as raised:
        project.run()
    said = str(raised.value)
    assert "notebooks/a.ipynb" in said and "JobDamaged: jobs/j.json is cut" in said and "delete it" in said
    assert "make lab" not in said and "----" not in said, "no second remedy, no traceback"


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "SIGTERM", "kill -9"]
)
def test_an_interrupted_run_goes_on(project: Project, how: signal.Signals) -> None:
    project.phase("a", WRITE_A, "a.csv")
    wait = 'import time; (folder / "b.csv").write_text("half"); (folder / "started").touch(); time.sleep(60)'
    project.phase("b", wait, "b.csv", needs=("a",))
    code = (
        "import signal, sys; from pathlib import Path; from tests.pipeline_project import Project\n"
        # a background shell hands down an ignored SIGINT; a person's terminal does not
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from specdec_lib.pipeline.table import Phase, Promise\n"
        "import specdec_lib.pipeline.__main__ as cli, specdec_lib.pipeline.runner as runner\n"
        f"project = Project(Path({str(project.root)!r}), {project.phases!r})\n"
        "runner.run_profile = lambda *_, **__: project.run()\n"
        "sys.exit(cli.main(['runs', '--profile', 'toy']))\n"
    )
    environment = os.environ | {"SPECDEC_ROOT": str(project.root), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        deadline = time.monotonic() + 60
        while not (project.data / "started").exists():
            assert run.poll() is None and time.monotonic() < deadline, run.stderr and run.stderr.read()
            time.sleep(0.05)
        with pytest.raises(errors.RunInProgress, match=str(run.pid)):
            project.run()
        run.send_signal(how)
        ends = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
        assert run.wait(timeout=30) == ends[how]
    project.phase("b", WRITE_B, "b.csv", needs=("a",))
    assert project.run().executed == ("b",)
    assert (project.data / "b.csv").read_text() == "n\n1\n"


def test_a_damaged_or_deleted_job_is_looked_at_again(project: Project) -> None:
    measure = (
        WRITE_A + '\n(folder / "jobs").mkdir(exist_ok=True)\n(folder / "jobs" / "j.json").write_text("{}")'
    )
    project.phase("a", measure, "a.csv")
    assert project.run().executed == ("a",) and project.run().executed == ()
    job = project.data / "jobs" / "j.json"
    job.write_text("{")
    assert project.run().executed == ("a",)
    job.unlink()
    assert project.run().executed == ("a",) and job.read_text() == "{}"
