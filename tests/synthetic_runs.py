"""Made-up measured runs with known effects, for tests of the checks and of the analysis."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from specdec_lib.design import load_design
from specdec_lib.plan import plan
from specdec_lib.records import validate

DESIGN = load_design(Path(__file__).parent.parent / "design.toml")
DESIGN_HASH = "0123456789abcdef"


def make_runs(
    profile_name: str = "cpu-full",
    ratio: float = 0.5,
    family_sd: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    arms: tuple[str, str] = ("ar", "spec"),
) -> pd.DataFrame:
    """Every planned run. AR takes 2 s, the second arm 2 s / ratio; both times exp(normal) noise."""
    return _make(profile_name, ratio, family_sd, noise, seed, arms).copy()


@cache
def _make(
    profile_name: str,
    ratio: float,
    family_sd: float,
    noise: float,
    seed: int,
    arms: tuple[str, str],
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    profile = DESIGN.profile(profile_name)
    rows = []
    effects = {(c, f): rng.normal(0, family_sd) for c in profile.contexts for f in profile.families}
    for job in plan(profile):
        for run in job.runs:
            speculative = run.arm == "spec"
            seconds = 2.0 / ratio * np.exp(effects[job.context, run.family]) if speculative else 2.0
            second_is_real = speculative and arms[1] == "spec"
            rows.append(
                {
                    "profile": profile_name,
                    "design_hash": DESIGN_HASH,
                    "pair": profile.pair,
                    "dtype": "fp32",
                    "device": "cpu",
                    "mode": "eager",
                    "isolation": profile.isolation,
                    "threads": 2,
                    "family": run.family,
                    "context_tokens": job.context,
                    "arm": arms[speculative],
                    "block": run.block,
                    "repeat": run.repeat,
                    "position": run.position,
                    "job": job.name,
                    "new_tokens": profile.new_tokens,
                    "decode_s": seconds * np.exp(rng.normal(0, noise)),
                    "prefill_s": 1.0,
                    "draft_prefill_s": 0.25 if second_is_real else None,
                    "rounds_n": 23 if second_is_real else 0,
                    "proposed_tokens": 100 if second_is_real else 0,
                    "accepted_tokens": 54 if second_is_real else 0,
                    "rejections_n": 15 if second_is_real else 0,
                    "target_calls_n": 38 if second_is_real else 63,
                    "draft_calls_n": 91 if second_is_real else 0,
                    "host_reads_n": 23,
                    "tokens_sha256": "a" * 64,
                    "first_divergence_tokens": None,
                    "others_cpu_share": 0.01,
                    "peak_rss_bytes": 10**9,
                    "natural_end": False,
                    "repeated_ngram_share": 0.1,
                }
            )
    runs = validate(pd.DataFrame(rows), "confirmatory" if arms[1] == "spec" else "aa")
    return runs
