"""Render ``book/`` into ``book/_build/html``: whole or not at all, and again only if its content changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdec_lib.errors import BookError
from specdec_lib.files import atomic_write, canonical_json, sha256_file, sha256_text
from specdec_lib.pipeline import manifest
from specdec_lib.pipeline.bookchecks import check_config, check_links, check_pages, check_site
from specdec_lib.pipeline.execute import kernel_environment
from specdec_lib.pipeline.lock import data_lock
from specdec_lib.pipeline.notebook import plain_text, source

STAMP = "stamp.json"
_APPENDIX = "notebooks"  # folder of the executed notebooks in the site
_LOG_LINES = 40
_CELL_FAILED = "An error occurred while executing the following cell"
_PUBLISHED_DATA = ("*.csv", "*.json")


def build(root: Path, *, again: bool = False) -> bool:
    """Render the book; False when it was up to date.

    The pages are executed every time (they are cheap, and a cache would not see a changed number), in a copy
    of the sources under ``book/_build``; the finished site then takes the old one's place.

    Raises:
        BookError: a misspelt key, a page whose code would be dropped, a failing page, a warning, a page set
        that is
            not the table of contents, an absolute path or an external request in a page.
        TableError, MixedDesign, TableMissing: a table that the pages read; see :func:`check_tables`.
        RunInProgress, CannotWrite.
    """
    output = root / "book" / "_build"
    inputs = inputs_hash(root)
    if not again and _current(output, inputs):
        return False
    # it imports pandas, for which a book that is up to date does not wait
    from specdec_lib.pipeline.datacheck import check_tables

    check_tables(root)
    with data_lock(output, root):
        (output / STAMP).unlink(missing_ok=True)
        work = output / "work"
        shutil.rmtree(work, ignore_errors=True)
        try:
            staged = work / "source"
            pages = stage(root, staged)
            check_config(staged)
            check_pages(staged, pages)
            _sphinx(root, staged, work / "html")
            check_site(work / "html", pages, root)
            publish_data(root, work / "html")
            check_links(work / "html")
            target = output / "html"
            shutil.rmtree(target, ignore_errors=True)
            os.replace(work / "html", target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        stamp = {"inputs": inputs, "pages": _page_hashes(target)}
        atomic_write(output / STAMP, json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    return True


def inputs_hash(root: Path) -> str:
    """Names everything a page can depend on: sources of the book and the library, design, lock, and ``data/``
    without weights and hidden files."""
    files = [root / "design.toml", root / "requirements.lock"]
    files += _files(root / "book", skip={"_build"})
    files += [path for path in _files(root / "specdec_lib") if path.suffix in (".py", ".mplstyle")]
    files += _files(root / "data", skip={"models"})
    listed = [
        [path.relative_to(root).as_posix(), sha256_file(path)] for path in sorted(files) if path.is_file()
    ]
    return sha256_text(canonical_json(listed))


def _files(folder: Path, skip: set[str] | None = None) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        hidden = {name for name in folders if name.startswith(".") or name == "__pycache__"}
        top = skip if skip and Path(base) == folder else set()
        folders[:] = sorted(set(folders) - hidden - top)
        yield from (Path(base) / name for name in names if not name.startswith("."))


def _page_hashes(site: Path) -> dict[str, str]:
    return {path.relative_to(site).as_posix(): sha256_file(path) for path in sorted(site.rglob("*.html"))}


def _current(output: Path, inputs: str) -> bool:
    try:
        stamp = json.loads((output / STAMP).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return stamp.get("inputs") == inputs and stamp.get("pages") == _page_hashes(output / "html")


def committed_profiles(root: Path) -> list[str]:
    """Profiles whose results are part of the repository, in the design's order."""
    from specdec_lib.design import load_design

    return [name for name, entry in load_design(root / "design.toml").profiles.items() if entry.committed]


