"""R guessed before anything is timed: a draft forward costs its share of the bytes, or of the layers; a block one step.

Two simple machines. What they leave out is for the cost model (:mod:`specdec_lib.costs`) to find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from .costmodel import counts_from_trace
from .mechanisms import chosen_variants, traces_of
from .stats import geometric_mean
from .study import Study
from .variants import DELTAS, passes_of

MACHINES = ("bytes", "layers")
CLOSE = 0.02  # two guesses this near to each other (in log R) are not told apart


def draft_costs(models: Mapping[str, Mapping[str, float]], context: int) -> dict[str, float]:
    """A draft forward in AR steps on each machine. ``models``: bytes per step, bytes of cache per token, layers."""
    read = {role: m["step_bytes"] + m["kv_bytes_per_token"] * context for role, m in models.items()}
    return {
        "bytes": read["draft"] / read["target"],
        "layers": models["draft"]["layers"] / models["target"]["layers"],
    }


def guessed_R(study: Study, phase: str) -> pd.DataFrame:
    """One row per (context, family, variant): counts by the recorded trace, and R on each machine.

    Leaves out what a trace does not fix: a rule with delta > 0 (see :func:`relaxed_alphas`).
    """
    new, rows = study.profile.new_tokens, []
    variants = [v for v in chosen_variants(study.profile, phase) if v.proposer != "none"]
    for (context, family), known in traces_of(study).items():
        recorded = known["passes"]
        for v in variants:
            if v.rule == "relaxed" and v.setting:
                continue
            passes = [True] * new if v.rule == "all" else passes_of(v, recorded, family, context)
            assert v.k
            counts = counts_from_trace(passes, v.k, new, v.formulation, v.bonus)
            if v.proposer == "free":
                counts = dataclasses.replace(counts, draft_forwards=0)
            guesses = {
                f"R if time follows {name}": (new - 1) / counts.cost(c, 1.0)
                for name, c in draft_costs(study.machine["models"], context).items()
            }
            rows.append(
                {"context_tokens": context, "family": family, "variant": v.name, "label": v.label,
                 "rounds_n": counts.rounds, "proposed_tokens": counts.proposed, "accepted_tokens": counts.accepted,
                 "target_calls_n": counts.target_calls, "draft_calls_n": counts.draft_forwards, **guesses}
            )  # fmt: skip
    return pd.DataFrame(rows)


def over_families(guessed: pd.DataFrame) -> pd.DataFrame:
    """One row per (context, variant) of :func:`guessed_R`: mean counts, geometric mean of R."""
    columns = [name for name in guessed if name not in ("context_tokens", "family", "variant", "label")]
    how: dict[str, Any] = {n: geometric_mean if n.startswith("R ") else "mean" for n in columns}
    return guessed.groupby(["context_tokens", "variant", "label"], sort=False).agg(how).reset_index()


def compared(guessed: pd.DataFrame, ratios: pd.DataFrame) -> pd.DataFrame:
    """``guessed`` with what was measured beside it: ``R``, ``rounds_measured_n``, ``same_rounds``."""
    keys = ["context_tokens", "family", "variant"]
    chosen: Any = ratios[[*keys, "R", "rounds_n"]]
    measured = chosen.rename(columns={"rounds_n": "rounds_measured_n"})
    joined = guessed.merge(measured, on=keys, validate="one_to_one")
    return joined.assign(same_rounds=joined["rounds_n"] == joined["rounds_measured_n"])


def nearer(checked: pd.DataFrame) -> str:
    """Which machine's guess of R is nearer to what was measured (median distance of logs), in words."""
    off = {
        name: float(np.median(np.abs(np.log(checked["R"] / checked[f"R if time follows {name}"]))))
        for name in MACHINES
    }
    best, other = sorted(MACHINES, key=lambda name: off[name])
    if off[other] - off[best] <= CLOSE:
        return "bytes and layers guess R equally well"
    return f"the guess from the draft's {best} is the nearer one"


def relaxed_alphas(proposals: pd.DataFrame, deltas: Iterable[float] = DELTAS) -> pd.DataFrame:
    """``context_tokens, delta, alpha``: the share of reached proposals within ``delta`` logits of the target's top.

    A guess from a greedy run: once a relaxed rule has left the target's text, both models read another one.
    ``proposals``: schema "proposals".
    """
    reached: Any = proposals[proposals["reached"]]
    return pd.DataFrame(
        [
            {
                "context_tokens": int(context),
                "delta": delta,
                "alpha": float((part["gap_logits"] <= delta).mean()),
            }
            for context, part in reached.groupby("context_tokens", sort=True)
            for delta in deltas
        ]
    )
