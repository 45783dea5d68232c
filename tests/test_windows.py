"""What a reader's Windows machine lacks must not be asked for: shown by taking it away here."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from specdec_lib.pipeline import notebook

REPOSITORY = Path(__file__).parent.parent
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "crypt"}
WITHOUT_POSIX = """
import importlib.abc, os, sys
import filelock, numpy, pandas, psutil, scipy.stats  # they know this system, and do their own on another
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {posix!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
for name in {posix!r}:
    sys.modules.pop(name, None)
for name in ("sched_getaffinity", "uname", "getloadavg", "fork", "getuid"):
    if hasattr(os, name):
        delattr(os, name)
"""


def run_without_posix(code: str) -> str:
    """Standard output of ``code`` in a Python that has none of the modules and calls above."""
    whole = WITHOUT_POSIX.format(posix=sorted(POSIX_ONLY)) + code
    done = subprocess.run(
        [sys.executable, "-c", whole], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_readers_commands_import_is_there() -> None:
    """Doctor, runs and html before any job starts: pairs, measure, jobs, provenance, pipeline, report."""
    told = run_without_posix(
        """
from pathlib import Path
import specdec_lib.pairs, specdec_lib.measure, specdec_lib.mechanisms, specdec_lib.costs, specdec_lib.provenance
import specdec_lib.pipeline.__main__, specdec_lib.pipeline.runner, specdec_lib.pipeline.execute
import specdec_lib.pipeline.html
from specdec_lib.design import load_design
from specdec_lib.study import threads_of
from specdec_lib.provenance import machine
from specdec_lib.pipeline.lock import data_lock
print(threads_of(load_design().profile("qwen-8gb")) > 0, machine(2)["load_1min"])
"""
    )
    assert told.split() == ["True", "None"]


def test_a_data_folder_is_locked_without_fcntl_of_our_own(tmp_path: Path) -> None:
    assert "held" in run_without_posix(
        f"""
from pathlib import Path
from unittest.mock import patch
import specdec_lib.smollm2 as smollm2
with patch("specdec_lib.smollm2.models_folder", lambda: Path({str(tmp_path)!r})), smollm2._builder_lock():
    print("held")
"""
    )


def test_no_module_needs_posix_at_import() -> None:
    found = {}
    for path in (REPOSITORY / "specdec_lib").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )  # fmt: skip
            if wanted := POSIX_ONLY & set(names):
                found[path.name] = wanted
    assert not found


def test_texts_are_read_in_utf8_whatever_the_system_prefers() -> None:
    """Windows prefers another encoding; a call without one would read the prompts' accents wrong."""
    found = []
    for path in (REPOSITORY / "specdec_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                named = {keyword.arg for keyword in node.keywords}
                if node.func.attr in ("read_text", "write_text") and "encoding" not in named:
                    found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    own_or_linux = (
        "owner.",
        "info.read_text",
        "file.read_text",
    )  # a process number, and files under /proc and /sys
    assert not [line for line in found if not any(name in line for name in own_or_linux)]


@pytest.mark.parametrize(
    "text",
    [r"C:\Users\reader\study\data\x.csv", r"'C:\\Users\\reader\\study\\data\\x.csv'",
     "C:/Users/reader/study/data/x.csv"],
)  # fmt: skip
def test_a_windows_path_is_private_in_every_spelling(text: str) -> None:
    place = r"C:\Users\reader\study"
    for spelled, separator in notebook.spellings(place):
        text = text.replace(f"{spelled}{separator}", "")
    assert "reader" not in text and text.strip("'").startswith("data")


def test_a_posix_path_has_one_spelling() -> None:
    assert notebook.spellings("/home/reader/study") == [("/home/reader/study", "/")]


def test_git_changes_no_byte_of_a_checkout() -> None:
    assert "* -text" in (REPOSITORY / ".gitattributes").read_text(encoding="utf-8").splitlines()
