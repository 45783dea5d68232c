"""Renders ``book/`` into ``book/_build/html``: whole or not at all, and again only when its content changed."""

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
from urllib.parse import unquote

from specdec_lib.errors import BookError
from specdec_lib.files import atomic_write, canonical_json, sha256_file, sha256_text
from specdec_lib.pipeline.execute import kernel_environment
from specdec_lib.pipeline.lock import data_lock
from specdec_lib.pipeline.notebook import plain_text, private_strings

STAMP = "stamp.json"
_APPENDIX = "notebooks"  # folder of the executed notebooks in the site
_LOG_LINES = 40
_CELL_FAILED = "An error occurred while executing the following cell"
_PUBLISHED_DATA = ("*.csv", "*.json")


def build(root: Path, *, again: bool = False) -> bool:
    """Render the book; False when it was up to date.

    The pages are executed every time (they are cheap, and a cache would not see a changed number), in a copy of the
    sources under ``book/_build``; the finished site then takes the old one's place.

    Raises:
        BookError: a misspelt key, a page whose code would be dropped, a failing page, a warning, a page set that is
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
    """Copy the book's sources to ``source`` and add the executed notebooks of committed profiles as an appendix.

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


# Jupyter Book says nothing about a key it does not know; these are the keys this book uses.
_CONFIG_KEYS: dict[str, set[str]] = {
    "": {"title", "author", "copyright", "only_build_toc_files", "execute", "html", "parse", "sphinx"},
    "execute": {"execute_notebooks", "raise_on_error", "allow_errors", "timeout", "stderr_output", "show_tb"},
    "html": {"use_edit_page_button", "use_repository_button", "use_issues_button", "home_page_in_navbar",
             "extra_footer"},
    "parse": {"myst_enable_extensions"},
    "sphinx": {"config", "recursive_update"},
    "sphinx.config": {"html_extra_path", "mathjax_path", "mathjax3_config", "nb_ipywidgets_js", "html_theme_options",
                      "html_copy_source", "html_show_sourcelink", "html_last_updated_fmt", "suppress_warnings",
                      "nb_merge_streams", "language", "myst_heading_anchors", "html_show_copyright",
                      "nb_execution_show_tb", "numfig"},
}  # fmt: skip
_CONFIG_VALUES = {
    ("execute", "execute_notebooks"): "force",
    ("execute", "raise_on_error"): True,
    ("execute", "allow_errors"): False,
    ("", "only_build_toc_files"): True,
    ("sphinx", "recursive_update"): True,
    ("sphinx.config", "nb_ipywidgets_js"): {},
}


def check_config(source: Path) -> None:
    """Refuse a key of ``_config.yml`` that nothing reads, and a value that would publish a failing or a stale page."""
    import yaml

    content = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    sections = {
        "": content,
        "execute": content.get("execute", {}),
        "html": content.get("html", {}),
        "parse": content.get("parse", {}),
        "sphinx": content.get("sphinx", {}),
        "sphinx.config": content.get("sphinx", {}).get("config", {}),
    }
    for section, values in sections.items():
        where = f"{section}." if section else ""
        for key in values:
            if key not in _CONFIG_KEYS[section]:
                raise BookError(
                    f"book/_config.yml: unknown key {where}{key}.",
                    expected="one of " + ", ".join(sorted(_CONFIG_KEYS[section])),
                    remedy="correct it, or add it to specdec_lib/pipeline/html.py if Jupyter Book reads it",
                )
    for (section, key), value in _CONFIG_VALUES.items():
        if sections[section].get(key) != value:
            where = f"{section}." if section else ""
            raise BookError(
                f"book/_config.yml: {where}{key} is {sections[section].get(key)!r}.",
                expected=f"{value!r}",
                remedy="restore it: with another value a page that fails or is out of date gets published",
            )


_CODE_CELL = re.compile(r"^(```+|:::+)\s*\{code-cell\}", re.MULTILINE)


def check_pages(source: Path, pages: list[str]) -> None:
    """Every page of the contents exists once, and one with code cells names its kernel, else they are dropped."""
    import yaml

    if repeated := sorted({page for page in pages if pages.count(page) > 1}):
        raise BookError(f"book/_toc.yml names {repeated} twice.", remedy="name each page once")
    for page in pages:
        found = [path for suffix in (".md", ".ipynb") if (path := source / f"{page}{suffix}").is_file()]
        if len(found) != 1:
            raise BookError(
                f"book/_toc.yml names {page}, of which there are {len(found)} files.",
                expected=f"one of {page}.md and {page}.ipynb",
                remedy="correct _toc.yml or add the page",
            )
        if found[0].suffix != ".md":
            continue
        text = found[0].read_text(encoding="utf-8")
        if not _CODE_CELL.search(text):
            continue
        header = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        front = (yaml.safe_load(header.group(1)) if header else None) or {}
        if front.get("kernelspec", {}).get("name") != "python3" or "jupytext" not in front:
            raise BookError(
                f"book/{page}.md has code cells and no jupytext header with kernelspec python3.",
                expected="the header that the other pages have; without it the cells are silently dropped",
                remedy="copy the first lines of book/index.md",
            )


