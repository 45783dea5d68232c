"""Renders ``book/`` into ``book/_build/html``: whole or not at all, and again only when its content
changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdec_lib.errors import BookError
from specdec_lib.files import atomic_write, canonical_json, sha256_file, sha256_text
from specdec_lib.pipeline.bookchecks import check_config, check_links, check_pages, check_site
from specdec_lib.pipeline.execute import kernel_environment
from specdec_lib.pipeline.lock import data_lock
from specdec_lib.pipeline.notebook import plain_text

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
        RunInProgress, CannotWrite.
    """
    output = root / "book" / "_build"
    inputs = inputs_hash(root)
    if not again and _current(output, inputs):
        return False
    with data_lock(output, root):
        (output / STAMP).unlink(missing_ok=True)
        work = output / "work"
        shutil.rmtree(work, ignore_errors=True)
        source = work / "source"
        pages = stage(root, source)
        check_config(source)
        check_pages(source, pages)
        _sphinx(root, source, work / "html")
        check_site(work / "html", pages, root)
        publish_data(root, work / "html")
        check_links(work / "html")
        target = output / "html"
        shutil.rmtree(target, ignore_errors=True)
        os.replace(work / "html", target)
        shutil.rmtree(work, ignore_errors=True)
        stamp = {"inputs": inputs, "pages": _page_hashes(target)}
        atomic_write(output / STAMP, json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    return True


def inputs_hash(root: Path) -> str:
    """Names everything a page can depend on: sources of the book and the library, design, lock, and ``data/``
    without weights and hidden files.
    """
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


def stage(root: Path, source: Path) -> list[str]:
    """Copy the book's sources to ``source`` and add the executed notebooks of committed profiles as an
    appendix.

    Returns the page names (without suffix) of the table of contents.
    """
    import yaml

    shutil.copytree(root / "book", source, ignore=shutil.ignore_patterns("_build", ".*"))
    toc = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    for profile in committed_profiles(root):
        executed = sorted((root / "data" / profile / "notebooks").glob("*.ipynb"))
        if not executed:
            continue
        folder = source / _APPENDIX / profile
        folder.mkdir(parents=True)
        for path in executed:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["metadata"]["mystnb"] = {"execution_mode": "off"}
            (folder / path.name).write_text(json.dumps(content), encoding="utf-8")
        chapters = [{"file": f"{_APPENDIX}/{profile}/{path.stem}"} for path in executed]
        if "chapters" in toc:  # a contents without parts
            toc["parts"] = [{"caption": "Pages", "chapters": toc.pop("chapters")}]
        toc.setdefault("parts", []).append(
            {"caption": f"Executed notebooks: {profile}", "chapters": chapters}
        )
    (source / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    return list(_toc_pages(toc))


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


def _sphinx(root: Path, source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "specdec_lib.pipeline.sphinx_worker", str(source), str(target)]
    logs = source.parent / "tmp"
    logs.mkdir()
    with kernel_environment(root):
        # Sphinx leaves its traceback in TMPDIR, which goes away with the working folder
        environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(logs))
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    log = done.stdout + done.stderr
    for path in logs.glob("sphinx-err-*.log"):
        log = f"{log.partition('The full traceback')[0]}\n{path.read_text(encoding='utf-8')}"
    before, failed, cell = log.partition(_CELL_FAILED)
    # what follows the cell's own traceback is Sphinx's
    shown = failed + cell.partition("The above exception was")[0] if failed else before
    pages = sorted(set(re.findall(r"work/source/([\w/.-]+\.(?:md|ipynb))", log)))
    lines = [
        line for line in plain_text(shown, root).splitlines() if line.strip() and "[IPKernelApp]" not in line
    ]
    raise BookError(
        f"The book was not built: {', '.join(f'book/{page}' for page in pages) or 'see below'}.\n"
        + "\n".join(f"    {line}" for line in lines[-_LOG_LINES:]),
        remedy="correct the page; the site of the last good build was left as it is",
    )


def publish_data(root: Path, site: Path) -> None:
    """Copy every table and provenance file under ``data/`` to the site's ``data/``, where pages link to
    it.
    """
    for folder in sorted(path for path in (root / "data").iterdir() if path.is_dir()):
        if folder.name in ("models", "prompts") or folder.name.startswith("."):
            continue
        for pattern in _PUBLISHED_DATA:
            for path in sorted(folder.glob(pattern)):
                copy = site / "data" / folder.name / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
