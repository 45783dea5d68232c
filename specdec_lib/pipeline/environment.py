"""``environment.yml`` for conda users, generated from the lock so that the two cannot differ."""

from __future__ import annotations

from pathlib import Path

from specdec_lib.files import atomic_write

ENVIRONMENT, LOCK = "environment.yml", "requirements.lock"


def environment_text(lock: str) -> str:
    """The text of ``environment.yml`` for the text of ``requirements.lock``."""
    pins = [line.strip() for line in lock.splitlines() if line.strip() and not line.startswith("#")]
    return (
        "# Generated from requirements.lock by `make environment.yml`.\n"
        "name: specdec-study\n"
        "channels:\n"
        "  - conda-forge\n"
        "dependencies:\n"
        "  - python=3.11\n"
        "  - pip\n"
        "  - pip:\n" + "".join(f"      - {pin}\n" for pin in pins)
    )


def write_environment(root: Path) -> Path:
    """Write ``environment.yml`` from the lock."""
    return atomic_write(root / ENVIRONMENT, environment_text((root / LOCK).read_text(encoding="utf-8")))
