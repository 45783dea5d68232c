"""The rules of the runner that need no kernel."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from specdec_lib import errors
from specdec_lib.design import Profile, load_design
from specdec_lib.paths import data_folder, project_root
from specdec_lib.pipeline import doctor, environment, manifest, runner, table
from specdec_lib.pipeline import notebook as rules
from specdec_lib.pipeline.__main__ import main
from specdec_lib.pipeline.lock import data_lock, named_write_errors
from tests.pipeline_project import PARAMETERS, REPOSITORY, Project, cell, notebook

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def refused(project: Project, error: type[Exception], *mentions: str) -> None:
    """The run is refused before anything is executed or written."""
    with pytest.raises(error) as raised:
        project.run()
    for mention in ("notebooks/toy.ipynb", *mentions):
        assert mention in str(raised.value)
    assert not project.data.exists()


def test_a_notebook_without_a_tagged_cell_is_refused(project: Project) -> None:
    project.phase("toy", None, "out.csv", cells=[cell(PARAMETERS)])
    refused(project, errors.UntaggedNotebook, "0 cells")
    project.phase("toy", None, "out.csv", cells=[cell(PARAMETERS, "parameters"), cell("a = 1", "parameters")])
    refused(project, errors.UntaggedNotebook, "2 cells")
    executed = [cell(PARAMETERS, "parameters"), cell(PARAMETERS, "injected-parameters")]
    project.phase("toy", None, "out.csv", cells=executed)
    refused(project, errors.UntaggedNotebook, "injected")


def test_an_unknown_parameter_is_refused(project: Project) -> None:
    project.phase("toy", "", "out.csv", parameters={"contxt": 2048})
    refused(project, errors.UnknownParameter, "contxt", "data_dir")


@pytest.mark.parametrize(
    ("default", "value"),
    [("2048", "2048"), ("2048", True), ("2048", 2048.0), ("True", "true"), ("True", 1), ("[1]", (1, 2)),
     ("1.5", "1.5"), ("1.5", float("nan")), ("'x'", Path("x")), ("None", (1,))],
)  # fmt: skip
def test_a_parameter_of_another_type_is_refused(project: Project, default: str, value: object) -> None:
    cells = [cell(PARAMETERS + f"thing = {default}\n", "parameters")]
    project.phase("toy", None, "out.csv", cells=cells, parameters={"thing": value})
    refused(project, errors.ParameterType, "thing")


def test_an_int_may_stand_for_a_float() -> None:
    rules.check_parameters("toy", {"delta": 1}, {"delta": 0.5})


@pytest.mark.parametrize(
    "line",
    ["b = a * 2", "b = (1, 2)", "a, b = 1, 2", "a = b = 1", "import os", "f()", "a += 1", "b: int", "x ="],
)
def test_derived_values_in_the_parameters_cell_are_refused(project: Project, line: str) -> None:
    project.phase("toy", None, "out.csv", cells=[cell(PARAMETERS + f"a = 1\n{line}\n", "parameters")])
    refused(project, errors.DerivedParameter)


def test_a_missing_or_damaged_notebook_is_refused(project: Project) -> None:
    project.phase("toy", "", "out.csv")
    path = project.root / "notebooks" / "toy.ipynb"
    path.write_text(path.read_text()[:100])
    refused(project, errors.NotebookDamaged)
    path.unlink()
    refused(project, errors.NotebookDamaged)


def test_every_profile_of_the_design_has_its_steps() -> None:
    design = load_design(REPOSITORY / "design.toml")
    for name in design.profiles:
        profile = design.profile(name)
        steps = table.steps(profile)
        assert len({step.name for step in steps}) == len(steps)
        promised = [promise.path for step in steps for promise in step.promises]
        assert len(set(promised)) == len(promised), "two steps would write one file"
        assert [step.parameters["context"] for step in steps if "context" in step.parameters] == [
            context for phase in table.PHASES if phase.per_context and phase.name in profile.phases
            for context in profile.contexts
        ]  # fmt: skip


def test_a_phase_the_table_lacks_and_a_missing_need_are_refused(project: Project) -> None:
    project.phase("toy", "", "out.csv")
    profile = load_design(project.root / "design.toml").profile("toy")
    with pytest.raises(errors.InvalidSetting, match="unknown phases"):
        table.steps(profile, ())
    project.phase("toy", "", "out.csv", needs=("other",))
    with pytest.raises(errors.InvalidSetting, match="other"):
        table.steps(profile, tuple(project.phases))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_follow_the_rules(path: Path) -> None:
    content = rules.read_notebook(path)
    known = rules.defaults(content, path.stem)
    assert known["profile"] == "smoke" and known["data_dir"] == "", "run by hand, it must touch no profile"
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    for entry in content["cells"]:
        assert not entry.get("outputs") and entry.get("execution_count") is None, "committed with outputs"
    for step in {
        s.notebook: s for s in table.steps(load_design(REPOSITORY / "design.toml").profile("cpu"))
    }.values():
        if step.notebook == path.stem:
            rules.check_parameters(path.stem, step.parameters, known)


def test_the_executed_copy_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    home, temporary = str(Path.home()), "/tmp/ipykernel_12/345.py"
    entry = cell("1")
    entry["metadata"] = {
        "papermill": {"duration": 1},
        "execution": {"iopub.execute_input": "now"},
        "tags": ["a"],
    }
    entry["outputs"] = [
        {"output_type": "stream", "text": [f"{temporary}:1: Warning\n", f"{tmp_path}/data/x\n"]},
        {
            "output_type": "display_data",
            "data": {
                "text/plain": f"{home}/thing \x1b[31mred\x1b[0m",
                "application/vnd.jupyter.widget-view+json": {},
            },
        },
    ]
    document = notebook(entry)
    document["metadata"]["papermill"] = {"input_path": str(tmp_path)}
    document["metadata"]["widgets"] = {}
    text = rules.publishable(document, tmp_path, "toy")
    for trace in (str(tmp_path), "ipykernel", "papermill", "widget", "iopub", "\\u001b", "/tmp"):
        assert trace not in text
    assert home == "/" or f"{home}/" not in text
    assert "data/x" in text and "thing red" in text
    assert json.loads(text)["cells"][0]["metadata"] == {"tags": ["a"]}


def test_an_executed_copy_over_300_kb_is_refused(tmp_path: Path) -> None:
    entry = cell("1")
    entry["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 300_000}]
    with pytest.raises(errors.NotebookTooLarge, match="toy"):
        rules.publishable(notebook(entry), tmp_path, "toy")


def test_content_hash_ignores_outputs_and_follows_code() -> None:
    before, after = cell("a = 1", "x"), cell("a = 1", "x")
    after |= {"execution_count": 5, "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}]}
    assert rules.content_hash(notebook(before)) == rules.content_hash(notebook(after))
    after["source"] = ["a = ", "1"]
    assert rules.content_hash(notebook(before)) == rules.content_hash(notebook(after))
    after["source"] = "a = 2"
    assert rules.content_hash(notebook(before)) != rules.content_hash(notebook(after))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "steps": {"a": 1}}', '{"format": 9}']
)
def test_an_unreadable_manifest_means_nothing_is_done(tmp_path: Path, text: str) -> None:
    (tmp_path / manifest.MANIFEST).write_text(text)
    assert manifest.load(tmp_path) == {}


def test_two_runs_on_one_data_folder(tmp_path: Path) -> None:
    with data_lock(tmp_path / "data", tmp_path), pytest.raises(errors.RunInProgress) as raised:  # noqa: SIM117
        with data_lock(tmp_path / "data", tmp_path):
            pass
    assert f"process {os.getpid()}" in str(raised.value) and str(tmp_path) not in str(raised.value)
    with data_lock(tmp_path / "data", tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_and_a_read_only_folder_are_named(tmp_path: Path, code: int) -> None:
    with (
        pytest.raises(errors.CannotWrite, match="data/toy"),
        named_write_errors(tmp_path / "data/toy", tmp_path),
    ):
        raise OSError(code, os.strerror(code))


def test_another_os_error_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), named_write_errors(tmp_path, tmp_path):
        raise FileNotFoundError(errno.ENOENT, "gone")


def test_a_read_only_data_folder_stops_a_run_before_it_starts(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.phase("toy", "raise SystemExit", "out.csv")
    monkeypatch.setattr(
        os, "access", lambda *_: False
    )  # root may write anywhere, so permissions alone prove nothing
    with pytest.raises(errors.CannotWrite, match="data/toy"):
        project.run()


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_what_stands_in_the_way_of_a_run_is_named(
    folder: bool, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.phase("toy", "", "out.csv")
    project.data.parent.mkdir()
    (project.data / "manifest.json").mkdir(parents=True) if folder else project.data.write_text("")
    monkeypatch.setattr("specdec_lib.pipeline.__main__.project_root", lambda: project.root)
    monkeypatch.setattr(runner, "run_profile", lambda root, profile, again, named: project.run())
    assert main(["runs", "--profile", "toy"]) == 1
    said = capsys.readouterr().err
    where = (
        "data/toy/manifest.json: a folder stands where a file"
        if folder
        else "data/toy: a file stands where a folder"
    )
    assert f"CannotWrite: Cannot write to {where} belongs." in said and "Remedy: " in said


def test_what_stands_in_the_way_elsewhere_keeps_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    with pytest.raises(IsADirectoryError), named_write_errors(tmp_path / "data" / "toy", tmp_path):
        (tmp_path / "prompts").read_text()


def test_environment_yml_is_the_lock() -> None:
    lock = (REPOSITORY / environment.LOCK).read_text()
    assert (REPOSITORY / environment.ENVIRONMENT).read_text() == environment.environment_text(lock)
    assert "torch==2.13.0\n" in lock and "+cpu" not in lock, "the lock must fit any build of torch"
    assert " @ " not in lock and "://" not in lock


def test_the_lock_pins_every_requirement() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = (REPOSITORY / environment.LOCK).read_text().splitlines()
    pins = {canonicalize_name(r.name): r for line in lines if "==" in line for r in [Requirement(line)]}
    extras = project["optional-dependencies"]
    # "kernels" is Triton, which the lock leaves out on purpose: large, and of one platform (CONTRIBUTING.md)
    wanted_here = [name for extra, names in extras.items() if extra != "kernels" for name in names]
    for text in [*project["dependencies"], *wanted_here]:
        wanted = Requirement(text)
        pin = pins[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(next(iter(pin.specifier)).version), text


def test_root_is_found_from_below_and_named_when_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDEC_ROOT", raising=False)
    assert project_root(REPOSITORY / "notebooks") == REPOSITORY
    with pytest.raises(errors.InvalidDesign):
        project_root(tmp_path)
    monkeypatch.setenv("SPECDEC_ROOT", str(tmp_path))
    with pytest.raises(errors.InvalidDesign, match="SPECDEC_ROOT"):
        project_root()


def test_a_notebook_run_by_hand_writes_beside_the_profile() -> None:
    assert data_folder("cpu-full", root="/r") == Path("/r/data/cpu-full-lab")
    assert data_folder("cpu", "data/cpu", root="/r") == Path("/r/data/cpu")


def test_commands_fail_with_status_one_and_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["book", "--profile", "cpuu"]) == 1
    said = capsys.readouterr().err
    assert "UnknownProfile" in said and "did you mean 'cpu'" in said


def test_another_python_says_make_env(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(root: Path) -> None:
        raise ModuleNotFoundError("No module named 'psutil'", name="psutil")

    monkeypatch.setattr(doctor, "report", lacking)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().err
    assert "EnvironmentIncomplete" in said and "'psutil'" in said and "make env" in said


def test_a_folder_of_ones_own_has_a_name_of_its_own(project: Project) -> None:
    project.phase("toy", "", "out.csv")
    for name in ("cpu-full", "my-", "my-x-lab", "../my-x", "published"):
        with pytest.raises(errors.InvalidSetting, match="my-full"):
            project.run(named=name)
    profile = load_design(project.root / "design.toml").profile("toy")
    (step,) = table.steps(profile, tuple(project.phases), "my-toy")
    assert step.parameters["data_dir"] == "data/my-toy" and step.parameters["profile"] == "toy"


def test_a_committed_profile_says_how_to_measure_it_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from specdec_lib.pipeline import runner

    asked: list[dict[str, object]] = []

    def run(root: Path, profile: str, **options: object) -> runner.Outcome:
        asked.append({"profile": profile, **options})
        return runner.Outcome((), ())

    monkeypatch.setattr(runner, "run_profile", run)
    assert main(["runs", "--profile", "cpu-full"]) == 0
    assert "make runs PROFILE=cpu-full INTO=my-cpu-full" in capsys.readouterr().err
    assert main(["runs", "--profile", "cpu-full", "--as", "my-full"]) == 0
    assert asked[1] == {"profile": "cpu-full", "again": False, "named": "my-full"}
    said = capsys.readouterr().err
    assert "data/my-full:" in said and "committed" not in said


@pytest.mark.parametrize(
    "profile", [n for n, e in load_design(REPOSITORY / "design.toml").profiles.items() if e.committed]
)
def test_committed_folders_are_whole_and_of_this_design(profile: str) -> None:
    """Else `make runs` of a fresh clone would execute notebooks, and change what is committed."""
    folder, records = REPOSITORY / "data" / profile, manifest.load(REPOSITORY / "data" / profile)
    steps = table.steps(load_design(REPOSITORY / "design.toml").profile(profile))
    for step in steps:
        assert manifest.whole(records[step.name], folder, runner._outputs(step)), step.name


def test_several_profiles_run_in_one_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from specdec_lib.pipeline import runner

    asked: list[str] = []

    def run(root: Path, profile: str, **options: object) -> runner.Outcome:
        asked.append(profile)
        return runner.Outcome((), ())

    monkeypatch.setattr(runner, "run_profile", run)
    assert main(["runs", "--profile", "smoke", "cpuu"]) == 1 and not asked, "all are known before one runs"
    assert main(["runs", "--profile", "smoke", "cpu", "--as", "my-own"]) == 1 and not asked
    assert "InvalidSetting" in capsys.readouterr().err
    assert main(["runs", "--profile"]) == 1 and not asked
    assert "UnknownProfile" in (said := capsys.readouterr().err) and "smoke" in said, "`PROFILE=` names none"
    assert main(["runs", "--profile", "smoke", "cpu"]) == 0 and asked == ["smoke", "cpu"]


def test_importing_the_runner_is_light() -> None:
    """`make book` with nothing to do must answer at once."""
    import subprocess
    import sys

    code = (
        "import sys, specdec_lib.pipeline.runner, specdec_lib.pipeline.html\n"
        "import specdec_lib.pairs, specdec_lib.prompts\n"
        "sys.exit(bool({'torch', 'pandas', 'papermill', 'sphinx', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


def test_doctor_says_what_each_profile_lacks() -> None:
    small = doctor.Machine(1, 1 << 30, 1 << 30, 1 << 40, "", 0, "", "2.13", False, "")
    text = "\n".join(doctor.report(REPOSITORY, small))
    design = load_design(REPOSITORY / "design.toml")
    for name in design.profiles:
        assert name in text
    listed = text.partition("Profiles")[2].splitlines()[1:]
    assert len({re.match(r"  \S+ +", line).end() for line in listed}) == 1, "not one column"  # type: ignore[union-attr]
    assert doctor.missing(design.profile("cpu"), small) == ["3 GiB of free memory needed"]
    assert "no GPU" in doctor.missing(design.profile("qwen-8gb"), small)
    large = doctor.Machine(8, 64 << 30, 64 << 30, 1 << 40, "GPU", 8 << 30, "1", "2.13", True, "x")
    for change, says in (
        ({"pair": "odd"}, "no pair 'odd'"),
        ({"phases": ("odd",)}, "unknown phases ['odd']"),
    ):
        (lack,) = doctor.missing(design.profile("smoke").model_copy(update=change), large)
        assert says in lack
    assert all(doctor.missing(design.profile(name), large) == [] for name in design.profiles)


def test_doctor_names_threads_that_this_machine_has_no_cores_for() -> None:
    profile = load_design(REPOSITORY / "design.toml").profile("cpu").model_copy(update={"threads": 99})
    machine = doctor.Machine(2, 64 << 30, 64 << 30, 1 << 40, "", 0, "", "2.13", False, "")
    assert doctor.missing(profile, machine) == ["threads = 99, cores: 2"]
    assert doctor.missing(profile.model_copy(update={"threads": 2}), machine) == []


def test_missing_traces_stop_a_run_before_any_step(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(root: Path, profile: Profile) -> None:
        raise errors.TableMissing("no traces")

    project.phase("toy", "", "out.csv")
    monkeypatch.setattr(runner, "require_traces", missing)
    with pytest.raises(errors.TableMissing):
        project.run()
    assert not project.data.exists()


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("threads = 99", errors.InvalidSetting, "'toy' has threads = 99; .*: 2\n"),
        ('device = "cuda"', errors.NoCudaDevice, "'toy' is measured on a GPU"),
    ],
    ids=["cores", "gpu"],
)
def test_what_this_machine_lacks_is_refused_before_any_step(
    line: str, error: type[errors.SpecDecError], says: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is measured yet; what another machine measured may still be derived here."""
    executed: list[str] = []
    monkeypatch.setattr(
        runner, "_run_step", lambda root, folder, step, design_hash: executed.append(step.name)
    )
    monkeypatch.setattr("specdec_lib.room.cores", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    project.phase("toy", "", "out.csv")
    design = project.root / "design.toml"
    design.write_text(f"{design.read_text()}{line}\n")
    for named in ("", "my-toy"):
        with pytest.raises(error, match=f"{says}(.|\n)*Remedy(.|\n)*make doctor"):
            project.run(named=named)
    assert not executed and not (project.root / "data").exists()
    (project.data / "jobs").mkdir(parents=True)
    (project.data / "jobs" / "calibrate.json").write_text("{}")
    assert project.run().executed == ("toy",)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("given", "passed"),
    [([], []), (["INTO=my-full"], ["--as", "my-full"]), (["INTO=my a"], ["--as", "my a"])],
)
def test_make_passes_on_what_was_typed_and_nothing_else(given: list[str], passed: list[str]) -> None:
    """make has variables of its own (AS is an assembler): one of ours by such a name would never be empty."""
    for target in ("book", "runs"):
        shown = subprocess.run(
            ["make", "-n", target, *given], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        assert shlex.split(shown.stdout.splitlines()[-1])[3:] == [target, "--profile", "cpu", *passed]