def _sphinx(root: Path, source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "specdec_lib.pipeline.sphinx_worker", str(source), str(target)]
    logs = source.parent / "tmp"
    logs.mkdir()
    with kernel_environment(root):
        # Sphinx leaves its traceback in TMPDIR, which goes away with the working folder
        environment = os.environ | {"TMPDIR": str(logs)}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    log = done.stdout + done.stderr
    for path in logs.glob("sphinx-err-*.log"):
        log = f"{log.partition('The full traceback')[0]}\n{path.read_text(encoding='utf-8')}"
    pages_log, _, cause = log.partition(_CELL_FAILED)
    if cause:  # what follows the cell's own traceback is Sphinx's
        log = _CELL_FAILED + cause.partition("The above exception was")[0]
    pages = sorted(set(re.findall(r"work/source/([\w/.-]+\.(?:md|ipynb))", pages_log + cause)))
    lines = [line for line in plain_text(log, root).splitlines() if line.strip() and "[IPKernelApp]" not in line]
    raise BookError(
        f"The book was not built: {', '.join(f'book/{page}' for page in pages) or 'see below'}.\n"
        + "\n".join(f"    {line}" for line in lines[-_LOG_LINES:]),
        remedy="correct the page; the site of the last good build was left as it is",
    )


_EXTERNAL = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|license))[^>]*\bhref=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//\S+|url\([\"']?(?:https?:)?//[^)]+\)",
    re.IGNORECASE,
)
# Pages Sphinx makes itself; readers reach them from the search box and the index.
_OWN_PAGES = {"genindex", "search", "py-modindex"}


def check_site(site: Path, pages: list[str], root: Path) -> None:
    """Page set, external requests, private strings. See :func:`build`."""
    found = (path.relative_to(site) for path in site.rglob("*.html"))
    made = {path.with_suffix("").as_posix() for path in found if path.parts[0] != "_static"} - _OWN_PAGES
    made -= {"index"} if "index" not in pages else set()  # Jupyter Book's redirect to the root page
    if made != set(pages):
        raise BookError(
            f"The pages are not those of the table of contents: missing {sorted(set(pages) - made)}, "
            f"extra {sorted(made - set(pages))}.",
            remedy="correct book/_toc.yml",
        )
    private = [secret for secret, _ in private_strings(root) if secret != "/tmp"]
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".js", ".css", ".txt", ".json", ".svg") or "mathjax" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(site).as_posix()
        if path.suffix in (".html", ".css") and (found := _EXTERNAL.search(text)):
            raise BookError(
                f"{name} asks another site for something: {found.group(0)[:160]}",
                expected="a page that is whole without a network",
                remedy="vendor the file under book/_extra, or drop it",
            )
        for secret in private:
            if secret in text:
                raise BookError(
                    f"{name} holds a path or name of this machine.",
                    expected="pages that read the same wherever they are built",
                    remedy="look for what prints a path, a warning or a log in that page",
                )


_LOCAL = re.compile(
    r"<(?:a|script|img|link)\b[^>]*?\b(?:href|src)=\"([^\"#?:]+)(?:[#?][^\"]*)?\"", re.IGNORECASE
)


def check_links(site: Path) -> None:
    """Every link, script, style and picture of every page that points into the site leads to a file there."""
    for page in sorted(site.rglob("*.html")):
        if "_static" in page.relative_to(site).parts:
            continue
        for address in sorted(set(_LOCAL.findall(page.read_text(encoding="utf-8")))):
            target = (page.parent / unquote(address)).resolve()
            if not target.exists():
                raise BookError(
                    f"{page.relative_to(site).as_posix()} links to {address}, which is not in the site.",
                    remedy="correct the link, or publish the file",
                )


def publish_data(root: Path, site: Path) -> None:
    """Copy every table and provenance file under ``data/`` to the site's ``data/``, where pages link to it."""
    for folder in sorted(path for path in (root / "data").iterdir() if path.is_dir()):
        if folder.name in ("models", "prompts") or folder.name.startswith("."):
            continue
        for pattern in _PUBLISHED_DATA:
            for path in sorted(folder.glob(pattern)):
                copy = site / "data" / folder.name / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
