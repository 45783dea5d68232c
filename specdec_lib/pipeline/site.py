"""The report as one folder and one zip, to hand on or to put on any web server."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from specdec_lib.errors import BookError
from specdec_lib.pipeline.lock import named_write_errors

NAME = "specdec-study-site"
MAX_BYTES = 25_000_000
# Left out of the archive: what only Sphinx itself reads again.
_NOT_PUBLISHED = {".buildinfo", "objects.inv"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content gives the same zip


def make_site(root: Path) -> Path:
    """Copy the rendered book to ``dist/specdec-study-site/`` and zip it. Works from ``file://``.

    Raises:
        BookError: over 25 MB, or nothing rendered.
        CannotWrite.
    """
    source = root / "book" / "_build" / "html"
    if not (source / "index.html").is_file():
        raise BookError("There is no rendered book.", remedy="run `make html` first")
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.name not in _NOT_PUBLISHED)
    size = sum(path.stat().st_size for path in files)
    if size > MAX_BYTES:
        raise BookError(
            f"The site has {size / 1e6:.1f} MB.",
            expected=f"at most {MAX_BYTES / 1e6:.0f} MB",
            remedy="publish fewer or smaller data files and figures",
        )
    target, archive = root / "dist" / NAME, root / "dist" / f"{NAME}.zip"
    with named_write_errors(root / "dist", root):
        shutil.rmtree(target, ignore_errors=True)
        archive.unlink(missing_ok=True)
        part = archive.with_suffix(".zip.tmp")
        part.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in files:
                name = path.relative_to(source)
                copy = target / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                entry = zipfile.ZipInfo(f"{NAME}/{name.as_posix()}", _EPOCH)
                entry.external_attr = 0o644 << 16
                packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        part.rename(archive)
    return archive
