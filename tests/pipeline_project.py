"""A small project in a temporary folder: real rules, toy notebooks that need no library and no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_lib.design import Design, Profile
from specdec_lib.pipeline.runner import Outcome, run_profile
from specdec_lib.pipeline.table import Phase, Promise

REPOSITORY = Path(__file__).parent.parent
PREAMBLE = """
import os
from pathlib import Path
folder = Path(os.environ["SPECDEC_ROOT"]) / data_dir
folder.mkdir(parents=True, exist_ok=True)
"""
PARAMETERS = 'profile = "smoke"\ndata_dir = ""\n'


def toy_hash(root: Path, design: Design, profile: Profile) -> str:
    """A design hash that needs neither prompts nor weights."""
    return design.measurement_hash(profile, "prompts", "weights")


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"cell-{abs(hash(source)) % 10**8}",
        "metadata": {"tags": list(tags)},
        "outputs": [],
        "source": source,
    }


def notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": list(cells), "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@dataclass
class Project:
    """``profile`` "toy" runs ``phases`` in order; give them with :meth:`phase`."""

    root: Path
    phases: list[Phase] = field(default_factory=list)

    def phase(
        self,
        name: str,
        code: str | None,
        *promises: Promise | str,
        needs: tuple[str, ...] = (),
        parameters: dict[str, Any] | None = None,
        cells: list[dict[str, Any]] | None = None,
    ) -> None:
        """Add or replace a phase whose notebook runs ``code`` after the usual preamble (or has exactly
        ``cells``).
        """
        made = cells or [cell(PARAMETERS, "parameters"), cell(PREAMBLE), cell(code or "")]
        path = self.root / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notebook(*made)))
        promised = tuple(p if isinstance(p, Promise) else Promise(p) for p in promises)
        line = Phase(name, name, promised, needs=needs, parameters=parameters or {})
        self.phases = [phase for phase in self.phases if phase.name != name] + [line]
        self.write_design()

    def write_design(self) -> None:
        text = (REPOSITORY / "design.toml").read_text()
        names = [phase.name for phase in self.phases]
        minutes = ", ".join(f"{name} = 0.1" for name in names)
        (self.root / "design.toml").write_text(
            text[: text.index("[profiles.")]
            + f'[profiles.toy]\ntitle = "Toy"\npair = "tiny-llama"\nisolation = "cell"\n'
            f"phases = {json.dumps(names)}\nminutes = {{ {minutes} }}\n"
        )

    def run(self, root: Path | None = None, **options: Any) -> Outcome:
        return run_profile(
            root or self.root, "toy", phases=tuple(self.phases), design_hash=toy_hash, **options
        )

    @property
    def data(self) -> Path:
        return self.root / "data" / "toy"
