"""Runs one notebook through papermill, in this environment's own kernel, and refuses every silent failure."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec_lib import errors
from specdec_lib.errors import CannotWrite, CellFailed, SpecDecError
from specdec_lib.pipeline.notebook import plain_text, source

_TRACEBACK_LINES = 12
_LIBRARY = Path(__file__).resolve().parents[2]
_DISK = re.compile(r"\[Errno (?:28|30|122)\] ([^:]+)")  # full, read-only, over quota


@contextmanager
def kernel_environment(root: Path) -> Iterator[Path]:
    """Environment variables under which kernels start: this interpreter's ``python3``, this checkout's
    library, and nothing of the user's own Jupyter or IPython set-up."""
    # Windows lets nobody delete what a kernel that is just ending still holds open
    with tempfile.TemporaryDirectory(prefix="specdec-ipython-", ignore_cleanup_errors=True) as ipython:
        wanted = {
            "SPECDEC_ROOT": str(root),
            "PYTHONPATH": os.pathsep.join(p for p in (str(_LIBRARY), os.environ.get("PYTHONPATH", "")) if p),
            "IPYTHONDIR": ipython,
            "JUPYTER_PREFER_ENV_PATH": "1",
            "JUPYTER_PLATFORM_DIRS": "1",
            "JUPYTER_DATA_DIR": str(Path(ipython) / "jupyter"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "TQDM_DISABLE": "1",  # a bar is for a person; a kept notebook gets no hundred lines of it
        }
        before = {key: os.environ.get(key) for key in [*wanted, "JUPYTER_PATH"]}
        os.environ.pop("JUPYTER_PATH", None)
        os.environ.update(wanted)
        try:
            yield Path(ipython)
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def execute(root: Path, path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``path`` with ``parameters`` and return the executed notebook. Writes no file of its own.

    Raises:
        CellFailed: a cell raised, called ``sys.exit`` (papermill takes code 0 for success), was not reached,
            or the kernel died. Gives the cell's source and the end of its traceback, without absolute paths.
        CannotWrite: a cell met a full disk or a read-only file system.
    """
    import papermill
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        with kernel_environment(root) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # no open port, and no warning about one
            sockets = {"transport": "ipc", "ip": str(temporary / "kernel")} if os.name == "posix" else {}
            executed = papermill.execute_notebook(
                str(path),
                None,
                parameters=dict(parameters),
                kernel_name="python3",
                cwd=str(path.parent),
                progress_bar=False,
                config=Config({"KernelManager": sockets}),
                extra_arguments=["--log-level=CRITICAL"],  # it calls its own shutdown an error
            )
    except PapermillExecutionError as error:
        what = f"{error.ename}: {error.evalue}"
        raise _failed(root, path, error.source, list(error.traceback), what) from error
    except (DeadKernelError, CellExecutionError) as error:
        raise CellFailed(
            f"notebooks/{path.name}: the kernel died.",
            expected="a notebook that runs to its end",
            remedy="often memory: see `make doctor`; or the notebook ended its own process",
        ) from error
    _refuse_early_end(root, path, executed)
    return executed


def _refuse_early_end(root: Path, path: Path, executed: Mapping[str, Any]) -> None:
    for cell in executed["cells"]:
        if cell["cell_type"] != "code" or not source(cell).strip():
            continue
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                what = f"{output['ename']}: {output['evalue']}"
                raise _failed(root, path, source(cell), list(output["traceback"]), what)
        if cell.get("execution_count") is None:
            raise _failed(root, path, source(cell), [], "this cell was never run: the kernel left before it")


def _failed(root: Path, path: Path, text: str, traceback: list[str], what: str) -> SpecDecError:
    if disk := _DISK.search(what):
        return CannotWrite(
            f"notebooks/{path.name} could not write: {disk.group(1)}.",
            expected="a writable data folder with room for the results",
            remedy="free some space or make it writable, then run again; finished work is kept",
        )
    if _says_it_itself(what.partition(":")[0]):
        return CellFailed(f"notebooks/{path.name} stopped. {plain_text(what, root)}")
    lines = plain_text("\n".join(traceback), root).splitlines()[-_TRACEBACK_LINES:]
    shown = "\n".join(f"    {line}" for line in plain_text(text, root).strip().splitlines())
    tail = "\n".join(f"    {line}" for line in lines)
    return CellFailed(
        f"notebooks/{path.name} failed: {plain_text(what, root)}\n  in the cell\n{shown}"
        + (f"\n  with\n{tail}" if tail else ""),
        remedy="open it with `make lab` (it runs there with small defaults), correct it, run again",
    )


def _says_it_itself(name: str) -> bool:
    """An error of the study's own: it names its remedy, and a traceback or a second remedy would only hide that."""
    kind = getattr(errors, name.strip(), None)
    return isinstance(kind, type) and issubclass(kind, SpecDecError)
