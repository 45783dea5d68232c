"""Inside a job's process: load the pair, warm up, run what the spec says, write one file.

``python -m specdec_lib.worker`` reads {"spec", "path", "threads", "parent"} from standard input, one order per line. A
new kind of job is one function and one line in ``KINDS``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import bench
from .acceptance import Acceptance, Imposed
from .bandwidth import read_bandwidth
from .calibrate import auto_dtype, parse_device
from .decoding import autoregressive, speculative
from .errors import OutOfDeviceMemory
from .files import canonical_json, sha256_text
from .generation import Generation
from .jobs import DONE, write_job
from .load import Snapshot, cpu_mhz, on_free_core, others_share, peak_rss_bytes, seen_share
from .model import DecoderModel
from .nvml import gpu_columns
from .pairs import Pair
from .prefilled import Prefilled
from .prompts import build_prompt
from .proposers import DraftModel, ForcedDraft, Proposer

NGRAM = 4
WARMUP_TOKENS = 256  # of a prompt, before its prefill is timed
WARM_TOKENS = 16  # of each arm on every further family: its buffers are touched, all else is warm


def calibrate(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """What holds for a whole profile on this machine: dtype, read bandwidth, bytes a step of each model reads."""
    device = parse_device(None if spec["device"] == "auto" else spec["device"])
    dtype, timings = auto_dtype(device) if spec["dtype"] == "auto" else (spec["dtype"], {})
    pair = bench.loaded_pair(spec["pair"], str(device), dtype)
    models = {
        role: {
            "step_bytes": model.step_bytes,
            "kv_bytes_per_token": model.kv_bytes_per_token,
            "layers": model.config.layers,
        }
        for role, model in (("target", pair.target), ("draft", pair.draft))
    }
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": dtype,
        "calibration": timings,
        "read_bandwidth_bytes_per_s": read_bandwidth(device),
        "torch_threads": torch.get_num_threads(),
        "projection": pair.target.head.form,
        "models": models,
    }


def prefill_pair(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Both models' prefill of one (family, context), stored for the jobs that decode from it."""
    pair = bench.pair_of(spec)
    family = spec["families"][0]
    prompt = build_prompt(family, spec["context"], pair.tokenizer, spec["new_tokens"])
    seconds = {}
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        done = _timed_prefill(spec, model, prompt)
        done.save(store / f"{family}-{spec['context']}-{role}.safetensors")
        seconds[role] = done.seconds
    return {
        "prompt_sha256": sha256_text(canonical_json(prompt)),
        "prompt_tokens": len(prompt),
        "prefill_s": seconds,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def _timed_prefill(spec: dict[str, Any], model: DecoderModel, prompt: list[int]) -> Prefilled:
    # some of the prompt first: pages are touched and kernels chosen before the clock starts
    Prefilled.compute(model, prompt[:WARMUP_TOKENS], 1)
    return Prefilled.compute(model, prompt, spec["new_tokens"], spec["prefill_chunk"])


def decode(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Timed runs of one process, in the planned order; then, of SpecDec, one instrumented run per family.

    The prefills are the stored ones that several processes share, or made here when this process has the cell alone.
    Where the design repeats disturbed runs, one that something else slowed is kept aside and measured again: what
    decides is never the run's own time.
    """
    pair = bench.pair_of(spec)
    again = spec.get("repeat_disturbed", {"times": 0, "limit": float("inf")})
    families = list(dict.fromkeys(run["family"] for run in spec["runs"]))
    plans = {family: [run for run in spec["runs"] if run["family"] == family] for family in families}
    rows, aside, stages, outputs = [], [], [], {}
    for family, planned in plans.items():
        arms = list(dict.fromkeys(run["arm"] for run in planned))
        run_arm = _arms(spec, pair, store, family, needs_draft="spec" in arms)
        # One order in both blocks, speculation first: in the captured modes its engine has AR's graph too, so both
        # processes capture the same graphs at the same addresses.
        for arm in sorted(arms, reverse=True) * spec["warmup_repeats"]:
            run_arm(arm, False, None if family == families[0] else min(WARM_TOKENS, spec["new_tokens"]))
        for run in planned:
            for left in reversed(range(again["times"] + 1)):
                with on_free_core(pair.device):
                    before = Snapshot.take()
                    done = run_arm(run["arm"], False)
                    share = others_share(before, Snapshot.take())
                load = {"others_cpu_share": share, "cpu_mhz": cpu_mhz()}
                row = {**run, **_row(done, pair), **load, **gpu_columns(pair.device, done.device_seconds)}
                if not left or not _slowed(row, again["limit"], pair.device):
                    break
                aside.append(row)
            rows.append(row | {"set_aside_n": again["times"] - left} if again["times"] else row)
            outputs[f"{family} {run['arm']}"] = done.tokens
    # After every timed run: in the captured modes these capture more graphs, and what is replayed in the process from
    # then on takes up to 3 % more or less time, in either arm. Only one of the two blocks would have that.
    for family, planned in plans.items():
        if not any(run["arm"] == "spec" and run["repeat"] == 1 for run in planned):  # AR has but one stage
            continue
        if len(families) > 1:  # the arms at hand are the last family's
            run_arm = _arms(spec, pair, store, family, needs_draft=True)
            run_arm("spec", False, min(WARM_TOKENS, spec["new_tokens"]))
        with on_free_core(pair.device):
            done = run_arm("spec", True)
        stages += [
            {"family": family, "arm": "spec", "stage": stage, "stage_s": s, "total_s": done.seconds}
            for stage, s in done.stage_seconds.items()
        ]
    machine = {"peak_rss_bytes": peak_rss_bytes(), "threads": torch.get_num_threads()}
    return {"rows": rows, "aside": aside, "stages": stages, "tokens": outputs, "machine": machine}


def _slowed(row: dict[str, Any], limit: float, device: str) -> bool:
    """Whether something else slowed a run, by what was read beside it: others' CPU time, the GPU's own brake, another
    process on the GPU."""
    return (
        seen_share(row["others_cpu_share"], row["decode_s"], device) > limit
        or bool(row.get("throttled"))
        or (row.get("other_gpu_processes_n") or 0) > 0
    )


def _arms(
    spec: dict[str, Any], pair: Pair, store: Path, family: str, needs_draft: bool
) -> Callable[..., Generation]:
    """A function that runs one arm on one family, from prefills that are rewound every time: of the arm, whether it is
    instrumented, and its tokens where they are fewer than the design's."""
    whole = spec["new_tokens"]
    if family in spec["prefill_s"]:
        cell = bench.Cell(spec, pair, store, family)
        prompt, target = cell.prompt, cell.target
        draft = cell.prefilled("draft", pair.draft) if needs_draft else None
    else:
        prompt = build_prompt(family, spec["context"], pair.tokenizer, whole)
        target = _timed_prefill(spec, pair.target, prompt)
        draft = _timed_prefill(spec, pair.draft, prompt) if needs_draft else None
    mode, passes = spec.get("mode", "eager"), spec.get("passes", {}).get(family)
    proposer: Proposer | None = DraftModel(pair.draft, draft) if draft else None
    rule: Acceptance | None = None
    if draft and passes:  # scripted acceptance (synthetic): the draft is paid for, a recorded trace decides
        text = autoregressive(pair.target, prompt, whole, prefilled=target, mode=mode).tokens
        proposer, rule = ForcedDraft(pair.draft, text, passes, draft), Imposed(text, passes)

    def run(arm: str, instrument: bool, tokens: int | None = None) -> Generation:
        new = tokens or whole
        if proposer is None or arm != "spec":
            return autoregressive(
                pair.target, prompt, new, prefilled=target, instrument=instrument, mode=mode
            )
        return speculative(
            pair.target, proposer, prompt, new, spec["k"], spec["bonus"], rule, spec["formulation"],
            prefilled=target, instrument=instrument, mode=mode,
        )  # fmt: skip

    return run


def _row(done: Generation, pair: Pair) -> dict[str, Any]:
    return {
        "new_tokens": len(done.tokens),
        "decode_s": done.seconds,
        "prefill_s": done.prefill_seconds,
        "draft_prefill_s": done.draft_prefill_seconds,
        "rounds_n": len(done.rounds),
        "proposed_tokens": done.proposed,
        "accepted_tokens": done.accepted,
        "rejections_n": done.rejections,
        "target_calls_n": done.target_calls,
        "draft_calls_n": done.draft_calls,
        "host_reads_n": done.host_reads,
        "tokens_sha256": sha256_text(canonical_json(done.tokens)),
        "natural_end": not set(done.tokens).isdisjoint(pair.tokenizer.eos_ids),
        "repeated_ngram_share": repeated_share(done.tokens),
    }


def repeated_share(tokens: list[int]) -> float:
    """Share of the output's 4-grams that occurred in it before; near 1 the model loops."""
    grams = [tuple(tokens[i : i + NGRAM]) for i in range(len(tokens) - NGRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def graphs(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """What capturing costs and gives; only on a GPU, so its imports stay out of every other job."""
    from . import graph_phase

    return graph_phase.measure(spec, bench.pair_of(spec))


KINDS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "calibrate": calibrate,
    "prefill": prefill_pair,
    "decode": decode,
    "trace": bench.trace,
    "mechanism": bench.mechanism,
    "costs": bench.costs,
    "rounds": bench.rounds,
    "numerics": bench.numerics,
    "graphs": graphs,
}


def main() -> None:
    """Work off the orders on standard input, one per line; a process gets more than one only where isolation allows."""
    if sys.platform == "linux":  # a parent that is killed takes its measuring process along
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    for line in sys.stdin:
        order = json.loads(line)
        # killed while this process was starting, so no signal will come (Windows keeps the number)
        if sys.platform != "win32" and os.getppid() != order["parent"]:
            sys.exit("the process that ordered this job is gone")
        torch.set_num_threads(order["threads"])
        spec, path = order["spec"], Path(order["path"])
        write_job(path, spec, perform(spec, path.parent.parent / ".prefill"))
        print(DONE, flush=True)


def perform(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """The result of one job. Too little memory on the GPU is an outcome like any other, and is recorded."""
    if cap := spec.get("memory_cap_bytes"):
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole))
    try:
        return KINDS[spec["kind"]](spec, store)
    except (torch.cuda.OutOfMemoryError, OutOfDeviceMemory) as full:
        return {"out_of_memory": str(full).splitlines()[0]}


if __name__ == "__main__":
    main()
