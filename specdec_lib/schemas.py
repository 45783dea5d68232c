"""One schema per table: what each column holds, its unit (in the name), its range.

Validation and the data dictionary both come from here; :mod:`specdec_lib.records` reads and writes with them.
Adding a table is one entry.
"""

from __future__ import annotations

from typing import Any, get_args

import pandera.pandas as pa

from specdec_lib.design import Block, CheckName, Isolation

CHECK_NAMES: tuple[str, ...] = get_args(CheckName)
VERDICTS = ("pays", "does not", "undecided", "no interval")
STAGES = ("draft", "verify", "accept", "repair", "other")


def _column(
    dtype: str, description: str, *checks: pa.Check, null: bool = False, optional: bool = False
) -> pa.Column:
    return pa.Column(dtype, list(checks), nullable=null, required=not optional, description=description)


def _text(description: str, *allowed: str, null: bool = False, optional: bool = False) -> pa.Column:
    check = pa.Check.isin(allowed) if allowed else pa.Check.str_length(min_value=1)
    return _column("str", description, check, null=null, optional=optional)


def _hex(description: str, shortest: int, longest: int) -> pa.Column:
    return _column("str", description, pa.Check.str_matches(rf"^[0-9a-f]{{{shortest},{longest}}}$"))


def _count(description: str, least: int = 0, null: bool = False, optional: bool = False) -> pa.Column:
    return _column(
        "Int64" if null else "int64", description, pa.Check.ge(least), null=null, optional=optional
    )


