"""The GPU engine against its limits: bandwidth, launches, memory, transformers. Qwen2.5 shapes with random weights.

    python benchmarks/gpu_engine.py OUTPUT_FOLDER [--parts steps,speedup,modes]

Writes gpu_engine.csv (every figure with its setting, n, spread, and the floor and aim it is held against) and
gpu_engine.json (provenance), and prints the table. Times are medians: by CUDA events where one captured graph is
timed, by the host clock where a whole run is. Random weights: times are valid, texts mean nothing, acceptance is
imposed (synthetic).
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from specdec_lib.acceptance import iid_passes
from specdec_lib.bandwidth import read_bandwidth
from specdec_lib.capture import Captured
from specdec_lib.decoding import autoregressive, speculative
from specdec_lib.graphs import GraphEngine
from specdec_lib.nvml import read_gpu
from specdec_lib.pairs import load_pair
from specdec_lib.paths import engine_hash
from specdec_lib.prefilled import Prefilled
from specdec_lib.proposers import DraftFree, ForcedDraft
from specdec_lib.roofline import fused_launches, kv_bytes, step_bytes, weight_bytes

NEW, GIB, MIB = 64, 1 << 30, 1 << 20
CONTEXTS = (2048, 8192)
ALPHAS = (0.77, 0.755, 0.735)  # what the published acceptances at k = 4 mean per proposal
TRACES = 8
PARTS = ("steps", "speedup", "modes", "kernels", "attention", "transformers", "memory")
LABELS = {"draft-free": "oracle"}  # all others are synthetic
ALONE = ("memory",)  # it caps the memory of its process


@dataclass
class Figure:
    """One line of the table. ``low`` and ``high``: smallest and largest of ``n``. ``verdict`` follows from the
    limits."""

    part: str
    figure: str
    setting: str
    value: float
    unit: str
    n: int = 1
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    aim: float | None = None
    verdict: str = ""


class Table:
    """The figures so far; printed as they come, so that a run that ends early has shown what it measured."""

    def __init__(self) -> None:
        self.rows: list[Figure] = []
        self.part = ""

    def add(
        self,
        figure: str,
        setting: str,
        value: float | list[float],
        unit: str,
        floor: float | None = None,
        aim: float | None = None,
        smaller: bool = False,
    ) -> float:
        """Add a value, or the median of several with their spread; returns it."""
        values = value if isinstance(value, list) else [value]
        row = Figure(self.part, figure, setting, median(values), unit, len(values), floor=floor, aim=aim)
        if len(values) > 1:
            row.low, row.high = min(values), max(values)
        if floor is not None and aim is not None:
            sign = -1 if smaller else 1
            row.verdict = (
                "aim"
                if sign * row.value >= sign * aim
                else "floor"
                if sign * row.value >= sign * floor
                else "missed"
            )
        self.rows.append(row)
        spread = f" [{row.low:.4g}, {row.high:.4g}] n={row.n}" if row.low is not None else ""
        limits = f"  floor {floor:g} aim {aim:g}: {row.verdict}" if row.verdict else ""
        print(
            f"{self.part:12s} {figure:46s} {setting:34s} {row.value:10.4g} {unit}{spread}{limits}", flush=True
        )
        return row.value


def event_times(work: Callable[[], Any], n: int = 15, inner: int = 5) -> list[float]:
    """Milliseconds of one ``work`` by CUDA events, ``n`` times the mean of ``inner``, after a warm-up."""
    for _ in range(3):
        work()
    times = []
    for _ in range(n):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / inner)
    return times


def host_times(work: Callable[[], Any], n: int = 5) -> list[float]:
    """Milliseconds of one ``work`` by the host clock, device idle before and after."""
    work()
    times = []
    for _ in range(n):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def copy_bandwidth() -> list[float]:
    """TB/s of a 2 GiB device-to-device copy of random numbers, bytes read plus written."""
    source = torch.randn(GIB // 2, device="cuda")
    target = torch.empty_like(source)
    size = 2 * source.numel() * source.element_size()
    return [size / ms / 1e9 for ms in event_times(lambda: target.copy_(source), inner=3)]


class Bench:
    """The loaded pair, prompts and prefills, and the table they fill."""

    def __init__(self, table: Table) -> None:
        self.table, self.gpu_before = table, read_gpu()
        self.pair = load_pair("qwen2.5-shapes", "cuda", "bf16")
        torch.cuda.empty_cache()
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, 150_000, (max(CONTEXTS),), generator=generator).tolist()
        self.prompts = {context: ids[: context - NEW] for context in CONTEXTS}
        self.starts: dict[tuple[int, str], Prefilled] = {}
        self.base = GraphEngine(self.pair.target, self.pair.draft, 4)

    def start(self, context: int, role: str = "target") -> Prefilled:
        """The prefill of a context, computed once."""
        if (context, role) not in self.starts:
            model = self.pair.target if role == "target" else self.pair.draft
            self.starts[context, role] = Prefilled.compute(model, self.prompts[context], NEW)
        return self.starts[context, role]

    def ar(self, engine: GraphEngine, context: int = 2048) -> Any:
        return engine.autoregressive(self.prompts[context], NEW, prefilled=self.start(context))

    def spec(self, engine: GraphEngine, script: Any, passes: Any, context: int = 2048) -> Any:
        return engine.speculative(
            self.prompts[context], NEW, script=script, passes=passes, prefilled=self.start(context),
            draft_prefilled=self.start(context, "draft") if engine.draft else None,
        )  # fmt: skip

    def captured(self, work: Callable[[], Any]) -> Captured:
        return Captured(lambda: (work(), None)[1], torch.cuda.graph_pool_handle())

    # ---------------------------------------------------------------- parts

    def steps(self) -> None:
        """Single steps: share of the bandwidth, verification and draft step over a plain step."""
        add, engine = self.table.add, self.base
        copied = add("copy bandwidth", "2 GiB, read + written", copy_bandwidth(), "TB/s")
        add("read bandwidth", "512 MiB summed", read_bandwidth("cuda") / 1e12, "TB/s")
        target, draft = self.pair.target.config, self.pair.draft.config
        plain: dict[int, float] = {}
        for context in CONTEXTS:
            setting, state = f"{context} tokens", engine.state
            self.ar(engine, context)
            self.spec(engine, [1] * NEW, [True] * NEW, context)  # both caches hold this context now
            state.begin(self.prompts[context], 0)  # replays stay where they are
            plain[context] = add("AR step, 1.5B", setting, event_times(engine.step.replay), "ms")
            moved = step_bytes(target, context)
            add("bytes of an AR step", setting, moved, "B")
            add(
                "AR step, share of copy bandwidth",
                setting,
                moved / plain[context] / 1e9 / copied,
                "",
                0.55,
                0.80,
            )
            runs = [self.ar(engine, context).seconds * 1e3 for _ in range(7)]
            token = add("AR run, per token", f"{setting}, 63 replays", [ms / (NEW - 1) for ms in runs], "ms")
            add("AR run, share of copy bandwidth", setting, moved / token / 1e9 / copied, "", 0.55, 0.80)
            state.begin(self.prompts[context], 0)
            assert engine.propose
            propose, verify, committed = engine.propose.step, engine.verify.step, state.committed
            for rows in (2, 5, 8) if context == CONTEXTS[0] else (5,):
                block = state.text[:rows].clone()
                graph = self.captured(lambda b=block, v=verify, at=committed: v(b, at, -1))
                limits = (1.18, 1.08) if rows == 5 else (None, None)
                ratios = [ms / plain[context] for ms in event_times(graph.replay)]
                add(
                    f"verification of {rows} rows over an AR step", setting, ratios, "", *limits, smaller=True
                )
            one, two = state.text[:1].clone(), state.text[:2].clone()
            for rows, block in ((1, one), (2, two)):
                graph = self.captured(lambda b=block, p=propose, at=committed: p(b, at, -2, last_only=True))
                ratios = [ms / plain[context] for ms in event_times(graph.replay)]
                limits = (0.55, 0.38) if rows == 1 else (None, None)
                named = f"draft step of {rows} row{'s' * (rows > 1)} over an AR step"
                add(named, setting, ratios, "", *limits, smaller=True)
            add("draft bytes over target bytes", setting, step_bytes(draft, context) / moved, "")
        extra = (kv_bytes(target, CONTEXTS[1]) - kv_bytes(target, CONTEXTS[0])) / copied / 1e9
        explained = plain[CONTEXTS[0]] + extra
        add(
            "AR step at 8K over what its KV bytes explain",
            "",
            plain[CONTEXTS[1]] / explained,
            "",
            1.10,
            1.10,
            True,
        )
        for name, config in (("1.5B", target), ("0.5B", draft)):
            add("launches per fused step", name, fused_launches(config), "")
            add("weight bytes per step", name, weight_bytes(config), "B")

    def speedup(self) -> None:
        """R against the AR of the same engine: draft-free, all-accept, imposed alpha, for k = 1..8 (synthetic)."""
        add, tokens = self.table.add, self.ar(self.base).tokens
        generator = torch.Generator().manual_seed(7)
        uniforms = [torch.rand(NEW, generator=generator).tolist() for _ in range(TRACES)]
        best: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        for k in range(1, 9):
            drafted = self.base if k == 4 else GraphEngine(self.pair.target, self.pair.draft, k)
            free = GraphEngine(self.pair.target, None, k)
            arms: dict[str, list[Callable[[], Any]]] = {
                "draft-free": [lambda e=free: self.spec(e, tokens, None)] * 3,
                "all-accept": [lambda e=drafted: self.spec(e, tokens, [True] * NEW)] * 3,
            }
            for alpha in ALPHAS:
                traces = [iid_passes(alpha, u) for u in uniforms]
                arms[f"alpha {alpha}"] = [lambda e=drafted, t=t: self.spec(e, tokens, t) for t in traces]
            for name, runs in arms.items():
                runs[0]()
                found, plain, rounds = [], [], []
                for run in runs:
                    plain.append(self.ar(self.base).seconds)
                    done = run()
                    assert done.tokens == tokens and done.surplus == 0
                    found.append(done.seconds)
                    rounds.append(len(done.rounds))
                ratio = geometric_mean([median(plain) / seconds for seconds in found])
                best[name] = max(best[name], (ratio, k))
                spread = [median(plain) / seconds for seconds in found]
                limits: tuple[float | None, float | None] = (None, None)
                if k == 4 and name in ("draft-free", "all-accept"):
                    limits = {"draft-free": (4.2, 4.6), "all-accept": (1.4, 1.9)}[name]
                label = f"R, {name} ({LABELS.get(name, 'synthetic')})"
                add(label, f"k = {k}, {median(rounds):g} rounds, 2048 tokens", ratio, "", *limits)
                self.table.rows[-1].n = len(found)
                self.table.rows[-1].low, self.table.rows[-1].high = min(spread), max(spread)
            if drafted is not self.base:
                del drafted
            del free, arms
            gc.collect()
            torch.cuda.empty_cache()
        for name, (ratio, k) in best.items():
            limits = (1.0, 1.25) if name.startswith("alpha") else (None, None)
            add(
                f"R at the best k, {name} ({LABELS.get(name, 'synthetic')})",
                f"k = {k}, 2048 tokens",
                ratio,
                "",
                *limits,
            )

    def modes(self) -> None:
        """The same run in every mode: plain decoding and draft-free, all-accept speculation, k = 4."""
        add, pair, prompt = self.table.add, self.pair, self.prompts[2048]
        start, draft_start = self.start(2048), self.start(2048, "draft")

        def eager_ar() -> Any:
            return autoregressive(pair.target, prompt, NEW, prefilled=start)

        def eager_spec(free: bool) -> Any:
            tokens = eager_ar().tokens
            proposer = (
                DraftFree(tokens, "cuda")
                if free
                else ForcedDraft(pair.draft, tokens, [True] * NEW, draft_start)
            )
            return speculative(pair.target, proposer, prompt, NEW, 4, prefilled=start)

        eager_ar()
        plain = add("AR, 64 tokens", "eager", [eager_ar().seconds * 1e3 for _ in range(3)], "ms")
        for name, free in (("draft-free", True), ("all-accept", False)):
            times = [eager_spec(free).seconds * 1e3 for _ in range(3)]
            add(
                f"R, {name} ({LABELS.get(name, 'synthetic')})",
                "eager, k = 4, own AR",
                [plain / ms for ms in times],
                "",
            )
        for mode in ("graphs", "compiled"):
            engine = self.base if mode == "compiled" else GraphEngine(pair.target, pair.draft, 4, mode)
            free_engine = GraphEngine(pair.target, None, 4, mode)
            tokens = self.ar(engine).tokens
            times = [self.ar(engine).seconds * 1e3 for _ in range(5)]
            plain = add("AR, 64 tokens", mode, times, "ms")
            for name, run in (
                ("draft-free", lambda e=free_engine, t=tokens: self.spec(e, t, None)),
                ("all-accept", lambda e=engine, t=tokens: self.spec(e, t, [True] * NEW)),
            ):
                run()
                times = [run().seconds * 1e3 for _ in range(5)]
                add(
                    f"R, {name} ({LABELS.get(name, 'synthetic')})",
                    f"{mode}, k = 4, own AR",
                    [plain / ms for ms in times],
                    "",
                )
            add("graph memory", f"{mode}, k = 4", engine.pool_bytes / MIB, "MiB")
            add("graphs captured", f"{mode}, k = 4", engine.graphs, "")
            add("warm-up, compilation and capture", f"{mode}, k = 4", engine.capture_seconds, "s")
            if engine is not self.base:
                del engine
            del free_engine
            gc.collect()
            torch.cuda.empty_cache()

    def kernels(self) -> None:
        """Time per kernel class of one step, one kernel at a time (overlap of launches switched off)."""
        from torch.profiler import ProfilerActivity, profile

        from specdec_lib.kernels import launch

        order = ("out", "gate_up", "down")  # the products that share a kernel
        launch.OVERLAP = False
        try:
            for role, model in (("1.5B", self.pair.target), ("0.5B", self.pair.draft)):
                decoder = self.base.verify if role == "1.5B" else self.base.propose
                assert decoder
                self.base.state.begin(self.prompts[2048], 0)
                ids = self.base.state.block[:1]
                graph = self.captured(lambda d=decoder, i=ids: d.step(i, self.base.state.committed, -1))
                graph.replay()
                with profile(activities=[ProfilerActivity.CUDA]) as trace:
                    for _ in range(5):
                        graph.replay()
                    torch.cuda.synchronize()
                seen = sorted(
                    (e.time_range.start, e.name, e.time_range.elapsed_us())
                    for e in trace.events() or []
                    if "kernel" in e.name
                )
                classes: dict[str, float] = defaultdict(float)
                at = 0
                for _, name, took in seen:
                    if name == "matvec_kernel":
                        classes[order[at % 3]] += took / 5
                        at += 1
                    else:
                        classes[name.removesuffix("_kernel")] += took / 5
                for name, took in classes.items():
                    self.table.add("kernel time per step, no overlap", f"{role}, {name}", took, "us")
                del model
        finally:
            launch.OVERLAP = True

    def memory(self) -> None:
        """Both models, both caches at 8K and all graphs inside an 8 GiB cap."""
        total = torch.cuda.get_device_properties(0).total_memory
        del self.base
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(8 * GIB / total)
        torch.cuda.reset_peak_memory_stats()
        engine = GraphEngine(self.pair.target, self.pair.draft, 4)
        tokens = self.ar(engine, 8192).tokens
        done = self.spec(engine, tokens, [True] * NEW, 8192)
        assert done.tokens == tokens
        peak = torch.cuda.max_memory_reserved() / GIB
        self.table.add(
            "peak reserved by PyTorch under the cap, 8K", "8 GiB cap, k = 4", peak, "GiB", 8, 8, smaller=True
        )
        state, before = read_gpu(), self.gpu_before
        if state and before:
            taken = (state.memory_used_bytes - before.memory_used_bytes) / GIB
            self.table.add("memory this process takes on the GPU (NVML)", "8 GiB cap, k = 4", taken, "GiB")
        self.table.add(
            "graph memory", "8 GiB cap, k = 4", engine.pool_bytes / MIB, "MiB", 256, 256, smaller=True
        )

    def attention(self) -> None:
        """One step's attention over all layers: ours, and PyTorch's two forms that take the length as a mask."""
        import torch.nn.functional as F
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        from specdec_lib.kernels.attention import attend, workspace

        c, state, cache = self.pair.target.config, self.base.state, self.base.target_cache
        work = workspace(c.heads, c.head_dim, cache.capacity, self.pair.target.device)
        flexible: Any = torch.compile(flex_attention, dynamic=False)
        for context in CONTEXTS:
            state.begin(self.prompts[context], 0)
            for rows in (1, 5):
                q = torch.randn(16, c.heads * c.head_dim, device="cuda", dtype=torch.bfloat16)
                out = torch.empty_like(q)
                last = context - NEW - 1
                heads = q[:rows].view(1, rows, c.heads, c.head_dim).transpose(1, 2)
                slots = torch.arange(cache.capacity, device="cuda")
                seen = slots <= last + torch.arange(rows, device="cuda").unsqueeze(1)
                blocks = create_block_mask(
                    lambda b, h, i, j, last=last: j <= last + i,
                    None,
                    None,
                    rows,
                    cache.capacity,
                    device="cuda",
                )

                def ours(rows: int = rows, q: Any = q, out: Any = out) -> None:
                    for keys, values in zip(cache.keys, cache.values, strict=True):
                        attend(q, keys, values, state.committed, -1, out, work, rows)

                def masked(heads: Any = heads, seen: Any = seen) -> None:
                    for keys, values in zip(cache.keys, cache.values, strict=True):
                        F.scaled_dot_product_attention(
                            heads, keys.unsqueeze(0), values.unsqueeze(0), attn_mask=seen, enable_gqa=True
                        )

                def flex(heads: Any = heads, blocks: Any = blocks) -> None:
                    for keys, values in zip(cache.keys, cache.values, strict=True):
                        flexible(
                            heads, keys.unsqueeze(0), values.unsqueeze(0), block_mask=blocks, enable_gqa=True
                        )

                for name, run in (
                    ("ours", ours),
                    ("SDPA with a mask", masked),
                    ("FlexAttention, fixed length", flex),
                ):
                    with torch.inference_mode():
                        times = event_times(self.captured(run).replay)
                    setting = f"{name}, M = {rows}, {context} tokens"
                    self.table.add(
                        "attention per layer", setting, [ms / c.layers * 1e3 for ms in times], "us"
                    )

    def transformers(self) -> None:
        """Against transformers: static cache + compile for AR, assisted generation with a copy of the target."""
        import copy

        import transformers

        add, c = self.table.add, self.pair.target.config
        config = transformers.Qwen2Config(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.intermediate, num_hidden_layers=c.layers,
            num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, max_position_embeddings=c.max_positions,
            rms_norm_eps=c.eps, tie_word_embeddings=True, rope_theta=c.rope_theta,
        )  # fmt: skip
        with torch.device("cuda"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        ids = torch.tensor([self.prompts[2048]], device="cuda")

        def generate(new: int, **settings: Any) -> float:
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.inference_mode():
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                    pad_token_id=0, **settings,
                )  # fmt: skip
            torch.cuda.synchronize()
            return (time.perf_counter() - start) * 1e3

        ours = add(
            "AR, 63 tokens after the first",
            "ours, compiled",
            [self.ar(self.base).seconds * 1e3 for _ in range(7)],
            "ms",
        )
        theirs: dict[str, float] = {}
        modes: dict[str, tuple[int, dict[str, Any]]] = {
            "dynamic cache": (3, {}), "static cache + compile": (7, {"cache_implementation": "static"}),
        }  # fmt: skip
        for name, (n, settings) in modes.items():
            generate(NEW, **settings)
            one = median([generate(1, **settings) for _ in range(3)])
            times = [generate(NEW, **settings) - one for _ in range(n + 1)][1:]
            theirs[name] = add("AR, 63 tokens after the first", f"transformers, {name}", times, "ms")
        add("AR over transformers' best mode", "2048 tokens", min(theirs.values()) / ours, "x", 2, 3)
        twin = copy.deepcopy(model)
        twin.generation_config.num_assistant_tokens = 4
        twin.generation_config.num_assistant_tokens_schedule = "constant"
        twin.generation_config.assistant_confidence_threshold = 0.0
        generate(NEW, assistant_model=twin)
        one = median([generate(1) for _ in range(3)])
        assisted = add(
            "speculative, draft = copy of the target, k = 4", "transformers, assisted",
            [generate(NEW, assistant_model=twin) - one for _ in range(3)], "ms",
        )  # fmt: skip
        engine = GraphEngine(self.pair.target, self.pair.target, 4)
        start = self.start(2048)
        runs = [
            engine.speculative(self.prompts[2048], NEW, prefilled=start, draft_prefilled=start)
            for _ in range(6)
        ][1:]
        add("acceptance", "ours, draft = copy of the target, k = 4", runs[0].acceptance, "")
        mine = add(
            "speculative, draft = copy of the target, k = 4",
            "ours, compiled",
            [r.seconds * 1e3 for r in runs],
            "ms",
        )
        add(
            "speculative over transformers' assisted",
            "draft = copy of the target",
            assisted / mine,
            "x",
            5,
            10,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--commit", default="", help="the commit measured, where there is no git checkout")
    given = parser.parse_args()
    wanted = given.parts.split(",")
    given.folder.mkdir(parents=True, exist_ok=True)
    run = Run(given.folder, given.parts, given.commit)
    bench: Bench | None = None
    for part in sorted(wanted, key=lambda name: name in ALONE):  # stable: those that cap the memory come last
        start = time.perf_counter()
        run.table.part = part
        try:
            if part in ALONE and len(wanted) > 1:
                if bench:
                    bench = None
                    gc.collect()
                    torch.cuda.empty_cache()
                run.apart(part)
            else:
                bench = bench or Bench(run.table)
                getattr(bench, part)()
            run.ended[part] = f"complete, {time.perf_counter() - start:.0f} s"
        except (
            Exception
        ) as fault:  # a part that fails is an outcome, recorded with what it measured until then
            run.ended[part] = f"{type(fault).__name__}: {fault}"
            traceback.print_exc()
        run.save(bench)
    print(json.dumps(run.provenance))
    sys.exit(any(not end.startswith("complete") for end in run.ended.values()))


class Run:
    """A run's table, outcome per part and provenance; saved after every part."""

    def __init__(self, folder: Path, parts: str, given_commit: str) -> None:
        self.folder, self.table, self.started = folder, Table(), time.perf_counter()
        self.ended: dict[str, str] = {}
        gpu = read_gpu()
        self.provenance: dict[str, Any] = {
            "command": f"python benchmarks/gpu_engine.py FOLDER --parts {parts}",
            "date": datetime.now(UTC).date().isoformat(), "commit": given_commit or commit(), "engine_hash":
            engine_hash(), "pair": "qwen2.5-shapes (random weights, synthetic)", "dtype": "bf16", "new_tokens": NEW,
            "python": sys.version.split()[0], "packages": versions(), "cuda": torch.version.cuda,
            "gpu_before": gpu and gpu.as_dict(), "parts": self.ended,
        }  # fmt: skip

    def apart(self, part: str) -> None:
        """Run a part in a process of its own and take over its figures."""
        folder = self.folder / part
        done = subprocess.run([sys.executable, __file__, str(folder), "--parts", part], check=False)
        if (folder / "gpu_engine.csv").is_file():
            with (folder / "gpu_engine.csv").open() as file:
                self.table.rows += [figure(row) for row in csv.DictReader(file)]
            for file in folder.glob("*"):
                file.unlink()
            folder.rmdir()
        if done.returncode:
            raise RuntimeError(f"{part} ended with exit status {done.returncode}")

    def save(self, bench: Bench | None) -> None:
        with (self.folder / "gpu_engine.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Figure)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in self.table.rows)
        gpu = read_gpu()
        self.provenance |= {
            "seconds": round(time.perf_counter() - self.started, 1),
            "gpu_after": gpu and gpu.as_dict(),
        }
        if bench and hasattr(bench, "base"):
            engine: Any = bench.base
            self.provenance["tiles"] = {
                role: {name: list(tile) for name, tile in decoder.tiles.items()}
                for role, decoder in (("target", engine.verify), ("draft", engine.propose))
            }
        (self.folder / "gpu_engine.json").write_text(json.dumps(self.provenance, indent=1) + "\n")


def figure(row: dict[str, str]) -> Figure:
    """A row of the file as a ``Figure``."""
    texts = ("part", "figure", "setting", "unit", "verdict")
    values: dict[str, Any] = {k: v if k in texts else (float(v) if v else None) for k, v in row.items()}
    return Figure(**values | {"n": int(values["n"])})


def commit() -> str:
    """The checkout's commit, or "unknown"."""
    here = Path(__file__).parent
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("torch", "triton", "transformers")}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
