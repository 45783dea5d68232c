"""The mechanism notebooks' form. That they run is shown by `make book PROFILE=smoke`, which runs them all."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

from specdec_lib.pipeline.table import PHASES, Phase

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
OURS = [phase for phase in PHASES if phase.name not in ("smoke", "correctness", "validity", "confirmatory")]
every = pytest.mark.parametrize("phase", OURS, ids=lambda phase: phase.name)


def cells(phase: Phase) -> list[tuple[str, str]]:
    content = json.loads((NOTEBOOKS / f"{phase.notebook}.ipynb").read_text())
    return [(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]]


def code(phase: Phase) -> str:
    return "\n".join(source for kind, source in cells(phase) if kind == "code")


@every
def test_the_skeleton(phase: Phase) -> None:
    """Question, what is measured, prediction, run, table, figure, finding; and the prediction before the run."""
    text = "\n".join(source for kind, source in cells(phase) if kind == "markdown")
    assert text.startswith("# ") and "**Question.**" in text and "**What this measures.**" in text
    headings = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert [name for name in headings if name != "Fit"] == ["Prediction", "Run", "Table", "Figure", "Finding"]
    assert "`smoke` is" in text and "random weights" in text, "the default profile's label"
    kind, last = cells(phase)[-1]
    assert kind == "code" and "print(" in last, "the finding is computed"


@every
def test_what_is_promised_is_written_by_its_schema(phase: Phase) -> None:
    source = code(phase)
    for promise in phase.promises:
        pattern = rf'write_table\(\w+, folder / "{re.escape(promise.path)}", "{promise.schema}"\)'
        assert len(re.findall(pattern, source)) == 1, promise.path
    assert "write_provenance(study)" in source and "data_folder(profile, data_dir)" in source


@every
def test_imports_are_there(phase: Phase) -> None:
    """A renamed function is found here, not minutes into a run."""
    for node in ast.walk(ast.parse(code(phase))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("specdec_lib"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")


@every
def test_a_figure_has_words_and_names_the_machine(phase: Phase) -> None:
    source = code(phase)
    assert source.count("style.figure(") == 1
    assert "alt=" in source and "caption=" in source and 'study.machine["device"]' in source.replace("'", '"')


def test_the_prediction_file_is_written_before_the_run() -> None:
    source = code(next(phase for phase in OURS if phase.name == "cost-model"))
    assert source.index('"predictions.csv"') < source.index("run_phase(") and "prediction=digest" in source
