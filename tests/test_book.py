"""The book build on a two-page book with the real configuration; the real pages are in test_book_site.py."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec_lib import errors
from specdec_lib.pipeline import bookchecks, html, site
from tests.pipeline_project import REPOSITORY, cell, notebook

HEADER = (
    "---\njupytext:\n  text_representation:\n    format_name: myst\nkernelspec:\n  name: python3\n---\n\n"
)
READS = """# First

Maths: $x^2$.

```{code-cell} ipython3
import json, os
from pathlib import Path
facts = Path(os.environ["SPECDEC_ROOT"]) / "data/toy/facts.json"
print("measured", json.loads(facts.read_text())["n"])
```

[table](data/toy/t.csv)
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A project folder with a small book; pages need nothing but the standard library."""
    (tmp_path / "book").mkdir()
    for name in ("_config.yml", "_static", "_extra"):
        source = REPOSITORY / "book" / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, tmp_path / "book" / name)
    text = (REPOSITORY / "design.toml").read_text()
    (tmp_path / "design.toml").write_text(
        text[: text.index("[profiles.")]
        + '[profiles.done]\ntitle = "t"\npair = "tiny-llama"\nisolation = "cell"\n'
        + 'committed = true\nphases = ["smoke"]\nminutes = { smoke = 1 }\n'
    )
    write(tmp_path, "index", HEADER + READS.replace("[table](data/toy/t.csv)", ""))
    write(tmp_path, "second", "# Second\n\nNo code here.\n")
    contents(tmp_path, "second")
    write(tmp_path, "stray", HEADER + "# Stray\n\n```{code-cell} ipython3\n1 / 0\n```\n")
    toy = tmp_path / "data" / "toy"
    toy.mkdir(parents=True)
    (toy / "facts.json").write_text('{"n": 1234567}')
    (toy / "t.csv").write_text("n\n1\n")
    return tmp_path


def write(root: Path, page: str, text: str) -> None:
    (root / "book" / f"{page}.md").write_text(text)


def contents(root: Path, *pages: str) -> None:
    toc = {"format": "jb-book", "root": "index", "parts": [{"chapters": [{"file": page} for page in pages]}]}
    (root / "book" / "_toc.yml").write_text(yaml.safe_dump(toc))


def configure(root: Path, *path: str, value: object) -> None:
    file = root / "book" / "_config.yml"
    content = yaml.safe_load(file.read_text())
    section = content
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    file.write_text(yaml.safe_dump(content))


def page(root: Path, name: str = "index") -> str:
    return (root / "book" / "_build" / "html" / f"{name}.html").read_text()


def test_build(book: Path) -> None:
    executed = book / "data" / "done" / "notebooks"
    executed.mkdir(parents=True)
    ran = cell("1 / 0  # an executed copy is shown, not run")
    ran["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "as it was measured"}]
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# Smoke"}
    (executed / "smoke.ipynb").write_text(json.dumps(notebook(title, ran)))
    assert html.build(book)
    made = {
        p.relative_to(book / "book/_build/html").as_posix()
        for p in (book / "book/_build/html").glob("**/*.html")
    }
    made = {name for name in made if not name.startswith("_static")}
    assert made == {
        "index.html",
        "second.html",
        "notebooks/index.html",
        "notebooks/done/smoke.html",
        "genindex.html",
        "search.html",
    }
    assert "measured 1234567" in page(book)
    assert "as it was measured" in page(book, "notebooks/done/smoke")
    assert "Smoke (done)" in page(book, "notebooks/done/smoke")
    assert "Smoke (done)" in page(book, "notebooks/index")
    assert (book / "book/_build/html/data/toy/t.csv").is_file()
    assert (book / "book/_build/html/mathjax/tex-chtml.js").is_file() and "mathjax/tex-chtml.js" in page(book)
    assert not re.search(r'(src|href)="https?://[^"]+\.(js|css|woff2?)', page(book))
    assert sorted(p.name for p in (book / "book/_build").iterdir() if not p.name.startswith(".")) == [
        "html", "stamp.json"
    ]  # fmt: skip

    # Nothing changed: not again, not after touch, not in a copy elsewhere.
    for path in book.rglob("*"):
        os.utime(path, (1, 1))
    assert not html.build(book)
    copy = book.parent / "copy"
    shutil.copytree(book, copy)
    assert not html.build(copy)
    assert str(book) not in (book / "book/_build/stamp.json").read_text()

    # A changed number arrives, and the old one is gone.
    (copy / "data/toy/facts.json").write_text('{"n": 7654321}')
    assert html.build(copy)
    assert "measured 7654321" in page(copy) and "1234567" not in page(copy)
    assert not html.build(copy)

    archive = site.make_site(copy)
    folder = copy / "dist" / site.NAME
    assert archive.is_file() and (folder / "index.html").read_text() == page(copy)
    assert not any(str(copy).encode() in p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_a_page_damaged_by_hand_is_made_again(tmp_path: Path) -> None:
    target = tmp_path / "html"
    target.mkdir()
    (target / "index.html").write_text("x")
    stamp = {"inputs": "i", "pages": html._page_hashes(target)}
    (tmp_path / html.STAMP).write_text(json.dumps(stamp))
    assert html._current(tmp_path, "i") and not html._current(tmp_path, "other")
    (target / "index.html").write_text("y")
    assert not html._current(tmp_path, "i")
    (target / "index.html").unlink()
    assert not html._current(tmp_path, "i")


def test_a_failing_page_fails_every_time_and_keeps_the_last_good_site(book: Path) -> None:
    target = book / "book/_build/html/index.html"
    target.parent.mkdir(parents=True)
    target.write_text("the last good build")
    write(book, "second", HEADER + "# Second\n\n```{code-cell} ipython3\n1 / 0\n```\n")
    for _ in range(2):
        with pytest.raises(errors.BookError) as raised:
            html.build(book)
        assert "book/second.md" in str(raised.value) and "ZeroDivisionError" in str(raised.value)
        assert str(book) not in str(raised.value)
        assert target.read_text() == "the last good build"
        assert not (book / "book/_build/stamp.json").exists()
        # Again, and now with so many pages that Sphinx reads them in parallel and reports errors another way.
        more = [f"page{number}" for number in range(6)]
        for name in more:
            write(book, name, f"# {name}\n")
        contents(book, "second", *more)


def test_a_named_error_of_a_page_keeps_its_own_remedy(book: Path) -> None:
    raising = 'from specdec_lib.errors import TableError\nraise TableError("t.csv.", remedy="fetch it")'
    for code, remedy in ((raising, "what the error above says"), ("1 / 0", "correct the cell shown above")):
        write(book, "second", f"{HEADER}# Second\n\n```{{code-cell}} ipython3\n{code}\n```\n")
        with pytest.raises(errors.BookError) as raised:
            html.build(book)
        assert raised.value.remedy.startswith(remedy)
        assert ("Remedy: fetch it" in raised.value.what) == (code == raising)


@pytest.mark.skipif(os.name != "posix", reason="signals and process groups of POSIX")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "kill -9"])
def test_a_stopped_build_leaves_no_process(book: Path, how: signal.Signals) -> None:
    import psutil

    write(book, "second", HEADER + "# Second\n\n```{code-cell} ipython3\nimport time\ntime.sleep(60)\n```\n")
    environment = os.environ | {"SPECDEC_ROOT": str(book), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "specdec_lib.pipeline", "html"]
    with subprocess.Popen(command, env=environment, cwd=book, stderr=subprocess.DEVNULL) as run:
        deadline, started = time.monotonic() + 60, []
        while not any("ipykernel" in " ".join(one.cmdline()) for one in started):
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
            started = _alive(psutil.Process(run.pid).children(recursive=True))
        run.send_signal(how)
        assert run.wait(timeout=20) == (143 if how is signal.SIGTERM else -signal.SIGKILL)
    gone, alive = psutil.wait_procs(started, timeout=20)
    assert not alive, [one.cmdline() for one in alive]
    assert how is signal.SIGKILL or not (book / "book/_build/work").exists()


def _alive(processes: list[Any]) -> list[Any]:
    """Those whose command line can still be read."""
    import psutil

    found = []
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.cmdline()
            found.append(one)
    return found


def test_a_warning_fails(book: Path) -> None:
    write(book, "second", "# Second\n\n[nowhere](missing.md)\n")
    with pytest.raises(errors.BookError, match="second.md"):
        html.build(book)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("executes",), {}), (("execute", "raise_on_eror"), True), (("html", "titel"), "x"),
     (("sphinx", "config", "mathjax_pth"), "x"), (("sphinx", "konfig"), {}), (("parse", "x"), 1)],
)  # fmt: skip
def test_a_misspelt_key_is_refused(book: Path, path: tuple[str, ...], value: object) -> None:
    configure(book, *path, value=value)
    with pytest.raises(errors.BookError, match=f"unknown key {'.'.join(path)}"):
        bookchecks.check_config(book / "book")


@pytest.mark.parametrize(
    ("path", "value"),
    [(("execute", "execute_notebooks"), "cache"), (("execute", "raise_on_error"), False),
     (("execute", "allow_errors"), True), (("only_build_toc_files",), False),
     (("sphinx", "recursive_update"), False), (("sphinx", "config", "nb_ipywidgets_js"), None)],
)  # fmt: skip
def test_a_value_that_would_publish_failures_is_refused(
    book: Path, path: tuple[str, ...], value: object
) -> None:
    configure(book, *path, value=value)
    with pytest.raises(errors.BookError, match=re.escape(".".join(path))):
        bookchecks.check_config(book / "book")


@pytest.mark.parametrize(
    "header", ["", "---\nkernelspec:\n  name: python3\n---\n\n", HEADER.replace("python3", "other")]
)
def test_a_page_whose_code_would_be_dropped_is_refused(book: Path, header: str) -> None:
    write(book, "index", header + READS)
    with pytest.raises(errors.BookError, match="book/index.md"):
        bookchecks.check_pages(book / "book", ["index", "second"])


def test_a_page_that_is_missing_or_named_twice_is_refused(book: Path) -> None:
    with pytest.raises(errors.BookError, match="third"):
        bookchecks.check_pages(book / "book", ["index", "third"])
    with pytest.raises(errors.BookError, match="twice"):
        bookchecks.check_pages(book / "book", ["index", "second", "second"])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A rendered site of one page."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text('<a href="https://example.org">a link is fine</a>')
    return tmp_path / "site"


def check(made: Path, text: str, suffix: str = ".html") -> None:
    (made / f"index{suffix}").write_text(text)
    bookchecks.check_site(made, ["index"], made.parent)


@pytest.mark.parametrize(
    "tag",
    ['<script src="https://cdn.example/x.js">', '<script async src=//cdn.example/x.js>',
     '<link rel="stylesheet" href="https://fonts.example/x.css">', '<img alt="" src="http://x.example/a.png">',
     "<style>@import url(https://x.example/a.css)</style>", "<p style=\"background: url('//x.example/a')\">"],
)  # fmt: skip
def test_an_external_request_is_refused(made: Path, tag: str) -> None:
    bookchecks.check_site(made, ["index"], made.parent)
    with pytest.raises(errors.BookError, match="another site"):
        check(made, tag)


def test_a_path_of_this_machine_is_refused(made: Path) -> None:
    with pytest.raises(errors.BookError, match="this machine"):
        check(made, f"<p>{made.parent}/data</p>")


def test_a_page_outside_the_contents_is_refused(made: Path) -> None:
    (made / "stray.html").write_text("x")
    with pytest.raises(errors.BookError, match="stray"):
        bookchecks.check_site(made, ["index"], made.parent)
    with pytest.raises(errors.BookError, match="second"):
        bookchecks.check_site(made, ["index", "stray", "second"], made.parent)


def test_a_dead_link_is_refused(made: Path) -> None:
    bookchecks.check_links(made)
    (made / "index.html").write_text('<a class="x" href="data/cpu/none.csv">CSV</a>')
    with pytest.raises(errors.BookError, match="data/cpu/none.csv"):
        bookchecks.check_links(made)


def test_a_site_over_25_mb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.BookError, match="make html"):
        site.make_site(tmp_path)
    folder = tmp_path / "book" / "_build" / "html"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("x" * 1000)
    monkeypatch.setattr(site, "MAX_BYTES", 999)
    with pytest.raises(errors.BookError, match="MB"):
        site.make_site(tmp_path)


def test_a_table_of_several_folders_links_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from specdec_lib.report import style

    monkeypatch.setattr(style, "csv_link", lambda csv: f"data/{csv}")
    one = style._card("study-table", "", "", "cpu/a.csv")
    assert '<figcaption><a href="data/cpu/a.csv" download>CSV</a></figcaption>' in one
    assert one.startswith('<figure class="study-table">')
    assert style._card("study-table", "", "", ["cpu/a.csv"]) == one
    both = style._card("study-table", "", "", ["cpu/a.csv", "gpu/a.csv", "gpu/b.csv"])
    assert 'CSV: <a href="data/cpu/a.csv" download>cpu</a>, <a href="data/gpu/a.csv" download>gpu</a>' in both


def test_every_built_in_picture_has_alternative_text() -> None:
    """The figure helper: alternative text, caption, CSV link, and an SVG that is the same in every build."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from specdec_lib.report import style

    def draw() -> str:
        style.use_style()
        fig, axes = plt.subplots()
        axes.plot([1, 2], label="AR")
        axes.legend()
        markup = style._figure_html(fig, "AR rises from 1 to 2 <tokens>", "A & B", None)
        plt.close(fig)
        return markup

    first = draw()
    assert first == draw()
    assert 'alt="AR rises from 1 to 2 &lt;tokens&gt;"' in first and "A &amp; B" in first
    found = re.search(r"base64,([^\"]+)", first)
    assert found
    picture = base64.b64decode(found.group(1)).decode()
    colours = {colour.lower() for colour in re.findall(r"fill: (#[0-9a-fA-F]{6})", picture)}
    assert style.INK in colours, "text is drawn in ink"
    assert style._unmarked("R **rises** in `cpu`, 2 * 3") == "R rises in cpu, 2 * 3"
    fig = plt.figure()
    with pytest.raises(errors.InvalidSetting):
        style.figure(fig, alt="figure")
    plt.close(fig)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(colour: str) -> float:
    return 1.05 / (_luminance(colour) + 0.05)


def test_contrast_on_the_white_card() -> None:
    from specdec_lib.report import style

    assert _contrast(style.INK) >= 4.5 and _contrast(style.MUTED) >= 4.5
    assert all(_contrast(series.colour) >= 3 for series in style.SERIES)
    assert abs(_luminance(style.AR.colour) - _luminance(style.SPEC.colour)) > 0.08, "the arms differ in grey"
    assert len({(series.marker, series.line) for series in style.SERIES}) == len(style.SERIES)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.53149, "", "0.531"), (12345.6, "ms", "12,346\u00a0ms"), (12345, "", "12,345"),
     (4.0, "s", "4.00\u00a0s"), (0.0, "", "0"), (None, "s", "not measured"),
     (float("nan"), "", "not measured"),
     (1e-6, "", "1.00e-06"),
     (True, "", "yes"), ("text", "", "text"), (999.9, "", "1,000"), (-0.25, "", "-0.250")],
)  # fmt: skip
def test_number(value: object, unit: str, shown: str) -> None:
    from specdec_lib.report.style import number

    assert number(value, unit) == shown
