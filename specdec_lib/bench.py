"""Inside the process of a mechanism job: one cell's prompt and prefills, and every variant run on them."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from .acceptance import Acceptance, Greedy, Imposed, Recorded, Relaxed
from .correctness import mean_log_probability
from .decoding import autoregressive, speculative
from .errors import CacheError
from .files import canonical_json, sha256_text
from .formats import has_format
from .generation import Generation, Round
from .host import HostTraffic
from .load import Snapshot, cpu_mhz, on_free_core, others_share, peak_rss_bytes
from .model import DecoderModel
from .naive import naive_pair
from .numerics import width_rows
from .nvml import gpu_columns
from .pairs import Pair, load_pair
from .prefilled import Prefilled
from .prompts import build_prompt
from .proposers import DraftFree, DraftModel, ForcedDraft, Proposer
from .variants import Variant, passes_of

WARMUP_TOKENS = 16  # of every variant before the first timed run: kernels are chosen, pages touched


@lru_cache(maxsize=1)
def loaded_pair(name: str, device: str, dtype: str) -> Pair:
    """The pair; a process that works off several jobs loads it once."""
    return load_pair(name, device, dtype)


def pair_of(spec: dict[str, Any]) -> Pair:
    """The pair that a job asks for."""
    return loaded_pair(spec["pair"], spec["device"], spec["dtype"])


class Cell:
    """One (family, context): the prompt, and the two prefills that its jobs share, read from the store."""

    def __init__(self, spec: dict[str, Any], pair: Pair, store: Path, family: str) -> None:
        self.pair, self.family, self.context, self.new = pair, family, spec["context"], spec["new_tokens"]
        self.prompt = build_prompt(family, self.context, pair.tokenizer, self.new)
        if sha256_text(canonical_json(self.prompt)) != spec["prompt_sha256"][family]:
            raise CacheError(
                f"the stored prefill of {family} belongs to another prompt",
                expected="the prompt that the prefill job built",
                remedy="delete the profile's .prefill and jobs folders and run again",
            )
        self.store, self.seconds, self.mode = store, spec["prefill_s"][family], spec.get("mode", "eager")
        self.target = self.prefilled("target", pair.target)

    def prefilled(self, role: str, model: DecoderModel) -> Prefilled:
        """The stored state of one model after the prompt."""
        path = self.store / f"{self.family}-{self.context}-{role}.safetensors"
        return Prefilled.load(path, model, self.prompt, self.new, self.seconds[role])


class Bench:
    """Runs variants on one cell. ``tokens`` and ``passes`` are the target's recorded text and its trace."""

    def __init__(self, cell: Cell, tokens: list[int], passes: list[bool]) -> None:
        self.cell, self.tokens, self.passes = cell, tokens, passes
        self.draft = cell.prefilled("draft", cell.pair.draft)

    def run(self, v: Variant, new: int | None = None, instrument: bool = False) -> Generation:
        """Decode ``new`` tokens (the cell's, if not given) the way ``v`` says."""
        cell = self.cell
        new = int(new or cell.new)
        shared: Any = {"prefilled": cell.target, "instrument": instrument, "mode": cell.mode}
        if v.proposer == "none":
            return autoregressive(cell.pair.target, cell.prompt, new, **shared)
        assert v.k
        proposer, rule, host = self._parts(v)
        return speculative(
            cell.pair.target, proposer, cell.prompt, new, min(v.k, max(1, new - v.bonus)), v.bonus, rule,
            v.formulation, host=host, **shared,
        )  # fmt: skip

    def _parts(self, v: Variant) -> tuple[Proposer, Acceptance, HostTraffic | None]:
        draft, device = self.cell.pair.draft, self.cell.pair.target.device
        passes = passes_of(v, self.passes, self.cell.family, self.cell.context)
        if v.proposer == "naive":
            return naive_pair(draft, self.draft)
        proposer: Proposer = {
            "draft": lambda: DraftModel(draft, self.draft),
            "forced": lambda: ForcedDraft(draft, self.tokens, passes, self.draft),
            "free": lambda: DraftFree(self.tokens, device),
        }[v.proposer]()
        rule: Acceptance = {
            "greedy": Greedy,
            "relaxed": lambda: Relaxed(v.setting or 0.0),
            "all": lambda: Relaxed(float("inf")),
            "imposed": lambda: Imposed(self.tokens, passes),
        }[v.rule]()
        return proposer, rule, None


