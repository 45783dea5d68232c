"""One schema per table: what each column holds, its unit (in the name), its range.

Validation and the data dictionary both come from here; :mod:`specdec_lib.records` reads and writes with them.
Adding a table is one entry.
"""

from __future__ import annotations

from typing import get_args

import pandera.pandas as pa

from specdec_lib.columns import (
    CELL,
    CONTEXT,
    DERIVED,
    MACHINE,
    ON_A_GPU,
    PROFILE,
    count,
    flag,
    hexadecimal,
    positive,
    real,
    rule,
    share,
    table,
    text,
)
from specdec_lib.design import Block, CheckName, Isolation
from specdec_lib.gpu_schemas import GPU_TABLES
from specdec_lib.mechanism_schemas import MECHANISM_TABLES

CHECK_NAMES: tuple[str, ...] = get_args(CheckName)
VERDICTS = ("pays", "does not", "undecided", "no interval")
STAGES = ("draft", "verify", "accept", "repair", "other")


_INTERVAL = {
    "R_GM": positive(
        "Geometric mean over families of T_AR / T_Spec; above 1 speculation is faster.", null=True
    ),
    "low": positive("Lower bound of R_GM's interval over families; null without an interval.", null=True),
    "high": positive("Upper bound of R_GM's interval over families; null without an interval.", null=True),
    "verdict": text(
        "pays: low > 1. does not: high < 1. undecided: neither. no interval: too few.", *VERDICTS
    ),
}


def _runs(*arms: str) -> dict[str, pa.Column]:
    return (
        PROFILE
        | MACHINE
        | {
            "mode": text("How the engine ran: eager, graphs, ..."),
            "isolation": text(
                "What one process holds: one cell, one block's arm, or one context.", *get_args(Isolation)
            ),
            "threads": count("CPU threads of the measuring process.", 1),
        }
        | CELL
        | {
            "arm": text("What was timed.", *arms),
            "block": text("Order of the arms: AB has the first arm before the second.", *get_args(Block)),
            "repeat": count("Repeat within (family, context, arm), from 1.", 1),
            "position": count("Place in the process or block, from 0."),
            "job": text("Process job that measured the row."),
            "new_tokens": count("Tokens emitted.", 1),
            "decode_s": positive(
                "Decode time T: from the prefill's last logits to the last token on the host."
            ),
            "prefill_s": positive("Prefill of the target, timed apart from decode_s."),
            "draft_prefill_s": real(
                "Prefill of the draft; null or 0 without one.", pa.Check.ge(0), null=True
            ),
            "rounds_n": count("Speculation rounds; 0 without speculation."),
            "proposed_tokens": count("Draft tokens proposed and verified."),
            "accepted_tokens": count("Proposed tokens that the target accepted."),
            "rejections_n": count("Rounds that ended in a rejection."),
            "target_calls_n": count("Forwards of the target after the prefill.", 1),
            "draft_calls_n": count("Forwards of the draft after its prefill."),
            "host_reads_n": count("Times the host read from the device."),
            "tokens_sha256": hexadecimal("Hash of the emitted ids; equal hashes mean equal tokens.", 16, 64),
            "first_divergence_tokens": count(
                "First emitted token (from 0) that differs from AR; null if none.", null=True
            ),
            "others_cpu_share": real(
                "CPU time of other processes over the timed region's length.", pa.Check.ge(0)
            ),
            "peak_rss_bytes": count("Peak resident memory of the process.", 1),
            "natural_end": flag("The model would have ended within these tokens."),
            "repeated_ngram_share": share(
                "Share of 4-grams of the output already seen in it; high means it loops."
            ),
            "cpu_mhz": positive("CPU clock during the run; null where unknown.", null=True, optional=True),
            "set_aside_n": count(
                "Runs before this one that something else slowed and that were measured again; kept in the job's file.",
                optional=True,
            ),
        }
        | ON_A_GPU
    )


_RUN_RULES = [
    rule("accepted_tokens <= proposed_tokens", lambda t: t["accepted_tokens"] <= t["proposed_tokens"]),
    rule("rejections_n <= rounds_n", lambda t: t["rejections_n"] <= t["rounds_n"]),
]
_INTERVAL_RULES = [
    rule(
        "low <= high, both or neither",
        lambda t: (t["low"] <= t["high"]) | (t["low"].isna() & t["high"].isna()),
    ),
    rule("a verdict needs an interval", lambda t: t["low"].isna() == (t["verdict"] == "no interval")),
]

