"""Plain greedy decoding against transformers' ``generate``: same weights, threads and prompt, interleaved in one run.

    python benchmarks/decode_against_transformers.py [--context 2048] [--dtype bf16] [--repeats 5]

Decode only, in both: (T64 - T1) / 63, so prefill and set-up cancel. Prints each repeat, the medians, their ratio, and
the share of the measured read bandwidth that our step reaches. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median

import torch

from specdec_lib import autoregressive, load_pair
from specdec_lib.bandwidth import read_bandwidth
from specdec_lib.correctness import transformers_model
from specdec_lib.prefilled import Prefilled
from specdec_lib.prompts import build_prompt

NEW = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--family", default="dev-manual", help="a development family")
    given = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    pair = load_pair("smol", "cpu", given.dtype)
    reference = transformers_model("smol", pair.target.dtype)
    prompt = build_prompt(given.family, given.context, pair.tokenizer, NEW)
    ids = torch.tensor([prompt])
    state = Prefilled.compute(pair.target, prompt, NEW)

    def ours(new: int) -> float:
        return autoregressive(pair.target, prompt, new, prefilled=state).seconds

    def theirs(new: int) -> float:
        start = time.perf_counter()
        reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )
        return time.perf_counter() - start

    arms = {"ours": ours, "transformers": theirs}
    steps: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(given.repeats + 1):  # the first one warms up
        for name, arm in arms.items():
            step = (arm(NEW) - arm(1)) / (NEW - 1)
            if repeat:
                steps[name].append(step)
                print(f"repeat {repeat}  {name:13s} {step * 1e3:7.2f} ms/token", flush=True)
    bandwidth = read_bandwidth("cpu")
    step_bytes = pair.target.step_bytes + pair.target.kv_bytes_per_token * given.context
    best = {name: median(values) for name, values in steps.items()}
    ratios = [theirs / ours for ours, theirs in zip(*steps.values(), strict=True)]
    print(f"tokens/s: ours {1 / best['ours']:.1f}, transformers {1 / best['transformers']:.1f}")
    print(
        f"ratio of medians {best['transformers'] / best['ours']:.2f} (repeats {min(ratios):.2f} to {max(ratios):.2f})"
    )
    print(
        f"ours reads {step_bytes / 1e6:.0f} MB a step at {step_bytes / best['ours'] / 1e9:.1f} GB/s, "
        f"{step_bytes / best['ours'] / bandwidth:.0%} of the measured {bandwidth / 1e9:.1f} GB/s"
    )
    print(
        json.dumps(
            {
                "steps_s": steps,
                "read_bandwidth_bytes_per_s": bandwidth,
                "step_bytes": step_bytes,
                **vars(given),
            }
        )
    )


if __name__ == "__main__":
    main()