def trace(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """The target's greedy text, every proposal under the target's distribution, and one bit per output position.

    A bit says whether the draft, given the target's own text so far, would choose the target's token. It is taken from
    a run that proposes the target's text throughout, so no refused token ever stands in a cache.

    In a captured mode the text is the graphs', and so are the real draft's rounds (repair-free with bonus). What the
    target thinks of a proposal only the eager engine can note, on the text that it writes.
    """
    pair = pair_of(spec)
    cell = Cell(spec, pair, store, spec["families"][0])
    shared: Any = {"prefilled": cell.target, "mode": cell.mode}
    tokens = autoregressive(pair.target, cell.prompt, cell.new, **shared).tokens
    draft, everything = cell.prefilled("draft", pair.draft), [True] * cell.new
    forced = ForcedDraft(pair.draft, tokens, everything, draft)
    k = spec["k"]
    speculative(
        pair.target, forced, cell.prompt, cell.new, k, False, Imposed(tokens, everything), prefilled=cell.target
    )  # fmt: skip
    recorder = Recorded(Greedy())
    real = speculative(
        pair.target, DraftModel(pair.draft, draft), cell.prompt, cell.new, k, False, recorder, "reference",
        prefilled=cell.target,
    )  # fmt: skip
    if cell.mode != "eager":
        real = speculative(pair.target, DraftModel(pair.draft, draft), cell.prompt, cell.new, k, **shared)
    return {
        "tokens": tokens,
        "passes": forced.agreement(),
        "proposals": recorder.rows(),
        "rounds_n": len(real.rounds),
        "identical": real.tokens == tokens,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def mechanism(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Timed runs of several variants on one cell, interleaved: forwards in odd repeats, backwards in even ones."""
    pair = pair_of(spec)
    bench = Bench(Cell(spec, pair, store, spec["families"][0]), spec["tokens"], spec["passes"])
    variants = [Variant(**v) for v in spec["variants"]]
    for v in variants:
        bench.run(v, min(WARMUP_TOKENS, bench.cell.new))
    rows: list[dict[str, Any]] = []
    outputs: dict[str, list[int]] = {}
    for repeat in range(1, spec["repeats"] + 1):
        for position, v in enumerate(variants if repeat % 2 else reversed(variants)):
            with on_free_core(pair.device):
                before = Snapshot.take()
                done = bench.run(v)
                share = others_share(before, Snapshot.take())
            outputs.setdefault(v.name, done.tokens)
            row = {"variant": v.name, "repeat": repeat, "position": position, **counts(done, v)}
            load = {"others_cpu_share": share, "cpu_mhz": cpu_mhz()}
            rows.append({**row, **load, **gpu_columns(pair.device, done.device_seconds)})
    quality = [_quality(bench, v, outputs[v.name], spec["format"]) for v in variants * bool(spec["quality"])]
    machine = {"peak_rss_bytes": peak_rss_bytes(), "threads": torch.get_num_threads()}
    return {
        "rows": rows, "tokens": outputs, "quality": quality, "machine": machine,
        "prediction": spec["prediction"],  # what had been predicted when this was measured
    }  # fmt: skip


def counts(done: Generation, v: Variant) -> dict[str, Any]:
    """Time and counts of one run, as columns of the table "mechanism"."""
    return {
        "new_tokens": len(done.tokens),
        "decode_s": done.seconds,
        "rounds_n": len(done.rounds),
        "proposed_tokens": done.proposed,
        "accepted_tokens": done.accepted,
        "rejections_n": done.rejections,
        "target_calls_n": done.target_calls,
        "draft_calls_n": done.draft_calls,
        "block_rows_tokens": sum(block_rows(done.rounds, v)),
        "host_reads_n": done.host_reads,
        "host_copies_n": done.host_copies,
        "host_bytes": done.host_bytes,
        "tokens_sha256": sha256_text(canonical_json(done.tokens)),
    }


def block_rows(rounds: list[Round], v: Variant) -> list[int]:
    """Rows of every verification block: the proposals, and one for a committed token that the target has not run."""
    rows, pending = [], False
    for r in rounds:
        rows.append(r.proposed + pending)
        pending = v.formulation == "repair-free" or (not r.rejected and r.emitted > r.accepted)
    return [n for n in rows if n]


def _quality(bench: Bench, v: Variant, tokens: list[int], format_name: str | None) -> dict[str, Any]:
    """How good the text is: its mean log-probability under the target, and whether it keeps the asked form."""
    cell = bench.cell
    text = cell.pair.tokenizer.decode(tokens)
    return {
        "variant": v.name,
        "mean_log_probability": mean_log_probability(cell.pair.target, cell.target, cell.prompt, tokens),
        "format": format_name,
        "format_kept": has_format(format_name, text) if format_name else None,
    }


def costs(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Stage times of one development cell, for fitting: AR, and every given variant once, instrumented."""
    pair = pair_of(spec)
    bench = Bench(Cell(spec, pair, store, spec["families"][0]), [], [])
    variants = [Variant(**v) for v in spec["variants"]]
    for v in variants:
        bench.run(v, min(WARMUP_TOKENS, bench.cell.new))
    rows = []
    for repeat in range(1, spec["repeats"] + 1):
        for v in variants if repeat % 2 else reversed(variants):
            with on_free_core(pair.device):
                done = bench.run(v, instrument=True)
            stages = {f"{stage}_s": seconds for stage, seconds in done.stage_seconds.items()}
            rows.append({"variant": v.name, "repeat": repeat, **counts(done, v), **stages})
    return {"rows": rows}


def rounds(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Counts of every given variant from one untimed run, "blocks" by their number of rows."""
    pair = pair_of(spec)
    bench = Bench(Cell(spec, pair, store, spec["families"][0]), [], [])
    found = {}
    for v in (Variant(**v) for v in spec["variants"]):
        done = bench.run(v)
        found[v.name] = counts(done, v) | {"blocks": Counter(block_rows(done.rounds, v))}
    return {"counts": found}


def numerics(spec: dict[str, Any], store: Path) -> dict[str, Any]:
    """Widths against the plain step on one cell, in the study's dtype and, as a control, in FP32."""
    pair = pair_of(spec)
    cell = Cell(spec, pair, store, spec["families"][0])
    rows = width_rows(pair.target, cell.target, cell.prompt, spec["tokens"], pair.dtype)
    if pair.dtype != "fp32":
        exact = load_pair(spec["pair"], spec["device"], "fp32").target
        start = Prefilled.compute(exact, cell.prompt, cell.new, spec["prefill_chunk"])
        rows += width_rows(exact, start, cell.prompt, spec["tokens"], "fp32")
    return {"rows": rows}
