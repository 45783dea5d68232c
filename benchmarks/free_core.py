"""What it helps an eager run on a GPU to choose its core: on any core, on the fastest by a probe, on one for all runs.

    python benchmarks/free_core.py > data/h200-engine/free-core.json

First a fixed loop on every core in turn, many times: where cores differ, and for how long. Then eager AR three ways, in
turn. Shapes of Qwen2.5 with random weights: times are valid, texts mean nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from specdec_lib.decoding import autoregressive  # noqa: E402
from specdec_lib.load import on_free_core  # noqa: E402
from specdec_lib.pairs import load_pair  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402

REPEATS, ROUNDS, CONTEXT, NEW, STEPS = 30, 40, 2048, 64, 60_000


def loop() -> float:
    """Seconds that a fixed amount of Python takes."""
    start, total = time.perf_counter(), 0
    for i in range(STEPS):
        total += i * i
    return time.perf_counter() - start


def on(cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)


def main() -> int:
    if not torch.cuda.is_available() or not hasattr(os, "sched_setaffinity"):
        print(
            "free_core needs a CUDA device and a system that lets a process choose its core", file=sys.stderr
        )
        return 2
    every = os.sched_getaffinity(0)
    paces = []
    for _ in range(ROUNDS):
        row = []
        for core in sorted(every):
            on({core})
            row.append(loop())
        paces.append(row)
    on(every)
    target = load_pair("qwen2.5-shapes", "cuda", "bf16").target
    prompt = [(i * 7919) % 150_000 for i in range(CONTEXT - NEW)]
    start = Prefilled.compute(target, prompt, NEW)

    def run() -> float:
        return autoregressive(target, prompt, NEW, prefilled=start).seconds

    for _ in range(3):  # warm-up
        run()
    with on_free_core("cuda"):
        fixed = os.sched_getaffinity(0)
    found: dict[str, list[float]] = {"any core": [], "the fastest core": [], "one core for all": []}
    for _ in range(REPEATS):
        found["any core"].append(run())
        with on_free_core("cuda"):
            found["the fastest core"].append(run())
        on(fixed)
        found["one core for all"].append(run())
        on(every)
    document = {
        "measured": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "command": "python benchmarks/free_core.py", "weights": "random (synthetic): times only",
        "context": CONTEXT, "new_tokens": NEW, "core_paces_s": paces, "seconds": found,
    }  # fmt: skip
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