def stage(root: Path, folder: Path) -> list[str]:
    """Copy the book's sources to ``folder`` and add the executed notebooks of committed profiles as an
    appendix, behind a page that says what they are.

    Returns the page names (without suffix) of the table of contents.
    """
    import yaml

    shutil.copytree(root / "book", folder, ignore=shutil.ignore_patterns("_build", ".*"))
    toc = yaml.safe_load((folder / "_toc.yml").read_text(encoding="utf-8"))
    titles: dict[str, dict[str, str]] = {}
    for profile in committed_profiles(root):
        for path in sorted((root / "data" / profile / "notebooks").glob("*.ipynb")):
            content = json.loads(path.read_text(encoding="utf-8"))
            content["metadata"]["mystnb"] = {"execution_mode": "off"}
            title = _entitle(content, path.stem, profile, _measured_on(root, profile))
            titles.setdefault(profile, {})[path.stem] = title
            copy = folder / _APPENDIX / profile / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(json.dumps(content), encoding="utf-8")
    if titles:
        (folder / _APPENDIX / "index.md").write_text(_appendix(titles), encoding="utf-8")
        names = [f"{profile}/{name}" for profile in titles for name in titles[profile]]
        sections = [{"file": f"{_APPENDIX}/{name}"} for name in names]
        if "chapters" in toc:  # a contents without parts
            toc["parts"] = [{"caption": "Pages", "chapters": toc.pop("chapters")}]
        chapters = [{"file": f"{_APPENDIX}/index", "sections": sections}]
        toc.setdefault("parts", []).append({"caption": "Appendix", "chapters": chapters})
    (folder / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    return list(_toc_pages(toc))


def _entitle(content: dict[str, Any], step: str, profile: str, where: str) -> str:
    """Give an executed notebook's title its context and profile, which set it apart, and return it; add ``where``."""
    from specdec_lib.report.text import context_name

    of_context = re.search(r"-(\d+)$", step)
    which = f"{context_name(int(of_context.group(1)))} tokens, {profile}" if of_context else profile
    for cell in content["cells"]:
        first, _, rest = source(cell).partition("\n")
        if cell["cell_type"] == "markdown" and first.startswith("# "):
            title = f"{first.removeprefix('# ').strip()} ({which})"
            cell["source"] = f"# {title}\n\n{where}\n{rest}"
            return title
    return f"{step} ({profile})"


def _measured_on(root: Path, profile: str) -> str:
    """The hardware of all figures and tables of a committed profile's notebooks; "" where it was not recorded."""
    from specdec_lib.report.folders import PROVENANCE, Results, read_design

    folder = root / "data" / profile
    if not (folder / PROVENANCE).is_file():
        return ""
    content = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    one = Results(profile, folder, read_design(root), content)
    return f"All figures and tables of this page: {one.hardware}, pair `{one.profile.pair}`."


def _appendix(titles: dict[str, dict[str, str]]) -> str:
    lines = [
        "# Executed notebooks",
        "The notebook of every phase with the outputs of its last run, as they are kept in `data/`. Here nothing is "
        "run again; the chapters before show and judge the same tables.",
    ]
    for profile, names in titles.items():
        each = (f"- {{doc}}`{title} <{profile}/{name}>`" for name, title in names.items())
        lines += [f"## {profile}", "\n".join(each)]
    return "\n\n".join(lines) + "\n"


def _toc_pages(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key in ("root", "file"):
            if isinstance(node.get(key), str):
                yield re.sub(r"\.(md|ipynb)$", "", node[key])
        for value in node.values():
            yield from _toc_pages(value)
    elif isinstance(node, list):
        for item in node:
            yield from _toc_pages(item)


def _sphinx(root: Path, staged: Path, target: Path) -> None:
    command = [sys.executable, "-m", "specdec_lib.pipeline.sphinx_worker", str(staged), str(target)]
    logs = staged.parent / "tmp"
    logs.mkdir()
    with kernel_environment(root):
        # Sphinx leaves its traceback in TMPDIR, which goes away with the working folder
        environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(logs))
        status, log = _watched(command, root, environment)
    if status == 0:
        return
    for path in logs.glob("sphinx-err-*.log"):
        log = f"{log.partition('The full traceback')[0]}\n{path.read_text(encoding='utf-8')}"
    before, failed, cell = log.partition(_CELL_FAILED)
    # what follows the cell's own traceback is Sphinx's
    shown = failed + cell.partition("The above exception was")[0] if failed else before
    pages = sorted(set(re.findall(r"work/source/([\w/.-]+\.(?:md|ipynb))", log)))
    said = [
        line for line in plain_text(shown, root).splitlines() if line.strip() and "[IPKernelApp]" not in line
    ]
    lines = said[-_LOG_LINES:]
    corrected = "correct the cell shown above, or what it calls in specdec_lib/report"
    if any(line.strip().startswith("Remedy: ") for line in lines):
        corrected = "what the error above says"
    raise BookError(
        f"The book was not built: {', '.join(f'book/{page}' for page in pages) or 'see below'}.\n"
        + "\n".join(f"    {line}" for line in lines),
        remedy=f"{corrected}; the site of the last good build was left as it is",
    )


def _watched(command: list[str], root: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of ``command``, which ends, with all it started, when this process is interrupted."""
    reading, writing = os.pipe()  # its standard input: closed when this process ends in whatever way
    try:
        try:
            process = subprocess.Popen(
                command, cwd=root, env=environment, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, start_new_session=os.name == "posix",
            )  # fmt: skip
        finally:
            os.close(reading)
        with process:
            try:
                said, complained = process.communicate()
            except BaseException:
                if os.name == "posix":
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
                raise
    finally:
        os.close(writing)
    return process.returncode, said + complained


def publish_data(root: Path, site: Path) -> None:
    """Copy every table and provenance file under ``data/`` to the site's ``data/``, where pages link."""
    for source_map in site.rglob("*.map"):  # for the theme's developers, and an eighth of the site
        source_map.unlink()
    for folder in sorted(path for path in (root / "data").iterdir() if path.is_dir()):
        if folder.name in ("models", "prompts") or folder.name.startswith("."):
            continue
        for pattern in _PUBLISHED_DATA:
            for path in sorted(folder.glob(pattern)):
                if path.name == manifest.MANIFEST:  # the pipeline's own bookkeeping
                    continue
                copy = site / "data" / folder.name / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
