"""Whose pace is it? What the benchmarks of the host, and of graphs captured later, say about the times of a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.paths import project_root
from specdec_lib.report import text
from specdec_lib.report.style import number

HOST_PACE = "h200-engine/host-pace.json"  # of benchmarks/host_pace.py
FREE_CORE = "h200-engine/free-core.json"  # of benchmarks/free_core.py
LATER_GRAPHS = "h200-engine/stage-capture.json"  # of benchmarks/stage_capture.py
FOLLOWS = 0.5  # a rank correlation from which one time follows another
_FREE, _SHARED = 1.1, 1.5  # of the shortest time: a core that has its units alone, and one that has not


def _known(name: str, root: Path | None) -> dict[str, Any]:
    """What a benchmark wrote; nothing where it was not run."""
    file = (root or project_root()) / "data" / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def pace_sentence(root: Path | None = None) -> str:
    """Whether the host's pace explains the eager times: a fixed loop against eager and captured runs, by rank."""
    known = _known(HOST_PACE, root)
    if not known:
        return ""
    seconds = known["seconds"]
    spread = {name: max(values) / min(values) - 1 for name, values in seconds.items()}
    ranks: Any = pd.DataFrame(seconds).corr(method="spearman")
    follows = {mode: float(ranks.loc["loop", mode]) for mode in ("eager", "graphs")}
    cause = (
        "eager times follow the host's pace more than captured ones do, which is a likely reason why cells of eager "
        "folders fail"
        if follows["eager"] >= FOLLOWS > follows["graphs"]
        else "the host's pace alone does not explain the eager times"
    )
    return (
        f"On one {known['device']}, {len(seconds['loop'])} times in turn: the largest time of a fixed Python loop is "
        f"{text.percent(spread['loop'], 0)} above its smallest, of eager AR {text.percent(spread['eager'], 0)}, of "
        f"captured AR {text.percent(spread['graphs'])}. The rank correlation with the loop is "
        f"{number(follows['eager'], digits=2)} for eager and {number(follows['graphs'], digits=2)} for captured runs; "
        f"the process had {text.percent(known['cpu_time_per_wall'], 0)} of a core: {cause}."
    )


def core_sentence(root: Path | None = None) -> str:
    """What it helps to run on the core that is the fastest now: eager AR on it, on any, and on one for all runs."""
    known = _known(FREE_CORE, root)
    if not known:
        return ""
    seconds: Any = pd.DataFrame(known["seconds"])
    cores: Any = pd.DataFrame(known["core_paces_s"])
    each = text.listed(
        f"{name} {number(seconds[name].median())} s (middle half {number(seconds[name].quantile(0.25))} to "
        f"{number(seconds[name].quantile(0.75))}, slowest {number(seconds[name].max())})"
        for name in seconds
    )
    shortest: float = cores.min().min()
    both = int(((cores.min() < _FREE * shortest) & (cores.max() > _SHARED * shortest)).sum())
    return (
        f"Beside one {known['device']}, a fixed loop on each of {number(cores.shape[1])} virtual cores in turn, "
        f"{len(cores)} times, took up to {number(cores.max().max() / shortest)} times its shortest time; "
        f"{number(both)} of the cores were at times within {text.percent(_FREE - 1, 0)} of it and at times "
        f"{text.percent(_SHARED - 1, 0)} and more above it, as where a neighbour shares a core's units for a while. "
        f"Eager AR, {len(seconds)} times in turn, on {each}. Timed runs on a GPU therefore take the core that a probe "
        "finds fastest just before; what happens during a run it cannot help."
    )


def later_graphs_sentence(root: Path | None = None) -> str:
    """Whether graphs captured later change the times of those that were there: the runs before against those after."""
    known = _known(LATER_GRAPHS, root)
    if not known:
        return ""
    runs: Any = pd.DataFrame(known["rows"])
    times = {"AR runs": runs["ar_s"], "SpecDec rounds": runs["spec_s"] / runs["rounds_n"]}
    after_capture = runs["phase"] == runs["phase"].iloc[-1]
    each = runs.groupby(["context_tokens", "pool", after_capture]).size().groupby(level=-1).max()
    moved: list[str] = []
    stayed: list[float] = []
    for (context, pool), cell in runs.groupby(["context_tokens", "pool"], sort=False):
        later = after_capture[cell.index]
        for name, time in times.items():
            before, after = time[cell.index[~later]], time[cell.index[later]]
            change = float(after.median() / before.median() - 1)
            if before.min() <= after.max() and after.min() <= before.max():
                stayed.append(change)
            else:
                moved.append(
                    f"{name} by {text.signed(change)} at {text.context_name(context)} with {pool} memory pool"
                )
    told = [f"yes, {text.listed(moved)}, beyond all runs before"] if moved else []
    if stayed:
        of = "the other medians moved" if moved else "no, the medians moved"
        told.append(
            f"{of} by {text.signed(min(stayed))} to {text.signed(max(stayed))}, within what the runs before span"
        )
    return (
        f"Do graphs captured later change how long those that were there take? On one {known['device']}, pair "
        f"{known['pair']}, {number(int(each[True]))} runs after against {number(int(each[False]))} before, by the "
        f"device's clock: {'; '.join(told)}. Instrumented runs capture the stages as graphs of their own, so "
        "today's sources take them after every timed run of a process; earlier ones took them family by family."
    )