def _flag(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return _column("boolean" if null else "bool", description, null=null, optional=optional)


def _real(description: str, *checks: pa.Check, null: bool = False, optional: bool = False) -> pa.Column:
    return _column("float64", description, *checks, null=null, optional=optional)


def _positive(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return _real(description, pa.Check.gt(0), null=null, optional=optional)


def _share(description: str, null: bool = False, optional: bool = False) -> pa.Column:
    return _real(description, pa.Check.in_range(0, 1), null=null, optional=optional)


def _check(fault: str, rows_ok: Any) -> pa.Check:
    """A rule over several columns; ``fault`` is what the error says."""
    return pa.Check(rows_ok, error=fault)


_PROFILE = {
    "profile": _text("Profile of design.toml that the row belongs to."),
    "design_hash": _hex("Measurement hash: names the frozen design the row was measured under.", 16, 16),
}
_DERIVED = _PROFILE | {
    "analysis_hash": _hex(
        "Analysis hash: names the analysis plan (thresholds, interval) of the row.", 16, 16
    ),
}
_MACHINE = {
    "pair": _text("Model pair: target and draft."),
    "dtype": _text("Precision of weights and KV cache that ran.", "bf16", "fp32"),
    "device": _text("Device that ran, such as cpu or cuda."),
}
_CONTEXT = {"context_tokens": _count("Prompt plus new tokens.", 1)}
_CELL = {"family": _text("Prompt family.")} | _CONTEXT
_INTERVAL = {
    "R_GM": _positive(
        "Geometric mean over families of T_AR / T_Spec; above 1 speculation is faster.", null=True
    ),
    "low": _positive("Lower bound of R_GM's interval over families; null without an interval.", null=True),
    "high": _positive("Upper bound of R_GM's interval over families; null without an interval.", null=True),
    "verdict": _text(
        "pays: low > 1. does not: high < 1. undecided: neither. no interval: too few.", *VERDICTS
    ),
}


def _runs(*arms: str) -> dict[str, pa.Column]:
    return (
        _PROFILE
        | _MACHINE
        | {
            "mode": _text("How the engine ran: eager, graphs, ..."),
            "isolation": _text(
                "What one process holds: one cell, one block's arm, or one context.", *get_args(Isolation)
            ),
            "threads": _count("CPU threads of the measuring process.", 1),
        }
        | _CELL
        | {
            "arm": _text("What was timed.", *arms),
            "block": _text("Order of the arms: AB has the first arm before the second.", *get_args(Block)),
            "repeat": _count("Repeat within (family, context, arm), from 1.", 1),
            "position": _count("Place in the process or block, from 0."),
            "job": _text("Process job that measured the row."),
            "new_tokens": _count("Tokens emitted.", 1),
            "decode_s": _positive(
                "Decode time T: from the prefill's last logits to the last token on the host."
            ),
            "prefill_s": _positive("Prefill of the target, timed apart from decode_s."),
            "draft_prefill_s": _real(
                "Prefill of the draft; null or 0 without one.", pa.Check.ge(0), null=True
            ),
            "rounds_n": _count("Speculation rounds; 0 without speculation."),
            "proposed_tokens": _count("Draft tokens proposed and verified."),
            "accepted_tokens": _count("Proposed tokens that the target accepted."),
            "rejections_n": _count("Rounds that ended in a rejection."),
            "target_calls_n": _count("Forwards of the target after the prefill.", 1),
            "draft_calls_n": _count("Forwards of the draft after its prefill."),
            "host_reads_n": _count("Times the host read from the device."),
            "tokens_sha256": _hex("Hash of the emitted ids; equal hashes mean equal tokens.", 16, 64),
            "first_divergence_tokens": _count(
                "First emitted token (from 0) that differs from AR; null if none.", null=True
            ),
            "others_cpu_share": _real(
                "CPU time of other processes over the timed region's length.", pa.Check.ge(0)
            ),
            "peak_rss_bytes": _count("Peak resident memory of the process.", 1),
            "natural_end": _flag("The model would have ended within these tokens."),
            "repeated_ngram_share": _share(
                "Share of 4-grams of the output already seen in it; high means it loops."
            ),
            "cpu_mhz": _positive("CPU clock during the run; null where unknown.", null=True, optional=True),
            "device_event_s": _positive(
                "Decode time by device events; null on a CPU.", null=True, optional=True
            ),
            "throttled": _flag(
                "The GPU reported a throttle reason; null on a CPU.", null=True, optional=True
            ),
            "other_gpu_processes_n": _count(
                "Other processes on the GPU; null on a CPU.", null=True, optional=True
            ),
        }
    )


_RUN_RULES = [
    _check("accepted_tokens <= proposed_tokens", lambda t: t["accepted_tokens"] <= t["proposed_tokens"]),
    _check("rejections_n <= rounds_n", lambda t: t["rejections_n"] <= t["rounds_n"]),
]
_INTERVAL_RULES = [
    _check(
        "low <= high, both or neither",
        lambda t: (t["low"] <= t["high"]) | (t["low"].isna() & t["high"].isna()),
    ),
    _check("a verdict needs an interval", lambda t: t["low"].isna() == (t["verdict"] == "no interval")),
]

_FAMILIES = (
    _DERIVED
    | _MACHINE
    | {"isolation": _text("What one process holds.", *get_args(Isolation))}
    | _CELL
    | {
        "ar_runs_n": _count("Measured AR repeats."),
        "spec_runs_n": _count("Measured SpecDec repeats."),
        "ar_median_s": _positive("Median decode time of AR over its repeats.", null=True),
        "spec_median_s": _positive("Median decode time of SpecDec over its repeats.", null=True),
        "R": _positive("ar_median_s / spec_median_s; above 1 speculation is faster.", null=True),
        "ar_prefill_s": _positive("Median prefill time of AR: the target's.", null=True),
        "spec_prefill_s": _positive("Median prefill time of SpecDec: target's plus draft's.", null=True),
        "R_with_prefill": _positive(
            "The same ratio with each arm's prefill added to every repeat.", null=True
        ),
        "acceptance": _share("Accepted / proposed-and-verified tokens, over the SpecDec repeats.", null=True),
        "alpha": _share(
            "P(proposal accepted, given all before it in its round were), inverted at fixed k.", null=True
        ),
        "tokens_per_round": _positive("New tokens per speculation round.", null=True),
        "rounds_n": _real("Median speculation rounds.", pa.Check.ge(0), null=True),
        "target_calls_n": _real(
            "Median target forwards of SpecDec after the prefill.", pa.Check.ge(0), null=True
        ),
        "identical": _flag("AR and SpecDec emitted the same tokens in every repeat."),
        "first_divergence_tokens": _count(
            "Earliest emitted token that differs from AR; null if none.", null=True
        ),
        "natural_end": _flag("The target would have ended within the new tokens."),
        "repeated_ngram_share": _share("Share of 4-grams of the AR output already seen in it.", null=True),
        "peak_rss_bytes": _count("Largest peak resident memory of the cell's processes.", 1),
        "others_cpu_share": _real("Largest others_cpu_share of the cell's repeats.", pa.Check.ge(0)),
    }
    | {
        column: made
        for name in CHECK_NAMES
        for column, made in (
            (f"{name}_passed", _flag(f"Check {name}: passed; null if this plan cannot tell.", null=True)),
            (f"{name}_value", _real(f"Check {name}: what was compared with the limit.", null=True)),
        )
    }
    | {
        "in_inference": _flag("No excluding check failed: the cell counts in R_GM and its interval."),
        "excluded_by": _text("Failed checks that exclude the cell, joined by ';'; null if none.", null=True),
    }
)

_SUMMARY = (
    _DERIVED
    | _MACHINE
    | _CONTEXT
    | {
        "n": _count("Families measured.", 1),
        "n_in_inference": _count("Families that passed the timing checks."),
    }
    | _INTERVAL
    | {
        "method": _text(
            "Interval method; null without an interval.", "percentile", "bca", "t-log", null=True
        ),
        "R_GM_all": _positive("R_GM over every measured family, descriptive."),
        "R_GM_with_prefill": _positive(
            "R_GM with prefill added to both arms, families in inference.", null=True
        ),
        "ar_median_s": _positive("Median over all families of AR's median decode time."),
        "spec_median_s": _positive("Median over all families of SpecDec's median decode time."),
        "acceptance_median": _share("Median acceptance over all families.", null=True),
        "alpha_median": _share("Median alpha over all families.", null=True),
        "tokens_per_round_median": _positive("Median tokens per round over all families.", null=True),
        "rounds_median": _real("Median rounds over all families.", pa.Check.ge(0)),
        "target_calls_median": _real("Median target forwards over all families.", pa.Check.ge(0)),
        "identical_families_n": _count("Families whose AR and SpecDec tokens are identical."),
        "slower_families_n": _count("Families with R < 1, over all measured."),
        "peak_rss_bytes": _count("Largest peak resident memory.", 1),
    }
)

_SOURCE = {"source": _text("Where the number was published.")}


def _schema(
    name: str, description: str, columns: dict[str, pa.Column], rules: list[pa.Check] | None = None
) -> Any:
    return pa.DataFrameSchema(columns, name=name, description=description, checks=rules or [], strict=True)


_TABLES = (
    _schema("confirmatory", "One row per measured repeat.", _runs("ar", "spec"), _RUN_RULES),
    _schema("aa", "A/A runs: AR against AR, on development families.", _runs("ar", "ar-again"), _RUN_RULES),
    _schema(
        "stages",
        "Where one instrumented, uncounted repeat spent its time.",
        _PROFILE
        | _CELL
        | {
            "arm": _text("What was timed.", "ar", "spec"),
            "stage": _text("Part of the round; other is what the marks do not cover.", *STAGES),
            "stage_s": _real("Time in the stage, all rounds together.", pa.Check.ge(0)),
            "total_s": _positive("Decode time of the instrumented repeat; the stages sum to it."),
        },
    ),
    _schema(
        "correctness",
        "One row per correctness check that ran.",
        _PROFILE
        | {
            "subject": _text("What was checked: a model, a family, a variant."),
            "model_kind": _text("Decoder kind, such as llama or qwen2."),
            "check": _text("Which check."),
            "formulation": _text(
                "Engine formulation; null where it has none.", "reference", "repair-free", null=True
            ),
            "bonus": _flag("Bonus token on; null where there is none.", null=True),
            "k": _count("Draft tokens per round; null where there is none.", 1, null=True),
            "dtype": _text("Precision.", "bf16", "fp32"),
            "passed": _flag("The value was within the limit."),
            "value": _real("What was measured.", null=True),
            "limit": _real("What it was compared with.", null=True),
        },
    ),
    _schema("families", "One row per (context, family): ratios and checks.", _FAMILIES),
    _schema("summary", "One row per context: the result.", _SUMMARY, _INTERVAL_RULES),
    _schema(
        "sensitivity",
        "R_GM again with other families or another interval method.",
        _DERIVED
        | _CONTEXT
        | {
            "variant": _text("inference; all cells; <method> interval; without <family>."),
            "n": _count("Families used."),
        }
        | _INTERVAL,
        _INTERVAL_RULES,
    ),
    _schema(
        "equality",
        "Token equality of AR and SpecDec, per context.",
        _DERIVED
        | _CONTEXT
        | {
            "n": _count("Families measured.", 1),
            "identical_n": _count("Families whose tokens are identical in both arms."),
            "deterministic_n": _count("Families in which each arm alone repeats its own tokens."),
            "first_divergence_min_tokens": _count(
                "Earliest divergence of any family; null if none.", null=True
            ),
            "first_divergence_median_tokens": _real("Median divergence where there is one.", null=True),
        },
    ),
    _schema(
        "exclusions",
        "One row per failed check of a cell.",
        _DERIVED
        | _CELL
        | {
            "check": _text("Check that failed.", *CHECK_NAMES),
            "value": _real("What was compared.", null=True),
            "limit": _real("The limit.", null=True),
            "note": _text("What the check saw."),
        },
    ),
    _schema(
        "thresholds",
        "Limits of the timing checks, as the A/A rule sets them.",
        {
            "device_kind": _text("cpu or gpu.", "cpu", "gpu"),
            "check": _text("Check.", "dispersion", "stationary", "order", "undisturbed"),
            "cells_n": _count("A/A cells in which the check could be computed."),
            "observed": _real("95th percentile of the check's value over those cells.", null=True),
            "default": _share("The study's default limit."),
            "threshold": _share("The limit the rule gives."),
        },
    ),
    _schema(
        "coverage",
        "Simulated coverage of the interval over families.",
        {
            "families_n": _count("Families per simulated study.", 2),
            "method": _text("Interval method.", "percentile", "bca", "t-log"),
            "level": _share("Nominal level."),
            "sigma": _positive("Standard deviation of log R over families."),
            "replications_n": _count("Simulated studies.", 1),
            "resamples_n": _count("Bootstrap resamples per study.", 1),
            "coverage": _share("Share of the intervals that contain the true R_GM."),
            "coverage_error": _share("Monte Carlo standard error of the coverage."),
            "mean_width": _positive("Mean width of the interval in log R."),
        },
    ),
    _schema(
        "published-confirmatory",
        "The article's confirmatory table.",
        _SOURCE
        | _CONTEXT
        | {
            "n": _count("Families measured.", 1),
            "n_in_inference": _count("Families in inference."),
            "ar_median_s": _positive("Median decode time of AR."),
            "spec_median_s": _positive("Median decode time of SpecDec."),
            "R_GM": _positive("Geometric mean of T_AR / T_Spec."),
            "low": _positive("Lower bound of the bootstrap interval."),
            "high": _positive("Upper bound of the bootstrap interval."),
            "acceptance_median": _share("Median of accepted / proposed tokens."),
            "identical_families_n": _count("Families whose AR and SpecDec tokens are identical."),
        },
        [_check("low <= R_GM <= high", lambda t: (t["low"] <= t["R_GM"]) & (t["R_GM"] <= t["high"]))],
    ),
    _schema(
        "published-phases",
        "The article's mechanism phases, one number per row.",
        _SOURCE
        | {
            "phase": _text("Mechanism phase."),
            "context_tokens": _count(
                "Prompt plus new tokens; null if the number is for all or not stated.", 1, null=True
            ),
            "quantity": _text("What the number is."),
            "value": _real("The number."),
            "unit": _text("Its unit: ratio, s, GiB, share, count."),
            "note": _text("What the article leaves open; null if nothing.", null=True),
        },
    ),
    _schema(
        "audit",
        "The cost line applied to the published tables, in units of one AR step.",
        _SOURCE
        | _CONTEXT
        | {
            "acceptance": _share("Published median acceptance."),
            "alpha": _share("The alpha that gives it at k = 4."),
            "v_steps": _positive("Verification: 64 / (13 R) from the draft-free oracle."),
            "c_steps": _positive("Draft forward: (64 / (16 R) - v) / 4 from the all-accept oracle."),
            "rounds_n": _positive("Rounds of 64 tokens: 64 / E[tokens per round]."),
            "R_predicted": _positive(
                "R of the reference formulation by the cost line: ratio of expectations."
            ),
            "R_predicted_finite": _positive("The same, exact for 64 tokens: the last round shrinks."),
            "R_published": _positive("R_GM as published."),
            "R_bonus_predicted": _positive("All-accept with bonus: 64 / (13 (5 c + v))."),
            "R_bonus_published": _positive("All-accept with bonus as published."),
            "ar_step_s": _positive("AR time per token."),
            "roofline_share": _share("Weights and KV read per step over ar_step_s, of 256 GB/s."),
        },
    ),
)

SCHEMAS: dict[str, pa.DataFrameSchema] = {schema.name: schema for schema in _TABLES}
