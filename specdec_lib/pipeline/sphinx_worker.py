"""Jupyter Book's own build in a process of its own: ``... sphinx_worker SOURCE TARGET``.

The same call as ``jupyter-book build --all``, with differences that its command line does not offer: the
output folder is exactly TARGET, and pages run in parallel. It lives as long as its standard input is open: however the
process that started it ends, ``kill -9`` included, this one and those it started end too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

_LEFT_OUT = {
    "sphinx_thebe",  # runs cells remotely; names a CDN in every page, twice: an error in the console
    "sphinx_jupyterbook_latex",  # for PDF only, and keeps pages from running in parallel
}


def main(source: str, target: str) -> int:
    """Exit status: 0 only for a build without an error or a warning."""
    from jupyter_book import sphinx as jupyter_book

    complete: Any = jupyter_book.get_final_config

    def configuration(**arguments: Any) -> Any:
        settings, other = complete(**arguments)
        settings["extensions"] = [name for name in settings["extensions"] if name not in _LEFT_OUT]
        return settings, other

    jupyter_book.get_final_config = configuration
    _declare_safe(import_module("sphinx_multitoc_numbering"))
    folder = Path(source)
    result = jupyter_book.build_sphinx(
        folder,
        Path(target),
        noconfig=True,
        path_config=folder / "_config.yml",
        confoverrides={
            "external_toc_path": (folder / "_toc.yml").as_posix(),
            "latex_individualpages": False,
        },
        freshenv=True,
        force_all=True,
        warningiserror=True,
        keep_going=True,
        jobs=os.cpu_count() or 1,
        quiet=True,
    )
    if isinstance(result, int):
        return result
    print(getattr(result, "traceback", ""), file=sys.stderr)  # of the process that read the page
    return 1


def _declare_safe(extension: Any) -> None:
    """It does nothing while pages are read and forgets to say so, which is a warning in a parallel build."""
    set_up = extension.setup
    extension.setup = lambda app: (set_up(app) or {}) | {"parallel_read_safe": True}


def _end_with_parent() -> None:
    os.read(0, 1)  # nobody writes: it returns when the other end is closed
    if os.name == "posix" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main(*sys.argv[1:]))
