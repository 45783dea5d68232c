"""A damaged table is named before any page is made, and a missing one on the page that lists the folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specdec_lib import errors
from specdec_lib.pipeline import datacheck, html, manifest
from specdec_lib.pipeline.table import promise_of
from specdec_lib.report import completeness, environment, folders
from tests.mechanism_tables import make_folder, make_project, put

pytestmark = pytest.mark.usefixtures("nothing_committed")

FOREIGN = "f" * 16


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def folder_with_a_dial(root: Path, name: str = "my-full", profile: str = "cpu-full") -> Path:
    folder = make_folder(root, name, profile)
    put(folder, "dial", lambda variant, context: 1.1)
    return folder


def foreign(path: Path) -> None:
    record = json.loads((path.parent / "provenance.json").read_text())
    path.write_text(path.read_text().replace(record["design_hash"], FOREIGN))


def test_whole_tables_and_a_readers_copies_pass(project: Path) -> None:
    folder = folder_with_a_dial(project)
    (folder / "dial-old.csv").write_text("a copy, of anything\n")
    datacheck.check_tables(project)
    assert promise_of("confirmatory-2048.csv") and promise_of("dial-old.csv") is None


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        (foreign, errors.MixedDesign, FOREIGN),
        (lambda path: path.write_text(path.read_text()[:-9]), errors.TableError, "truncated"),
        (lambda path: path.write_text("a,b\n1,2\n"), errors.TableError, "unknown a"),
        (lambda path: path.write_text(""), errors.TableError, "empty"),
        (lambda path: path.write_text(path.read_text().split("\n")[0] + "\n"), errors.TableError, "no row"),
        (lambda path: (path.unlink(), path.mkdir()), errors.TableError, "is no file"),
        (lambda path: path.write_bytes(b"\xff\n"), errors.TableError, "UTF-8"),
    ],
)
def test_a_damaged_table_is_named_with_its_folder(
    project: Path, damage: object, error: type[Exception], says: str
) -> None:
    folder = folder_with_a_dial(project)
    damage(folder / "dial.csv")  # pyright: ignore[reportCallIssue]
    with pytest.raises(error) as raised:
        datacheck.check_tables(project)
    told = str(raised.value)
    assert says in told and told.startswith("data/my-full/dial.csv")
    assert "make runs PROFILE=cpu-full INTO=my-full" in told and "git" not in told


@pytest.mark.parametrize("file", ["smoke.csv", "worked-round.json"])
def test_a_file_without_a_schema_is_not_empty(project: Path, file: str) -> None:
    (folder_with_a_dial(project) / file).write_text("")
    with pytest.raises(errors.TableError, match=f"data/my-full/{file}"):
        datacheck.check_tables(project)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("cpu-full", "git checkout data/cpu-full/dial.csv"),
        ("my-full", "move data/my-full away"),
        ("borrowed", "copy it again"),
    ],
)
def test_the_remedy_fits_the_folder(project: Path, name: str, remedy: str) -> None:
    foreign(folder_with_a_dial(project, name) / "dial.csv")
    with pytest.raises(errors.MixedDesign) as raised:
        datacheck.check_tables(project)
    assert remedy in str(raised.value)


def test_a_folder_that_joins_nothing_stops_no_page(project: Path) -> None:
    folder = folder_with_a_dial(project, "smoke", "smoke")
    (folder / "dial.csv").write_text("")
    datacheck.check_tables(project)


def test_the_table_is_read_before_the_pages_and_not_where_nothing_changed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(project / "design.toml", project / "requirements.lock")
    folder = folder_with_a_dial(project)
    (folder / "dial.csv").write_text("")
    monkeypatch.setattr(html, "stage", lambda *_: pytest.fail("a page was made of a damaged table"))
    with pytest.raises(errors.TableError, match="data/my-full/dial.csv"):
        html.build(project)
    monkeypatch.setattr(html, "_current", lambda *_: True)
    assert not html.build(project)


# -- what is not there


def test_a_missing_table_is_said_with_its_command(project: Path) -> None:
    folder = folder_with_a_dial(project)
    (told,) = completeness.sentences(project)
    assert "confirmatory-4096 (`confirmatory-4096.csv` and `stages-4096.csv`)" in told
    assert (
        "a part of the profile `cpu-full`. `my-full` lacks it, and no page shows it: " in told
        and "dial" not in told
    )
    assert "make runs PROFILE=cpu-full INTO=my-full" in told
    (folder / "dial.csv").unlink()
    (told,) = completeness.sentences(project)
    assert "dial (`dial.csv`)" in told


def test_a_table_that_a_finished_step_wrote_and_is_gone_stops_the_pages(project: Path) -> None:
    folder = folder_with_a_dial(project)
    written = {"dial.csv": "", "notebooks/dial.ipynb": "", "jobs/a.json": ""}
    manifest.save(folder, {"dial": manifest.Record("", written)})
    datacheck.check_tables(project)
    (folder / "dial.csv").unlink()
    with pytest.raises(errors.TableMissing, match=r"data/my-full/dial.csv is gone") as raised:
        datacheck.check_tables(project)
    assert "make runs PROFILE=cpu-full INTO=my-full" in raised.value.remedy


def test_the_page_that_lists_the_folders_says_what_is_missing(
    project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_with_a_dial(project)
    monkeypatch.setattr(environment, "project_root", lambda: project)
    environment.show_provenance()
    assert any("`confirmatory-4096.csv`" in part for part in shown)


def test_nothing_is_said_of_a_whole_folder(project: Path) -> None:
    folder = folder_with_a_dial(project)
    for files in completeness.absent(folders.all_folders(project)[0]).values():
        for file in files:
            (folder / file).write_text("")
    assert completeness.sentences(project) == []
