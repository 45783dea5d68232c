"""Known traps that belong to no one module: how results are told, progress, and what must stay pinned."""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import pytest

from specdec_lib.pipeline.progress import Progress
from specdec_lib.report import compare
from specdec_lib.schemas import SCHEMAS

ROOT = Path(__file__).parent.parent
PAGES = [page for page in sorted((ROOT / "book").glob("*.md")) if page.stem != "references"]


def test_acceptance_never_stands_alone() -> None:
    """A perfect acceptance can still be slower: where it is shown, R and tokens per round are beside it."""
    for name, schema in SCHEMAS.items():
        columns = set(schema.columns)
        # A trace is of a cell, not of a timed run: it has no R.
        if name != "traces" and any(column.startswith("acceptance") for column in columns):
            assert any(re.match(r"R(_|$)", column) for column in columns), name
    assert {"acceptance", "R", "tokens_per_round"} <= set(SCHEMAS["families"].columns)
    assert {"acceptance_median", "R_GM", "tokens_per_round_median"} <= set(SCHEMAS["summary"].columns)
    assert {"acceptance", "R_GM, all families", "tokens per round"} <= set(compare.ACCEPTANCE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_bar_for_a_person_and_lines_for_a_log(stream: type[io.StringIO]) -> None:
    """A log gets a line when a step begins and one when it ends, and no carriage return."""
    out = stream()
    progress = Progress(3, out)
    for name in ("smoke", "correctness", "confirmatory-2048"):
        progress.start(name)
        progress.finish(name)
    progress.say("a remark")
    progress.close()
    said = out.getvalue()
    assert "a remark" in said and str(ROOT) not in said
    assert ("\r" in said) is isinstance(out, Terminal)
    if not isinstance(out, Terminal):
        lines = said.splitlines()
        assert len(lines) == 7 and lines[4] == "[3/3] confirmatory-2048 ..."


def test_no_widget_bars() -> None:
    """A widget leaves an empty box in a page and loads its script from a CDN."""
    for path in [*(ROOT / "specdec_lib").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]:
        assert not re.search(r"tqdm\.(auto|notebook|autonotebook)|import ipywidgets", path.read_text()), (
            path.name
        )


def prose(text: str) -> str:
    """A page without its header, code, links, inline code and comments."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^(`{3,}|:{3,})\s*\{code-cell\}.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`|<!--.*?-->", "", text, flags=re.DOTALL)


# A decimal, or a number with a unit of measurement. Counts of the design (k, tokens) are no results.
TYPED = re.compile(r"(?<![\w.])(\d+\.\d+|\d[\d,]*\s*(s|ms|GB/s|GiB|MB|tokens/s|x)(?![\w-]))")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_in_prose_are_not_typed(page: Path) -> None:
    """They come from data/ when the page runs; a typed one is wrong on the next machine."""
    found = [match.group(0) for match in TYPED.finditer(prose(page.read_text()))]
    assert not found, f"{page.name}: take {found} from data/"


@pytest.mark.parametrize("text", ["R was 0.531 here", "it took 2 s", "reads 12 GB/s", "about 1,300 tokens/s"])
def test_the_rule_finds_typed_numbers(text: str) -> None:
    assert TYPED.search(text)
    assert not TYPED.search(prose("At k = 4, 64 tokens, Qwen2.5, 16 families, `0.5` and [1.2](a.md)."))


WORKS_TOGETHER = {
    "jupyter-book": "1.0.4.post1", "sphinx": "7.4.7", "myst-nb": "1.4.0", "docutils": "0.21.2",
    "sphinx-book-theme": "1.3.0", "papermill": "2.7.0", "nbclient": "0.11.0", "ipykernel": "7.4.0",
}  # fmt: skip


# `_failed` chooses the error; PermissionError is caught and named where it is raised
_OTHERWISE = {"_failed", "PermissionError"}


@pytest.mark.parametrize("folder", ["report", "pipeline"])
def test_every_error_says_what_to_do(folder: str) -> None:
    for path in sorted((ROOT / "specdec_lib" / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            if ast.unparse(node.exc.func) in _OTHERWISE:
                continue
            where = f"{path.name}:{node.lineno}"
            remedy = next((word.value for word in node.exc.keywords if word.arg == "remedy"), None)
            assert remedy is not None, f"{where} has no remedy"
            if isinstance(remedy, ast.Constant):
                assert len(str(remedy.value).split()) > 2, f"{where}: {remedy.value!r} tells a reader nothing"


def test_the_book_s_packages_are_the_set_that_works_together() -> None:
    """Jupyter Book 2 ignores ``_config.yml`` and makes no HTML from these sources."""
    lock = dict(
        line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line
    )
    pins = {name.lower().replace("_", "-"): version.split()[0] for name, version in lock.items()}
    assert {name: pins.get(name) for name in WORKS_TOGETHER} == WORKS_TOGETHER
    assert '"jupyter-book>=1.0.4,<2"' in (ROOT / "pyproject.toml").read_text()