_FAMILIES = (
    DERIVED
    | MACHINE
    | {"isolation": text("What one process holds.", *get_args(Isolation))}
    | CELL
    | {
        "ar_runs_n": count("Measured AR repeats."),
        "spec_runs_n": count("Measured SpecDec repeats."),
        "ar_median_s": positive("Median decode time of AR over its repeats.", null=True),
        "spec_median_s": positive("Median decode time of SpecDec over its repeats.", null=True),
        "R": positive("ar_median_s / spec_median_s; above 1 speculation is faster.", null=True),
        "ar_prefill_s": positive(
            "Prefill of AR, the target's: median over the context's readings.", null=True
        ),
        "spec_prefill_s": positive("Prefill of SpecDec, target's plus draft's: likewise.", null=True),
        "R_with_prefill": positive("The same ratio with each arm's prefill added to its median.", null=True),
        "acceptance": share("Accepted / proposed-and-verified tokens, over the SpecDec repeats.", null=True),
        "alpha": share(
            "P(proposal accepted, given all before it in its round were), inverted at fixed k.", null=True
        ),
        "tokens_per_round": positive("New tokens per speculation round.", null=True),
        "rounds_n": real("Median speculation rounds.", pa.Check.ge(0), null=True),
        "target_calls_n": real(
            "Median target forwards of SpecDec after the prefill.", pa.Check.ge(0), null=True
        ),
        "identical": flag("AR and SpecDec emitted the same tokens in every repeat."),
        "first_divergence_tokens": count(
            "Earliest emitted token that differs from AR; null if none.", null=True
        ),
        "natural_end": flag("The target would have ended within the new tokens."),
        "repeated_ngram_share": share("Share of 4-grams of the AR output already seen in it.", null=True),
        "peak_rss_bytes": count("Largest peak resident memory of the cell's processes.", 1),
        "others_cpu_share": real("Largest others_cpu_share of the cell's repeats.", pa.Check.ge(0)),
    }
    | {
        column: made
        for name in CHECK_NAMES
        for column, made in (
            (f"{name}_passed", flag(f"Check {name}: passed; null if this plan cannot tell.", null=True)),
            (f"{name}_value", real(f"Check {name}: what was compared with the limit.", null=True)),
        )
    }
    | {
        "in_inference": flag("No excluding check failed: the cell counts in R_GM and its interval."),
        "excluded_by": text("Failed checks that exclude the cell, joined by ';'; null if none.", null=True),
    }
)

_SUMMARY = (
    DERIVED
    | MACHINE
    | CONTEXT
    | {
        "n": count("Families measured.", 1),
        "n_in_inference": count("Families that passed the timing checks."),
    }
    | _INTERVAL
    | {
        "method": text("Interval method; null without an interval.", "percentile", "bca", "t-log", null=True),
        "R_GM_all": positive("R_GM over every measured family, descriptive."),
        "R_GM_with_prefill": positive(
            "R_GM with prefill added to both arms, families in inference.", null=True
        ),
        "R_GM_all_with_prefill": positive("The same over every measured family, descriptive."),
        "ar_median_s": positive("Median over all families of AR's median decode time."),
        "spec_median_s": positive("Median over all families of SpecDec's median decode time."),
        "acceptance_median": share("Median acceptance over all families.", null=True),
        "alpha_median": share("Median alpha over all families.", null=True),
        "tokens_per_round_median": positive("Median tokens per round over all families.", null=True),
        "rounds_median": real("Median rounds over all families.", pa.Check.ge(0)),
        "target_calls_median": real("Median target forwards over all families.", pa.Check.ge(0)),
        "identical_families_n": count("Families whose AR and SpecDec tokens are identical."),
        "slower_families_n": count("Families with R < 1, over all measured."),
        "peak_rss_bytes": count("Largest peak resident memory.", 1),
    }
)

_SOURCE = {"source": text("Where the number was published.")}


