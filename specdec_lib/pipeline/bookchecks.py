"""What Jupyter Book lets pass silently and this book refuses: before the build and in its result."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from specdec_lib.errors import BookError
from specdec_lib.pipeline.notebook import private_strings

# Jupyter Book says nothing about a key it does not know; these are the keys this book uses.
_CONFIG_KEYS: dict[str, set[str]] = {
    "": {"title", "author", "copyright", "only_build_toc_files", "execute", "html", "parse", "sphinx"},
    "execute": {"execute_notebooks", "raise_on_error", "allow_errors", "timeout", "stderr_output", "show_tb"},
    "html": {"use_edit_page_button", "use_repository_button", "use_issues_button", "home_page_in_navbar",
             "extra_footer"},
    "parse": {"myst_enable_extensions"},
    "sphinx": {"config", "recursive_update"},
    "sphinx.config": {
        "html_context", "html_copy_source", "html_extra_path", "html_last_updated_fmt", "html_show_copyright",
        "html_show_sourcelink", "html_theme_options", "language", "mathjax3_config", "mathjax_path",
        "myst_heading_anchors", "nb_ipywidgets_js", "nb_merge_streams", "numfig", "suppress_warnings",
    },
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
    """Refuse a key of ``_config.yml`` that nothing reads, and a value that would publish a failing or a
    stale page."""
    import yaml

    content = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    sections = {name: content.get(name, {}) for name in ("execute", "html", "parse", "sphinx")}
    sections |= {"": content, "sphinx.config": sections["sphinx"].get("config", {})}
    for section, values in sections.items():
        where = f"{section}." if section else ""
        for key in values:
            if key not in _CONFIG_KEYS[section]:
                raise BookError(
                    f"book/_config.yml: unknown key {where}{key}.",
                    expected="one of " + ", ".join(sorted(_CONFIG_KEYS[section])),
                    remedy="correct its spelling, or add it to bookchecks.py if Jupyter Book reads it",
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
    """Every page of the contents exists once, and one with code cells names its kernel, else they are
    dropped."""
    import yaml

    if repeated := sorted({page for page in pages if pages.count(page) > 1}):
        raise BookError(f"book/_toc.yml names {repeated} twice.", remedy="name each page once")
    for page in pages:
        found = [path for suffix in (".md", ".ipynb") if (path := source / f"{page}{suffix}").is_file()]
        if len(found) != 1:
            raise BookError(
                f"book/_toc.yml names {page}, of which there are {len(found)} files.",
                expected=f"one of {page}.md and {page}.ipynb",
                remedy="correct the name in book/_toc.yml, or keep exactly one of the two files",
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
            remedy="add the missing pages to book/, and the extra ones to book/_toc.yml or delete them",
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
                    remedy="correct the address in that page, or have publish_data in pipeline/html.py copy the file",
                )
