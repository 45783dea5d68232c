"""Schemas of the mechanism phases' tables. See :mod:`specdec_lib.schemas`."""

from __future__ import annotations

import pandera.pandas as pa

from specdec_lib.columns import (
    CELL,
    CONTEXT,
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
from specdec_lib.variants import LABELS, OPERATIONS

_SETTINGS = {
    "variant": text("What was run; ar is the baseline."),
    "label": text(
        "real: own text and acceptance. not exact: the output may leave the target's. oracle: given what no system "
        "knows. synthetic: acceptance imposed.",
        *LABELS,
    ),
    "k": count("Draft tokens per round; null for AR.", 1, null=True),
    "bonus": flag("Bonus token on; null for AR.", null=True),
    "formulation": text("Engine formulation; null for AR.", "reference", "repair-free", null=True),
    "setting": real("delta in logits or alpha, where the variant has one.", pa.Check.ge(0), null=True),
}
_PHASE = {"phase": text("Mechanism phase.")}
_OUTPUT = {
    "first_divergence_tokens": count(
        "First emitted token (from 0) that differs from AR; null if none.", null=True
    ),
    "equal_share": share("Share of output positions that hold AR's token."),
}
_COUNTS = {
    "rounds_n": count("Speculation rounds; 0 for AR."),
    "proposed_tokens": count("Tokens proposed and verified."),
    "accepted_tokens": count("Proposed tokens that stood."),
    "rejections_n": count("Rounds that ended in a rejection."),
    "target_calls_n": count("Forwards of the target after the prefill.", 1),
    "draft_calls_n": count("Forwards of the draft after its prefill."),
    "block_rows_tokens": count("Rows of all verification blocks together."),
}
_STAGES = {
    f"{stage}_s": real(f"Time of the stage {stage}, all rounds; null for AR." if stage == "draft" else
                       f"Time of the stage {stage}, all rounds.", pa.Check.ge(0), null=True)
    for stage in ("draft", "verify", "accept", "repair", "other")
}  # fmt: skip
_ALPHA = {
    "pass_share": share("Share of output positions at which the draft would choose the target's token.")
}
_DISTURBED = {
    "disturbed": flag(
        "AR or the variant has no repeat that others left undisturbed: its runs count all the same."
    ),
    "others_cpu_share": real(
        "Largest share that others took of a run that counts, AR's or the variant's.", pa.Check.ge(0)
    ),
}
_EXTRAPOLATED = {"extrapolated": flag("The context is beyond the development texts.")}
_SEEN = rule("accepted_tokens <= proposed_tokens", lambda t: t["accepted_tokens"] <= t["proposed_tokens"])

_PREDICTED = (
    PROFILE
    | CELL
    | {name: column for name, column in _SETTINGS.items() if name != "setting"}
    | _ALPHA
    | {
        "counts_from": text(
            "Where the counts come from: an untimed run, or the trace of the AR text.", "run", "trace"
        ),
        "rounds_by_trace_n": count("Rounds that the trace says.", 1),
        "rounds_n": count("Rounds predicted.", 1),
        "draft_calls_n": count("Draft forwards predicted."),
        "target_calls_n": count("Target forwards predicted.", 1),
        "ar_predicted_s": positive("Predicted decode time of AR."),
        "spec_predicted_s": positive("Predicted decode time of the variant."),
        "R_predicted": positive("Geometric mean over the fits of the development families."),
        "R_predicted_low": positive("Lower end of its 95 % t interval.", null=True),
        "R_predicted_high": positive("Upper end.", null=True),
    }
    | _EXTRAPOLATED
)

MECHANISM_TABLES = (
    table(
        "mechanism",
        "One row per timed run of a mechanism phase.",
        PROFILE
        | MACHINE
        | {"mode": text("How the engine ran: eager, graphs, ..."), "threads": count("CPU threads.", 1)}
        | CELL
        | _PHASE
        | _SETTINGS
        | {
            "repeat": count("Repeat of the variant, from 1.", 1),
            "position": count("Place within the repeat, from 0; even repeats run backwards."),
            "job": text("Process job that measured the row."),
            "new_tokens": count("Tokens emitted.", 1),
            "decode_s": positive(
                "Decode time T: from the prefill's last logits to the last token on the host."
            ),
        }
        | _COUNTS
        | {
            "host_reads_n": count("Times the host read from the device."),
            "host_copies_n": count("Times the host sent token ids to the device."),
            "host_bytes": count("Bytes of both."),
            "tokens_sha256": hexadecimal("Hash of the emitted ids; equal hashes mean equal tokens.", 16, 64),
        }
        | _OUTPUT
        | {
            "others_cpu_share": real(
                "CPU time of other processes over the timed region's length.", pa.Check.ge(0)
            ),
            "cpu_mhz": positive("CPU clock during the run; null where unknown.", null=True),
            "peak_rss_bytes": count("Peak resident memory of the process.", 1),
            "prediction_sha256": hexadecimal(
                "Hash of the prediction written before; null if there was none.", 64, 64, null=True
            ),
        }
        | ON_A_GPU,
        [_SEEN],
    ),
    table(
        "ratios",
        "One row per (context, family, variant): medians over repeats and R.",
        PROFILE
        | MACHINE
        | CELL
        | _PHASE
        | _SETTINGS
        | {
            "repeats_n": count("Timed runs of the variant that count.", 1),
            "left_out_n": count("Repeats of the variant left out because others disturbed them."),
            "ar_left_out_n": count("The same of AR, in the same job."),
            "ar_median_s": positive("Median decode time of AR in the same job."),
            "spec_median_s": positive("Median decode time of the variant."),
            "R": positive("ar_median_s / spec_median_s; above 1 the variant is faster."),
            "R_low": positive("The same against the variant's slowest run."),
            "R_high": positive("The same against its fastest run."),
            "acceptance": share("Accepted / proposed-and-verified; null without proposals.", null=True),
            "tokens_per_round": positive("New tokens per round.", null=True),
            "rounds_n": count("Speculation rounds."),
            "target_calls_n": count("Forwards of the target after the prefill.", 1),
            "draft_calls_n": count("Forwards of the draft after its prefill."),
            "host_reads_n": count("Times the host read from the device."),
            "reads_per_round": real("Host reads per round.", pa.Check.ge(0), null=True),
            "copies_per_round": real("Host-to-device token copies per round.", pa.Check.ge(0), null=True),
            "bytes_per_round": real("Bytes of both per round.", pa.Check.ge(0), null=True),
        }
        | _DISTURBED
        | _OUTPUT,
    ),
    table(
        "quality",
        "How good the text of a variant is, per cell.",
        PROFILE
        | CELL
        | _PHASE
        | _SETTINGS
        | _OUTPUT
        | {
            "mean_log_probability": real(
                "Mean over the output of the tokens' log-probability under the target, nats."
            ),
            "format": text("Format check of the family; null if its answer has none.", null=True),
            "format_kept": flag("The output has the asked form; null without a check.", null=True),
        },
    ),
    table(
        "proposals",
        "One row per proposed token, under the target's distribution (reference formulation, no bonus).",
        PROFILE
        | CELL
        | {
            "round_n": count("Round, from 0."),
            "block_position": count("Place in the block, from 1.", 1),
            "position_tokens": count("Output position, from 0."),
            "token_id": count("The proposed token."),
            "rank": count("Rank under the target's logits; 1 is the top.", 1),
            "probability": share("Probability under the target."),
            "gap_logits": real("The target's top logit minus this token's.", pa.Check.ge(0)),
            "accepted": flag("It stood."),
            "reached": flag("All proposals before it in its round stood."),
        },
        [rule("what was accepted was reached", lambda t: ~t["accepted"] | t["reached"])],
    ),
    table(
        "traces",
        "One row per cell: the bits that fix the rounds of greedy speculation for every k.",
        PROFILE
        | CELL
        | {
            "passes": text(
                "One character per output position: 1 if the draft would choose the target's token."
            )
        }
        | _ALPHA
        | {
            "rounds_n": count(
                "Rounds of the real run at the design's k (reference, no bonus); null where acceptance is scripted.",
                1,
                null=True,
            ),
            "rounds_by_trace_n": count("Rounds that the trace says.", 1),
            "acceptance": share("Accepted / proposed-and-verified by the trace."),
            "alpha": share("The alpha that gives this acceptance at the design's k."),
            "identical": flag(
                "The real run emitted AR's tokens; null where acceptance is scripted.", null=True
            ),
        },
    ),
    table(
        "numerics",
        "Blocks of M rows against M one-row steps over the same tokens, per operation.",
        PROFILE
        | CELL
        | {
            "dtype": text("Precision.", "bf16", "fp32"),
            "width": count("Rows of the block.", 2),
            "operation": text("Part of the decoder, in the order of the forward.", *OPERATIONS),
            "chained_max": real("Largest absolute difference, with what came before it.", pa.Check.ge(0)),
            "alone_max": real("Largest absolute difference on the step's own inputs.", pa.Check.ge(0)),
            "alone_layers_n": count("Layers in which it differs on the step's own inputs."),
            "layers_n": count("Layers that have the operation.", 1),
            "first_to_differ": flag("The first difference of the free run is in this operation."),
            "first_layer": count("The layer of that first difference.", null=True),
            "flips_n": count("Rows whose argmax is another one; on the head's line.", null=True),
            "flip_margin_max": real("Largest top-2 margin of a flipped row.", pa.Check.ge(0), null=True),
            "deterministic": flag("Running it again gave the same numbers, block and steps."),
            "group_width": count(
                "Smallest width whose first row has the very same logits; 1 is the step.", 1
            ),
        },
    ),
    table(
        "costs",
        "One instrumented run of a development cell; what the cost line is fitted to.",
        PROFILE
        | CELL
        | {
            name: column
            for name, column in _SETTINGS.items()
            if name in ("variant", "k", "bonus", "formulation")
        }
        | {
            "repeat": count("Repeat, from 1.", 1),
            "new_tokens": count("Tokens emitted.", 1),
            "decode_s": positive("Decode time of the instrumented run."),
        }
        | _COUNTS
        | _STAGES,
        [_SEEN],
    ),
    table(
        "cost-fit",
        "Fitted cost of every part of a round, over development families.",
        PROFILE
        | CONTEXT
        | {
            "component": text("Part of the cost line."),
            "k": count("Draft tokens; verification is of k + 1 rows.", 1, null=True),
            "families_n": count("Development families.", 1),
            "cost_s": real("Mean over families."),
            "cost_low_s": real("Lower end of its 95 % t interval.", null=True),
            "cost_high_s": real("Upper end.", null=True),
            "steps": real("The same in AR steps."),
            "steps_low": real("Lower end.", null=True),
            "steps_high": real("Upper end.", null=True),
        }
        | _EXTRAPOLATED,
    ),
    table(
        "predictions",
        "R of held-out cells by the cost line, written before they were measured.",
        _PREDICTED,
    ),
    table(
        "residuals",
        "Predicted and measured R of every held-out cell and variant.",
        _PREDICTED
        | {
            "R_measured": positive("AR / variant, medians over repeats."),
            "R_low": positive("The same against the variant's slowest run."),
            "R_high": positive("The same against its fastest run."),
            "ar_median_s": positive("Measured decode time of AR."),
            "spec_median_s": positive("Measured decode time of the variant."),
            "rounds_measured_n": count("Rounds of the measured runs."),
            "residual": real("R_measured / R_predicted - 1."),
            "ar_residual": real("The same for AR's time."),
            "spec_residual": real("The same for the variant's time."),
            "same_rounds": flag("The run took the rounds that were predicted."),
        }
        | _DISTURBED,
    ),
    table(
        "break-even",
        "What the fitted cost line says of alpha and k.",
        PROFILE
        | CONTEXT
        | {
            "formulation": text("Engine formulation.", "reference", "repair-free"),
            "bonus": flag("Bonus token on."),
            "k": count("Draft tokens per round.", 1),
            "c_steps": real("A draft forward in AR steps."),
            "v_steps": real("A verification at this k in AR steps."),
            "alpha": share("Mean share of passes in the cells' traces."),
            "break_even_alpha": share("Smallest alpha that pays at this k; null if none does.", null=True),
            "best_k": count("The k with the largest predicted R at the traces' alpha.", 1),
            "R_at_best_k": positive("That R."),
        }
        | _EXTRAPOLATED,
    ),
)
