"""The page "Run it on your 8 GB GPU": minutes by the design, megabytes by the shapes, the doctor's lines."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from types import SimpleNamespace
from typing import Any

import pandas as pd

from specdec_lib.design import Profile
from specdec_lib.pairs import PAIRS
from specdec_lib.paths import project_root
from specdec_lib.report import folders, style, text
from specdec_lib.report.style import number
from specdec_lib.roofline import kv_bytes, weight_bytes

REHEARSAL = "h200-engine/rehearsal.json"
PROFILE, SHAPES = "qwen-8gb", "qwen2.5-shapes"
MB, GIB = 1e6, 1 << 30
_WIDTH = 80  # characters of a line in a code block, which cuts what is longer
# Two GPUs for the doctor to judge: total and free memory in GiB; a desktop holds some of it.
EXAMPLES = (("an 8 GB GPU", 7.0), ("a 4 GB GPU", 3.5))


def profile(root: Path | None = None) -> Profile:
    """The profile that the page is about."""
    return folders.read_design(root).profile(PROFILE)


def show_minutes(root: Path | None = None) -> None:
    """What each phase takes, by the design's own estimate."""
    plan = profile(root)
    every = {**plan.minutes, "together": plan.total_minutes}
    rows = [{"phase": phase, "minutes, about": f"{minutes:g}"} for phase, minutes in every.items()]
    style.table(pd.DataFrame(rows, dtype=object), caption=f"[profiles.{PROFILE}] of design.toml: estimates.")
    text.say(
        f"Together about {number(plan.total_minutes / 60)} hours, of which the confirmatory experiment takes "
        f"{text.percent(plan.minutes['confirmatory'] / plan.total_minutes, 0)}. It may be stopped at any time."
    )


def shapes() -> dict[str, Any]:
    """The published pair's shapes, without torch."""
    target, draft = PAIRS[SHAPES].shapes or ({}, {})
    return {"target": SimpleNamespace(**target), "draft": SimpleNamespace(**draft)}


def megabytes(root: Path | None = None) -> pd.DataFrame:
    """GPU memory of both models: weights, and caches at every context of the profile."""
    rows = []
    for role, shape in shapes().items():
        row: dict[str, Any] = {"model": role, "weights, MB": weight_bytes(shape) / MB}
        for context in profile(root).contexts:
            row[f"cache at {text.context_name(context)}, MB"] = kv_bytes(shape, context) / MB
        rows.append(row)
    total = {name: sum(row[name] for row in rows) for name in rows[0] if name != "model"}
    return pd.DataFrame([*rows, {"model": "together"} | total])


def show_megabytes(root: Path | None = None) -> None:
    """What must fit, and what the doctor asks for."""
    from specdec_lib.room import needed_bytes

    frame, plan = megabytes(root), profile(root)
    longest = max(plan.contexts)
    used = float(frame.iloc[-1, 1]) + float(frame.iloc[-1, -1])
    style.table(frame, caption="BF16, from the models' shapes: arithmetic, not a measurement.")
    text.say(
        f"Weights and caches at {text.context_name(longest)} take {number(used / 1e3)} GB of GPU memory. "
        "With CUDA's own context and the working memory of a prefill a job needs about "
        f"{number(needed_bytes(plan) / GIB)} GiB free, which is what the doctor asks for. The files on disk "
        f"are the weights once more, {number(float(frame.iloc[-1, 1]) / 1e3)} GB."
    )


def show_rehearsal(root: Path | None = None) -> None:
    """What came of the dress rehearsal: the reader's own commands on random weights, on a capped GPU."""
    file = (root or project_root()) / "data" / REHEARSAL
    if not file.is_file():
        text.say(text.not_measured("the dress rehearsal", "python benchmarks/rehearsal_8gb.py FOLDER"))
        return
    text.say(*rehearsal_sentences(json.loads(file.read_text(encoding="utf-8"))))


def rehearsal_sentences(found: dict[str, Any]) -> list[str]:
    """How the rehearsal went, from its own record."""
    seconds, full = found["seconds"], found["out of memory"]
    faults = [f"{', '.join(found['missing'])} missing"] * bool(found["missing"])
    faults += ["the second run measured again"] * (not found["nothing executed again"])
    faults += ["paths of the machine in the results"] * bool(found["own paths in the results"])
    memory = f"{', '.join(full)} ran out of memory" if full else "nothing ran out of memory"
    return [
        f"**Rehearsed** on {found['measured']}, on one {found['device']} (torch {found['torch']}): two checkpoints in "
        "Hugging Face layout with these shapes and random weights, then the commands of this page on one family at 8K. "
        f"The first run took {number(seconds['first'])} s for {found['jobs']} processes, the second "
        f"{number(seconds['again'])} s; {memory}; "
        f"{text.listed(faults) if faults else 'the second run executed nothing, and no file was missing'}. "
        "R and acceptance of random weights mean nothing."
    ]


def show_doctor(root: Path | None = None) -> None:
    """The doctor's line about the profile on a GPU that is large enough, and on one that is not."""
    lines = []
    for name, free in EXAMPLES:
        said = fill(doctor_line(free, root), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        lines.append(f"On {name}:\n\n```text\n{said}\n```")
    text.say(*lines)


def doctor_line(free_gib: float, root: Path | None = None) -> str:
    """What ``make doctor`` prints about the profile on a machine with so much free GPU memory."""
    from specdec_lib.pipeline.doctor import Machine, report

    machine = Machine(cores=8, memory=32 * GIB, memory_free=24 * GIB, disk_free=100 * GIB, gpu="RTX",
                      gpu_free=int(free_gib * GIB), torch="2", driver="", triton=False, chromium="")  # fmt: skip
    lines = report(root or project_root(), machine)
    return next(line.strip() for line in lines if line.strip().startswith(f"{PROFILE} "))