_TABLES = (
    table("confirmatory", "One row per measured repeat.", _runs("ar", "spec"), _RUN_RULES),
    table("aa", "A/A runs: AR against AR, on development families.", _runs("ar", "ar-again"), _RUN_RULES),
    table(
        "stages",
        "Where one instrumented, uncounted repeat spent its time.",
        PROFILE
        | CELL
        | {
            "arm": text("What was timed.", "ar", "spec"),
            "stage": text("Part of the round; other is what the marks do not cover.", *STAGES),
            "stage_s": real("Time in the stage, all rounds together.", pa.Check.ge(0)),
            "total_s": positive("Decode time of the instrumented repeat; the stages sum to it."),
        },
    ),
    table(
        "correctness",
        "One row per correctness check that ran.",
        PROFILE
        | {
            "subject": text("What was checked: a model, a family, a variant."),
            "model_kind": text("Decoder kind, such as llama or qwen2."),
            "check": text("Which check."),
            "formulation": text(
                "Engine formulation; null where it has none.", "reference", "repair-free", null=True
            ),
            "bonus": flag("Bonus token on; null where there is none.", null=True),
            "k": count("Draft tokens per round; null where there is none.", 1, null=True),
            "dtype": text("Precision.", "bf16", "fp32"),
            "passed": flag("The value was within the limit."),
            "value": real("What was measured.", null=True),
            "limit": real("What it was compared with.", null=True),
        },
    ),
    table("families", "One row per (context, family): ratios and checks.", _FAMILIES),
    table("summary", "One row per context: the result.", _SUMMARY, _INTERVAL_RULES),
    table(
        "sensitivity",
        "R_GM again with other families or another interval method.",
        DERIVED
        | CONTEXT
        | {
            "variant": text("inference; all cells; <method> interval; without <family>."),
            "n": count("Families used."),
        }
        | _INTERVAL,
        _INTERVAL_RULES,
    ),
    table(
        "equality",
        "Token equality of AR and SpecDec, per context.",
        DERIVED
        | CONTEXT
        | {
            "n": count("Families measured.", 1),
            "identical_n": count("Families whose tokens are identical in both arms."),
            "deterministic_n": count("Families in which each arm alone repeats its own tokens."),
            "first_divergence_min_tokens": count(
                "Earliest divergence of any family; null if none.", null=True
            ),
            "first_divergence_median_tokens": real("Median divergence where there is one.", null=True),
        },
    ),
    table(
        "exclusions",
        "One row per failed check of a cell.",
        DERIVED
        | CELL
        | {
            "check": text("Check that failed.", *CHECK_NAMES),
            "value": real("What was compared.", null=True),
            "limit": real("The limit.", null=True),
            "note": text("What the check saw."),
        },
    ),
    table(
        "thresholds",
        "Limits of the timing checks, as the A/A rule sets them.",
        {
            "device_kind": text("cpu or gpu.", "cpu", "gpu"),
            "check": text("Check.", "dispersion", "stationary", "order", "undisturbed"),
            "cells_n": count("A/A cells in which the check could be computed."),
            "observed": real("95th percentile of the check's value over those cells.", null=True),
            "default": share("The study's default limit."),
            "threshold": share("The limit the rule gives."),
        },
    ),
    table(
        "coverage",
        "Simulated coverage of the interval over families.",
        {
            "families_n": count("Families per simulated study.", 2),
            "method": text("Interval method.", "percentile", "bca", "t-log"),
            "level": share("Nominal level."),
            "sigma": positive("Standard deviation of log R over families."),
            "replications_n": count("Simulated studies.", 1),
            "resamples_n": count("Bootstrap resamples per study.", 1),
            "coverage": share("Share of the intervals that contain the true R_GM."),
            "coverage_error": share("Monte Carlo standard error of the coverage."),
            "mean_width": positive("Mean width of the interval in log R."),
        },
    ),
    table(
        "published-confirmatory",
        "The article's confirmatory table.",
        _SOURCE
        | CONTEXT
        | {
            "n": count("Families measured.", 1),
            "n_in_inference": count("Families in inference."),
            "ar_median_s": positive("Median decode time of AR."),
            "spec_median_s": positive("Median decode time of SpecDec."),
            "R_GM": positive("Geometric mean of T_AR / T_Spec."),
            "low": positive("Lower bound of the bootstrap interval."),
            "high": positive("Upper bound of the bootstrap interval."),
            "acceptance_median": share("Median of accepted / proposed tokens."),
            "identical_families_n": count("Families whose AR and SpecDec tokens are identical."),
        },
        [rule("low <= R_GM <= high", lambda t: (t["low"] <= t["R_GM"]) & (t["R_GM"] <= t["high"]))],
    ),
    table(
        "published-phases",
        "The article's mechanism phases, one number per row.",
        _SOURCE
        | {
            "phase": text("Mechanism phase."),
            "context_tokens": count(
                "Prompt plus new tokens; null if the number is for all or not stated.", 1, null=True
            ),
            "quantity": text("What the number is."),
            "value": real("The number."),
            "unit": text("Its unit: ratio, s, GiB, share, count."),
            "note": text("What the article leaves open; null if nothing.", null=True),
        },
    ),
    table(
        "audit",
        "The cost line applied to the published tables, in units of one AR step.",
        _SOURCE
        | CONTEXT
        | {
            "acceptance": share("Published median acceptance."),
            "alpha": share("The alpha that gives it at k = 4."),
            "v_steps": positive("Verification: 64 / (13 R) from the draft-free oracle."),
            "c_steps": positive("Draft forward: (64 / (16 R) - v) / 4 from the all-accept oracle."),
            "rounds_n": positive("Rounds of 64 tokens: 64 / E[tokens per round]."),
            "R_predicted": positive(
                "R of the reference formulation by the cost line: ratio of expectations."
            ),
            "R_predicted_finite": positive("The same, exact for 64 tokens: the last round shrinks."),
            "R_published": positive("R_GM as published."),
            "R_bonus_predicted": positive("All-accept with bonus: 64 / (13 (5 c + v))."),
            "R_bonus_published": positive("All-accept with bonus as published."),
            "ar_step_s": positive("AR time per token."),
            "roofline_share": share("Weights and KV read per step over ar_step_s, of 256 GB/s."),
        },
    ),
)

SCHEMAS: dict[str, pa.DataFrameSchema] = {
    schema.name: schema for schema in (*_TABLES, *MECHANISM_TABLES, *GPU_TABLES)
}
