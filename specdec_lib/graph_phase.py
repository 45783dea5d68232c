"""The job of the phase "graphs": what capturing gives, and what it costs in memory, per position and without.

On a CPU only the position-independent rounds run, with functions in place of graphs: their counts, and no times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import geometric_mean, median
from typing import Any

import torch

from .acceptance import iid_passes
from .capture import Direct
from .decoding import autoregressive
from .errors import OutOfDeviceMemory
from .graphs import GraphEngine, GraphGeneration
from .load import on_free_core, peak_rss_bytes
from .modes import MODES
from .nvml import read_gpu
from .pairs import Pair
from .per_position import DRAFT, KINDS, VERIFY, capture_rounds, chain, clear, memory_cap, placed, verify
from .prefilled import Prefilled
from .timing import now

GIB, MIB = 1 << 30, 1 << 20
RUNS, EAGER_RUNS, TRACES, PAIRS = 15, 7, 6, 100
STAGES = {DRAFT: "draft", VERIFY: "verify"}
IN_STEPS = "draft forward in plain steps"


class Rows(list[dict[str, Any]]):
    """Rows of the table "graphs", as far as a job fills them; ``part`` is the one under way."""

    part = ""

    def put(
        self,
        quantity: str,
        unit: str,
        values: float | list[float],
        *,
        mode: str,
        variant: str = "captured",
        context: int | None = None,
        k: int | None = None,
        label: str = "real",
        outcome: str = "measured",
        centre: Callable[[list[float]], float] = median,
    ) -> None:
        """Add a value, or the centre of several with the smallest and the largest; no values: none was reached."""
        known = [float(value) for value in (values if isinstance(values, list) else [values])]
        self.append(
            {
                "part": self.part, "quantity": quantity, "unit": unit, "mode": mode, "variant": variant,
                "context_tokens": context, "k": k, "label": label, "outcome": outcome, "n": len(known),
                "value": centre(known) if known else None,
                "low": min(known, default=None), "high": max(known, default=None),
            }
        )  # fmt: skip


def measure(spec: dict[str, Any], pair: Pair) -> dict[str, Any]:
    """All parts, each ending where memory does: out of memory is a row, not a failure.

    ``spec``: ``contexts`` and ``new_tokens``; ``k``, and ``ks`` for R; ``alphas`` to impose; ``cap_bytes``, the memory
    of the published GPU.
    """
    rows, before = Rows(), read_gpu()
    if pair.target.device.type != "cuda":
        with _part(rows, "position-independent"):
            _independent(rows, pair, spec, "graphs", spec["k"])
        return {"rows": rows, "machine": {"peak_rss_bytes": peak_rss_bytes()}}
    clear()
    with _part(rows, "steps"):
        _steps(rows, pair, spec)
    with _part(rows, "local"):
        _local(rows, pair, spec)
    with memory_cap(spec["cap_bytes"], pair.target.device):
        for context in spec["contexts"]:
            with _part(rows, "per position"):
                _per_position(rows, pair, spec, context)
        for mode in MODES:
            for k in spec["ks"] if mode == "compiled" else [spec["k"]]:
                with _part(rows, "position-independent"):
                    _independent(rows, pair, spec, mode, k)
    after = read_gpu()
    gpu = {"before": before and before.as_dict(), "after": after and after.as_dict()}
    return {"rows": rows, "machine": {"peak_rss_bytes": peak_rss_bytes()}, "gpu": gpu}


@contextmanager
def _part(rows: Rows, name: str) -> Iterator[None]:
    rows.part = name
    try:
        yield
    except (torch.cuda.OutOfMemoryError, OutOfDeviceMemory) as full:
        rows.put(
            "ended early", "none", [], mode="any", variant=str(full).splitlines()[0], outcome="out of memory"
        )
    if torch.cuda.is_available():
        clear()


@torch.inference_mode()
def _steps(rows: Rows, pair: Pair, spec: dict[str, Any]) -> None:
    """A draft forward in plain steps of the target, eager, by pairs within milliseconds: a host whose pace drifts moves
    both of a pair alike. The device is idle before and after each, as where the host cannot keep it busy."""
    device = pair.target.device
    token = torch.zeros(1, dtype=torch.int64, device=device)
    for context in spec["contexts"]:
        length = context - spec["new_tokens"]
        target, draft = (placed(model.new_cache(context), length) for model in (pair.target, pair.draft))
        works = (
            lambda c=target: verify(pair.target, c, token),
            lambda c=draft: chain(pair.draft, c, token, 1),
        )
        with on_free_core(device):
            timed = [
                [_seconds(work, device, 1, warm=not pair_n)[0] for work in works] for pair_n in range(PAIRS)
            ]
        steps, forwards = ([both[i] for both in timed] for i in range(2))
        given: dict[str, Any] = {"mode": "eager", "variant": "eager", "context": context}
        rows.put("plain step", "s", steps, **given)
        rows.put("draft forward", "s", forwards, **given)
        rows.put(IN_STEPS, "ratio", [f / s for s, f in timed], **given)


@torch.inference_mode()
def _local(rows: Rows, pair: Pair, spec: dict[str, Any]) -> None:
    """Draft chain and verification of one round, eager against captured, by the host's clock with the device idle
    before and after."""
    k, device = spec["k"], pair.target.device
    block = torch.zeros(k + 1, dtype=torch.int64, device=device)
    wide = GraphEngine(pair.target, pair.draft, k, "compiled", max(spec["contexts"]))
    rows.put("warm-up, compilation and capture", "s", wide.capture_seconds, mode="compiled", k=k)
    for context in spec["contexts"]:
        length = context - spec["new_tokens"]
        draft, target = (
            placed(model.new_cache(context + k + 1), length) for model in (pair.draft, pair.target)
        )
        eager = {
            DRAFT: lambda c=draft: chain(pair.draft, c, block[:2], k),
            VERIFY: lambda c=target: verify(pair.target, c, block),
        }
        given: dict[str, Any] = {"context": context, "k": k}
        base = {}
        for name, work in eager.items():
            times = _seconds(work, device, EAGER_RUNS)
            base[name] = median(times)
            rows.put(name, "s", times, mode="eager", variant="eager", **given)
        # A plain graph's cost follows its capacity, so it gets the one it needs; the fused kernels read the length.
        for engine in (GraphEngine(pair.target, pair.draft, k, "graphs", context), wide):
            stages = engine.stages()
            engine.state.begin([0] * length, 0)  # a run that is over: replays stay where they are
            for name, stage in STAGES.items():
                times = _seconds(stages[stage].replay, device, RUNS)
                rows.put(name, "s", times, mode=engine.mode, **given)
                ratios = [base[name] / seconds for seconds in times]
                rows.put(f"{name}, speed-up over eager", "ratio", ratios, mode=engine.mode, **given)


def _per_position(rows: Rows, pair: Pair, spec: dict[str, Any], context: int) -> None:
    """One graph per round and position under the cap, for every kind of cache."""
    k, new = spec["k"], spec["new_tokens"]
    rounds = -(-new // (k + 1))
    for kind in KINDS:
        found = capture_rounds(pair, kind, context - new, rounds, k)
        outcome = "out of memory" if found.exhausted else "measured"
        given: dict[str, Any] = {
            "mode": "graphs", "variant": kind.name, "context": context, "k": k, "outcome": outcome
        }  # fmt: skip
        rows.put("graphs needed", "count", 2 * rounds, **given)
        rows.put("graphs captured", "count", found.captured, **given)
        for name, sizes in found.sizes.items():
            rows.put(f"pool of a graph, {name}", "GiB", [size / GIB for size in sizes], **given)
        if found.captured:
            fit = found.captured if found.exhausted else int((spec["cap_bytes"] - found.base) / found.mean)
            rows.put("graphs that fit under the cap", "count", fit, **given)
            rows.put("all graphs together", "GiB", 2 * rounds * found.mean / GIB, **given)
        if found.gpu_used is not None:
            rows.put("whole card in use (NVML)", "GiB", found.gpu_used / GIB, **given)


def _independent(rows: Rows, pair: Pair, spec: dict[str, Any], mode: str, k: int) -> None:
    """Every context from the same graphs: what they take, how often they are replayed, and R on imposed acceptance."""
    cuda, most = pair.target.device.type == "cuda", max(spec["contexts"])
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    engine = GraphEngine(pair.target, pair.draft, k, mode, most, None if cuda else Direct)
    given: dict[str, Any] = {"mode": mode, "k": k}
    if not cuda:
        given |= {"variant": "functions in place of graphs", "outcome": "logic only"}
    for context in spec["contexts"]:
        _one_context(rows, pair, spec, engine, context, given)
    rows.put("graphs captured", "count", engine.graphs, **given)
    if cuda:
        rows.put("pool of all graphs", "MiB", engine.pool_bytes / MIB, **given)
        rows.put("warm-up, compilation and capture", "s", engine.capture_seconds, **given)
        rows.put(
            "peak reserved, both models, all caches", "GiB", torch.cuda.max_memory_reserved() / GIB, **given
        )


def _one_context(
    rows: Rows, pair: Pair, spec: dict[str, Any], engine: GraphEngine, context: int, given: dict[str, Any]
) -> None:
    new, given = spec["new_tokens"], given | {"context": context}
    generator = torch.Generator().manual_seed(context)
    prompt = torch.randint(0, pair.target.config.vocab, (context - new,), generator=generator).tolist()
    start, draft_start = (Prefilled.compute(model, prompt, new) for model in (pair.target, pair.draft))

    def ar() -> GraphGeneration:
        return engine.autoregressive(prompt, new, prefilled=start)

    text = ar().tokens

    def run(passes: list[bool]) -> GraphGeneration:
        return engine.speculative(
            prompt, new, script=text, passes=passes, prefilled=start, draft_prefilled=draft_start
        )

    done = run([True] * new)
    for quantity, value in (
        ("rounds", len(done.rounds)), ("replays", done.replays), ("replays in vain", done.surplus),
        ("host reads", done.host_reads), ("token copies to the device", done.host_copies),
    ):  # fmt: skip
        rows.put(f"{quantity}, all-accept", "count", value, **given, label="synthetic")
    if pair.dtype == "fp32":  # in BF16 a near-tie may fall either way, and the texts part there
        eager = autoregressive(pair.target, prompt, new, prefilled=start).tokens
        same = sum(a == b for a, b in zip(text, eager, strict=True)) / new
        rows.put("plain output equal to eager's", "share", same, **given)
    if given.get("outcome"):
        return
    uniforms = torch.rand(TRACES, new, generator=generator).tolist()
    arms = {"all-accept": [[True] * new] * TRACES}
    arms |= {f"alpha {alpha:g}": [iid_passes(alpha, u) for u in uniforms] for alpha in spec["alphas"]}
    times = []
    for name, traces in arms.items():
        ratios = []
        for passes in traces:
            times.append(ar().seconds)
            ratios.append(times[-1] / run(passes).seconds)
        shown: dict[str, Any] = given | {"variant": name, "label": "synthetic"}
        rows.put("R", "ratio", ratios, **shown, centre=geometric_mean)
    rows.put("plain decoding", "s", times, **given)


def _seconds(work: Callable[[], Any], device: torch.device, n: int, warm: bool = True) -> list[float]:
    """Host seconds of ``n`` runs, the device idle before and after each. ``warm``: after one that is not counted."""
    if warm:
        work()
    times = []
    for _ in range(n):
        start = now(device)
        work()
        times.append(now(device) - start)
    return times
