"""The phase "graphs" on the side that orders it: its job, its table, and what was predicted. No torch.

The job is named ``graphs``; it runs on the profile's device, for all of its contexts at once.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from .pairs import find_pair
from .paths import project_root
from .records import read_table, validate
from .study import Say, Study, shared_columns

CAP_BYTES = 8 << 30  # the published GPU's memory
ALPHAS = (0.77, 0.755, 0.735)  # what the published acceptances at 2K, 4K and 8K mean per proposal, at k = 4
KS = (1, 2, 4)  # of the fused engine's R
# Our quantity -> the published ones: smallest and largest of a range, or one number.
PUBLISHED = {
    "draft chain, speed-up over eager": ("draft_chain_speedup_min", "draft_chain_speedup_max"),
    "verification, speed-up over eager": ("verification_speedup_min", "verification_speedup_max"),
    "graphs needed": ("graphs_needed", "graphs_needed"),
    "graphs that fit under the cap": ("graphs_captured", "graphs_captured"),
    "pool of a graph, draft chain": ("draft_chain_pool", "draft_chain_pool"),
    "pool of a graph, verification": ("verification_pool", "verification_pool"),
    "all graphs together": ("memory_extrapolated", "memory_extrapolated"),
}


def graphs_table(study: Study, say: Say = lambda line: None) -> pd.DataFrame:
    """The table "graphs": one job, run or read, with the published numbers beside ours. Raises what jobs raise.

    Without a CUDA device the job runs the logic of the rounds only; its rows say so.
    """
    profile = study.profile
    ks = sorted({*(k for k in KS if k < profile.k), profile.k})
    spec = study.spec(
        "graphs", "graphs", contexts=list(profile.contexts), k=profile.k, ks=ks, alphas=list(ALPHAS),
        cap_bytes=CAP_BYTES,
    )  # fmt: skip
    result = study.run(spec)
    say(f"1/1 {spec['name']}")
    machine = {key: study.machine[key] for key in ("dtype", "device")} | {"pair": profile.pair}
    label = {"label": "synthetic"} if find_pair(profile.pair).synthetic else {}
    given = published()
    rows = [
        shared_columns(study) | machine | row | label
        | dict(zip(_SIDES, given.get(_key(row), (None, None)), strict=True))
        for row in result.get("rows") or [_ended(result["out_of_memory"])]
    ]  # fmt: skip
    return validate(pd.DataFrame(rows), "graphs")


_SIDES = ("published_low", "published_high")


def _key(row: dict[str, Any]) -> tuple[str, str | None, int | None]:
    """Under which name a row's number was published: by quantity, and R by variant and context."""
    return (row["quantity"], row["variant"], row["context_tokens"]) if row["quantity"] == "R" else (
        row["quantity"], None, None
    )  # fmt: skip


def published() -> dict[tuple[str, str | None, int | None], tuple[float, float]]:
    """Published numbers by :func:`_key`: those of the phase, R of all-accept with bonus, and R at the acceptances that
    the alphas stand for (each belongs to its context)."""
    folder = project_root() / "data" / "published"
    phases: Any = read_table(folder / "phases.csv", "published-phases")
    stated = phases[phases["phase"] == "graphs"].set_index("quantity")["value"]
    found: dict[tuple[str, str | None, int | None], tuple[float, float]] = {
        (name, None, None): (float(stated[low]), float(stated[high]))
        for name, (low, high) in PUBLISHED.items()
    }
    every = phases[(phases["phase"] == "all-accept-bonus") & (phases["quantity"] == "R")]
    for row in every.to_dict("records"):
        found["R", "all-accept", int(row["context_tokens"])] = (row["value"], row["value"])
    confirmatory = read_table(folder / "confirmatory.csv", "published-confirmatory")
    for alpha, row in zip(ALPHAS, confirmatory.to_dict("records"), strict=True):
        found["R", f"alpha {alpha:g}", int(row["context_tokens"])] = (row["R_GM"], row["R_GM"])
    return found


def _ended(why: str) -> dict[str, Any]:
    """The row of a job that ran out of memory before any part."""
    return {
        "part": "all", "quantity": "ended early", "unit": "none", "mode": "any", "variant": why,
        "context_tokens": None, "k": None, "label": "real", "outcome": "out of memory", "n": 0, "value": None,
        "low": None, "high": None,
    }  # fmt: skip


def predicted(study: Study) -> pd.DataFrame:
    """What follows from shapes alone, per context: graphs and replays either way, and what a graph must hold at least
    if its cache concatenates, a copy of all keys and values (``*_copy_mib``)."""
    profile, models = study.profile, study.machine["models"]
    rounds = math.ceil(profile.new_tokens / (profile.k + 1))
    return pd.DataFrame(
        {
            "context_tokens": context,
            "graphs per position": 2 * rounds,
            "graphs, position on the device": 2,
            "replays, all-accept": rounds,
            **{
                f"{role}_copy_mib": models[role]["kv_bytes_per_token"] * context / 2**20
                for role in ("draft", "target")
            },
        }
        for context in profile.contexts
    )
