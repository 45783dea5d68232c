"""Schemas of the tables that only a GPU fills. See :mod:`specdec_lib.schemas`."""

from __future__ import annotations

from specdec_lib.columns import MACHINE, PROFILE, count, real, rule, table, text
from specdec_lib.variants import LABELS

GPU_TABLES = (
    table(
        "graphs",
        "What capturing CUDA graphs gives and costs; one row per quantity and setting.",
        PROFILE
        | MACHINE
        | {
            "part": text(
                "steps: single eager steps in pairs. local: one stage, eager against captured. "
                "per position: a graph per round and position. "
                "position-independent: every context from the same graphs. all: the job ended before a part did.",
                "steps",
                "local",
                "per position",
                "position-independent",
                "all",
            ),
            "quantity": text("What the number is."),
            "mode": text("How the engine ran.", "eager", "graphs", "compiled", "any"),
            "variant": text("Kind of cache, imposed acceptance, or how it was captured."),
            "context_tokens": count("Prompt plus new tokens; null if the number is for all.", 1, null=True),
            "k": count("Draft tokens per round; null if the number is for all.", 1, null=True),
            "label": text(
                "As in the table mechanism; synthetic also for all of a pair with random weights.", *LABELS
            ),
            "outcome": text(
                "measured; out of memory: up to there; logic only: on a CPU, functions in place of graphs.",
                "measured",
                "out of memory",
                "logic only",
            ),
            "value": real(
                "The number: the median, of R the geometric mean; null if none was reached.", null=True
            ),
            "unit": text("Its unit.", "s", "MiB", "GiB", "ratio", "share", "count", "none"),
            "n": count("Values behind it."),
            "low": real("The smallest of them.", null=True),
            "high": real("The largest.", null=True),
            "published_low": real(
                "The published number or the lower end of its range; null if none.", null=True
            ),
            "published_high": real("The same or the upper end.", null=True),
        },
        [rule("a number has values behind it", lambda t: t["value"].notna() == (t["n"] > 0))],
    ),
    table(
        "gpu-engine",
        "Figures of the GPU engine (benchmarks/gpu_engine.py); random weights, imposed acceptance (synthetic).",
        {
            "part": text("Part of the benchmark."),
            "figure": text("What was measured."),
            "setting": text("Under which setting; null if there is but one.", null=True),
            "value": real("The number: the median where n is above 1."),
            "unit": text("Its unit; null for a ratio or a count.", null=True),
            "n": count("Values behind it.", 1),
            "low": real("The smallest of them; null for one.", null=True),
            "high": real("The largest.", null=True),
            "floor": real("What it must reach; null if nothing was asked.", null=True),
            "aim": real("What it should reach.", null=True),
            "verdict": text("Which of both it reached.", "aim", "floor", "missed", null=True),
        },
    ),
)
