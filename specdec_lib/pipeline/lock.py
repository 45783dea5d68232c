"""One run at a time per data folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from specdec_lib.errors import CannotWrite, RunInProgress

_IN_THE_WAY = {
    errno.ENOTDIR: "a file stands where a folder belongs",
    errno.EEXIST: "a file stands where a folder belongs",
    errno.EISDIR: "a folder stands where a file belongs",
}
_MEANING = _IN_THE_WAY | {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
}


@contextlib.contextmanager
def named_write_errors(folder: Path, root: Path) -> Iterator[None]:
    """Turn "disk full", "read-only" and what stands in the way into CannotWrite, which says where and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CannotWrite) or error.errno not in _MEANING:
            raise
        where = _shown(folder, root)
        if error.errno in _IN_THE_WAY:
            path = Path(str(error.filename))
            if not path.is_relative_to(folder):  # not of this folder's making: the error keeps its name
                raise
            where = _shown(next(there for there in (path, *path.parents) if there.exists()), root)
        raise CannotWrite(
            f"Cannot write to {where}: {_MEANING[error.errno]}.",
            expected="a writable folder with room for the results",
            remedy="free some space, make it writable or move what stands there; run again: finished work is kept",
        ) from error


@contextlib.contextmanager
def data_lock(folder: Path, root: Path) -> Iterator[None]:
    """Hold ``folder`` for this process. The system frees it however the process ends, ``kill -9`` included.

    Raises:
        RunInProgress: another process holds it.
        CannotWrite: the folder cannot be written to.
    """
    with named_write_errors(folder, root):
        folder.mkdir(parents=True, exist_ok=True)
        # root ignores permission bits, so ask for what will be needed instead of waiting for the first result
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "not writable")
        lock = FileLock(folder / ".lock", blocking=False)
        owner = folder / ".lock.pid"
        try:
            lock.acquire()
        except Timeout as error:
            holder = owner.read_text().strip() if owner.is_file() else "unknown"
            raise RunInProgress(
                f"Another run (process {holder}) is using {_shown(folder, root)}.",
                expected="one run at a time on a data folder",
                remedy="wait for it to end, or stop it; what it finished is kept",
            ) from error
    try:
        with named_write_errors(folder, root):
            owner.write_text(f"{os.getpid()}\n")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _shown(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name
