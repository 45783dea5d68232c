"""Whether capturing more graphs changes how long the graphs that were there take, measured on a CUDA device.

    python benchmarks/stage_capture.py > data/h200-engine/stage-capture.json

Both arms of the pair smol in mode "compiled", by the device's own clock: first as captured, then as long again with
nothing done in between (the control), then after the round's stages were captured as graphs of their own, which is what
an instrumented run does. Twice: the new graphs in the engine's pool, and in a pool of their own. The confirmatory runs
follow from it: a process takes its instrumented runs after all timed ones.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specdec_lib.graphs import GraphEngine  # noqa: E402
from specdec_lib.load import on_free_core  # noqa: E402
from specdec_lib.pairs import load_pair  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402
from specdec_lib.prompts import build_prompt  # noqa: E402

FAMILY, CONTEXTS, NEW, K, REPEATS = "dev-manual", (2048, 4096), 64, 4, 12
PHASES = ("as captured", "the same again", "after capturing the stages")


def main() -> int:
    if not torch.cuda.is_available():
        print("stage_capture needs a CUDA device", file=sys.stderr)
        return 2
    pair, rows = load_pair("smol", "cuda", "bf16"), []
    for context in CONTEXTS:
        prompt = build_prompt(FAMILY, context, pair.tokenizer, NEW)
        starts = [Prefilled.compute(model, prompt, NEW) for model in (pair.target, pair.draft)]
        for pool in ("the engine's", "its own"):
            rows += by_phases(pair, prompt, starts, context, pool)
            torch.cuda.empty_cache()
    document = {
        "measured": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "command": "python benchmarks/stage_capture.py", "pair": pair.name, "dtype": pair.dtype, "mode": "compiled",
        "family": FAMILY, "new_tokens": NEW, "k": K, "repeats": REPEATS, "rows": rows,
    }  # fmt: skip
    print(json.dumps(document))
    return 0


def by_phases(pair, prompt: list[int], starts: list[Prefilled], context: int, pool: str) -> list[dict]:
    """Device seconds of every run of both arms, phase by phase, by one engine."""
    engine = GraphEngine(pair.target, pair.draft, K, "compiled", context)
    target, draft = starts

    def arms() -> dict[str, float]:
        with on_free_core("cuda"):
            plain = engine.autoregressive(prompt, NEW, prefilled=target)
            fast = engine.speculative(prompt, NEW, prefilled=target, draft_prefilled=draft)
        return {"ar_s": plain.device_seconds, "spec_s": fast.device_seconds, "rounds_n": len(fast.rounds)}

    for _ in range(2):  # warm-up
        arms()
    rows = []
    for phase in PHASES:
        if phase == PHASES[-1]:
            if pool == "its own":
                engine.pool = torch.cuda.graph_pool_handle()
            engine.stages()
            arms()  # its prefills are loaded anew
        for repeat in range(1, REPEATS + 1):
            rows.append({"context_tokens": context, "pool": pool, "phase": phase, "repeat": repeat, **arms()})
    return rows


if __name__ == "__main__":
    sys.exit(main())
