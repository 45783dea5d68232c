"""Whose pace is it? A fixed Python loop, an eager AR run and a captured one, in turn, on one GPU.

    python benchmarks/host_pace.py > data/h200-engine/host-pace.json

The loop touches neither GPU nor memory: its time is the host's pace. Where eager runs follow it and captured ones do
not, the host sets the times of the eager mode, and no care inside the process makes them steadier. Shapes of Qwen2.5
with random weights: times are valid, texts mean nothing.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from specdec_lib.decoding import autoregressive  # noqa: E402
from specdec_lib.load import Snapshot, others_share  # noqa: E402
from specdec_lib.pairs import load_pair  # noqa: E402
from specdec_lib.prefilled import Prefilled  # noqa: E402

REPEATS, CONTEXT, NEW, STEPS = 60, 2048, 64, 400_000
MODES = ("eager", "graphs")


def loop() -> float:
    """Seconds that a fixed amount of Python takes."""
    start, total = time.perf_counter(), 0
    for i in range(STEPS):
        total += i * i
    return time.perf_counter() - start


def main() -> int:
    if not torch.cuda.is_available():
        print("host_pace needs a CUDA device: run it on a machine with one", file=sys.stderr)
        return 2
    target = load_pair("qwen2.5-shapes", "cuda", "bf16").target
    prompt = [(i * 7919) % 150_000 for i in range(CONTEXT - NEW)]
    start = Prefilled.compute(target, prompt, NEW)
    found: dict[str, list[float]] = {"loop": [], **{mode: [] for mode in MODES}}
    for mode in MODES * 2:  # warm-up, and capture
        autoregressive(target, prompt, NEW, prefilled=start, mode=mode)
    before, cpu = Snapshot.take(), time.process_time()
    began = time.perf_counter()
    for _ in range(REPEATS):
        found["loop"].append(loop())
        for mode in MODES:
            found[mode].append(autoregressive(target, prompt, NEW, prefilled=start, mode=mode).seconds)
    document = {
        "measured": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "command": "python benchmarks/host_pace.py", "weights": "random (synthetic): times only",
        "context": CONTEXT, "new_tokens": NEW, "seconds": found,
        "cpu_time_per_wall": (time.process_time() - cpu) / (time.perf_counter() - began),
        "others_cpu_share": others_share(before, Snapshot.take()),
    }  # fmt: skip
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
