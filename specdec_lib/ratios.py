"""From timed rows of a mechanism phase to one R per cell and variant. No torch on this side."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .checks import disturbed
from .records import validate


def undisturbed_runs(runs: Any, limit: float) -> pd.DataFrame:
    """The runs without those that others disturbed by more than ``limit``, as long as that leaves the variant a repeat.

    Where it would leave none, all its repeats stay, and ``disturbed`` says so. ``left_out_n``: how many of the
    variant's repeats went. Both columns are for :func:`ratios`. ``limit``: the design's limit of the check
    "undisturbed", a share of the timed region.
    """
    hit = disturbed(runs, limit)
    by_variant = runs.assign(_hit=hit).groupby(["context_tokens", "family", "phase", "variant"])["_hit"]
    hopeless = by_variant.transform("all")
    left_out = by_variant.transform("sum").where(~hopeless, 0).astype(int)
    return runs.assign(disturbed=hopeless, left_out_n=left_out)[~hit | hopeless]


def ratios(runs: Any) -> pd.DataFrame:
    """One row per (context, family, variant): medians over repeats and R = AR / variant (schema "ratios").

    ``runs``: schema "mechanism", as :func:`undisturbed_runs` gives it where disturbed repeats shall not count.
    """
    rows = []
    if "disturbed" not in runs:
        runs = runs.assign(disturbed=False, left_out_n=0)
    keys = ["profile", "design_hash", "phase", "pair", "dtype", "device", "context_tokens", "family"]
    for cell, part in runs.groupby(keys, sort=False):
        plain = part[part["variant"] == "ar"]
        ar = plain["decode_s"].median()
        for name, group in part[part["variant"] != "ar"].groupby("variant", sort=False):
            first = group.iloc[0]
            proposed, rounds = int(first["proposed_tokens"]), int(first["rounds_n"])
            rows.append(
                dict(zip(keys, cell, strict=True))
                | {column: first[column] for column in ("label", "k", "bonus", "formulation", "setting")}
                | {
                    "variant": name,
                    "repeats_n": len(group),
                    "left_out_n": first["left_out_n"],
                    "ar_left_out_n": plain["left_out_n"].max(),
                    "disturbed": bool(plain["disturbed"].any() or group["disturbed"].any()),
                    "others_cpu_share": max(plain["others_cpu_share"].max(), group["others_cpu_share"].max()),
                    "ar_median_s": ar,
                    "spec_median_s": group["decode_s"].median(),
                    "R": ar / group["decode_s"].median(),
                    "R_low": ar / group["decode_s"].max(),
                    "R_high": ar / group["decode_s"].min(),
                    "acceptance": first["accepted_tokens"] / proposed if proposed else None,
                    "tokens_per_round": first["new_tokens"] / rounds if rounds else None,
                    "equal_share": first["equal_share"],
                    "first_divergence_tokens": first["first_divergence_tokens"],
                    **{
                        name: first[name]
                        for name in ("rounds_n", "target_calls_n", "draft_calls_n", "host_reads_n")
                    },
                    "reads_per_round": first["host_reads_n"] / rounds if rounds else None,
                    "copies_per_round": first["host_copies_n"] / rounds if rounds else None,
                    "bytes_per_round": first["host_bytes"] / rounds if rounds else None,
                }
            )
    return validate(pd.DataFrame(rows), "ratios")
