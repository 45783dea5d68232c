"""Decoding by captured CUDA graphs: one graph for a plain step, one for a whole round, for every position and context.

Position, text and acceptance live on the device (``device_state``), so a replay needs nothing from the host and the
host needs nothing from a replay until a run may be over: it replays as many rounds as the run needs at least, reads
once, and goes on. Both arms are treated alike.

Modes: "graphs" captures the plain PyTorch forward (``static``), "compiled" the fused kernels (``fused``, needs Triton).
There is no fallback from one to the other; "eager" is ``decoding``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import Any

import torch

from .acceptance import check_trace
from .capture import Captured, Replayable, alone
from .errors import (
    ContextTooLong,
    InvalidPrompt,
    InvalidSetting,
    OutOfDeviceMemory,
    TritonMissing,
)
from .generation import Generation, Round
from .host import HostTraffic
from .kernels import MAX_ROWS
from .model import DecoderModel
from .modes import check_engine, decoder, new_state
from .prefilled import Prefilled, prefilled_for
from .request import check_new_tokens, check_prompt
from .timing import Stopwatch


@dataclass
class GraphGeneration(Generation):
    """A run by captured graphs, in ``device_seconds`` by the GPU's own clock (NaN on a CPU), beside the host's
    ``seconds``. ``replays`` of the round's (or step's) graph, of which ``surplus`` changed nothing;
    ``natural``: what the target would have accepted in each round, also where a trace imposed something else.
    """

    replays: int = 0
    surplus: int = 0
    natural: list[int] = field(default_factory=list)


class GraphEngine:
    """A target, a draft (None: proposals from a script) and their captured graphs, over a context of ``capacity``
    tokens.

    ``k`` = 0 captures the plain step only. ``capture`` replaces the CUDA capture in tests. After construction
    ``graphs``, ``pool_bytes`` and ``capture_seconds`` say what was captured and what it took.

    Raises ``NoCudaDevice``, ``UnsupportedDevice``, ``TritonMissing``, ``OutOfDeviceMemory``, ``InvalidSetting``,
    ``ContextTooLong``, ``VocabularyMismatch``.
    """

    def __init__(
        self,
        target: DecoderModel,
        draft: DecoderModel | None = None,
        k: int = 4,
        mode: str = "compiled",
        capacity: int = 8192,
        capture: Callable[[Callable[[], None], Any], Replayable] | None = None,
    ) -> None:
        check_engine(target, draft, k, mode, capacity, capture is None)
        self.target, self.draft, self.k, self.mode, self.capacity = target, draft, k, mode, capacity
        self.idle = Lock()
        cuda = capture is None
        if cuda:
            torch.cuda.synchronize(target.device)
        try:
            room = capacity + MAX_ROWS  # a round looks one block beyond the end
            self.target_cache = target.new_cache(room)
            self.draft_cache = None if draft is None else draft.new_cache(room)
            self.state = new_state(mode, capacity, k, target)
            self.verify = decoder(mode, target, self.target_cache)
            self.propose = decoder(mode, draft, self.draft_cache) if draft and self.draft_cache else None
            reserved = torch.cuda.memory_reserved(target.device) if cuda else 0
            self.pool, self.make = torch.cuda.graph_pool_handle() if cuda else None, capture or Captured
            start = perf_counter()
            with torch.inference_mode():
                self.state.begin([0, 0], 0)  # a run that is over: warm-up and capture change nothing
                self.step: Replayable = self.make(self._step, self.pool)
                self.round: Replayable | None = self.make(self._round, self.pool) if k else None
            self.capture_seconds = perf_counter() - start
            self.pool_bytes = torch.cuda.memory_reserved(target.device) - reserved if cuda else 0
        except torch.cuda.OutOfMemoryError as full:
            raise OutOfDeviceMemory(
                f"capturing {mode} graphs for {capacity} tokens: {str(full).splitlines()[0]}",
                expected="room for both caches and the graphs' shared pool",
                remedy="lower capacity or k, or use mode='eager'",
            ) from full
        except RuntimeError as fault:
            if "C compiler" not in str(fault):
                raise
            raise TritonMissing(
                f"Triton cannot build its kernels: {str(fault).splitlines()[0]}",
                expected="a C compiler on the PATH, or named by CC",
                remedy="install one (gcc or clang), or use mode='eager' or 'graphs'",
            ) from fault
        self.loaded: dict[int, Prefilled] = {}
        self.choices: Any = None
        self.apart: dict[str, Replayable] = {}

    @property
    def graphs(self) -> int:
        """How many graphs were captured."""
        return 1 + (self.round is not None)

    def _step(self) -> None:
        """One plain step: the last committed token through the target, its argmax committed."""
        self.state.commit_one(
            self.verify.step(self.state.block[:1], self.state.committed, -1, kept=self.state.origin)
        )

    def _round(self) -> None:
        """One repair-free round with bonus."""
        self._draft()
        self._verify()
        self._accept()

    def _draft(self) -> None:
        """All proposals. The draft's first forward has two rows: after a full acceptance it has not run the last
        proposal; otherwise it writes a row again that it has. The prompt's rows stay the prefill's."""
        state = self.state
        if self.propose is None:
            state.propose_script()
        else:
            rows, offset = state.tail, -2
            for i in range(self.k):
                state.propose(
                    i, self.propose.step(rows, state.committed, offset, kept=state.origin, last_only=True)
                )
                rows, offset = state.block[i + 1 : i + 2], i

    def _verify(self) -> None:
        self.choices = self.verify.step(self.state.block, self.state.committed, -1, kept=self.state.origin)

    def _accept(self) -> None:
        self.state.commit_round(self.choices)

    @torch.inference_mode()
    def stages(self) -> dict[str, Replayable]:
        """The round as one graph per stage, for instrumented runs only; captured when first asked for."""
        if not self.apart:
            self.state.begin([0, 0], 0)
            self.loaded.clear()  # capturing runs the work once, and so writes into the caches
            parts = {"draft": self._draft, "verify": self._verify, "accept": self._accept}
            self.apart = {stage: self.make(work, self.pool) for stage, work in parts.items()}
        return self.apart

    @alone
    @torch.inference_mode()
    def autoregressive(
        self,
        prompt: list[int] | str,
        max_new_tokens: int,
        *,
        prefilled: Prefilled | None = None,
        instrument: bool = False,
    ) -> GraphGeneration:
        """Greedy decoding: N - 1 replays of one graph, one host read. As ``decoding.autoregressive`` without ``eos``.

        ``instrument``: wait for the device after every replay and book it on a stage; never a timed run.
        """
        ids, start, _ = self._start(prompt, max_new_tokens, prefilled, None, False)
        self.state.begin(ids, max_new_tokens)
        host, before = HostTraffic(), self.step.replays
        watch = Stopwatch(self.target.device, instrument)
        self.state.commit_one(start.logits.argmax(-1))
        for _ in range(max_new_tokens - 1):
            self.step.replay()
            watch.lap("verify")
        tokens = host.read(self.state.text[len(ids) : len(ids) + max_new_tokens])
        watch.stop()
        replays = self.step.replays - before
        return GraphGeneration(
            tokens=tokens, seconds=watch.seconds, prefill_seconds=start.seconds, stage_seconds=watch.stages,
            host_reads=host.reads, host_copies=host.copies, host_bytes=host.bytes, target_calls=replays,
            mode=self.mode, device_seconds=watch.device_seconds, replays=replays,
        )  # fmt: skip

    @alone
    @torch.inference_mode()
    def speculative(
        self,
        prompt: list[int] | str,
        max_new_tokens: int,
        *,
        script: Sequence[int] | None = None,
        passes: Sequence[bool] | None = None,
        prefilled: Prefilled | None = None,
        draft_prefilled: Prefilled | None = None,
        instrument: bool = False,
    ) -> GraphGeneration:
        """Speculative decoding, repair-free with bonus: as ``decoding.speculative`` of that formulation without
        ``eos``.

        Without ``script``: the draft's own proposals, greedy acceptance. With ``script`` and ``passes``: acceptance is
        imposed by the trace and ``script`` is committed, while every forward is paid (``acceptance.Imposed``). An
        engine without a draft takes its proposals from ``script``, and without ``passes`` the target decides. Counts
        are those of the rounds the run needed. ``instrument``: as in ``autoregressive``, with a graph per stage.
        """
        fitting = (script is None) == (passes is None) if self.propose else script is not None
        if self.round is None or not fitting:
            given = {"draft": self.propose, "script": script, "trace": passes}
            has = ", ".join(
                f"{name} {'absent' if value is None else 'present'}" for name, value in given.items()
            )
            raise InvalidSetting(
                f"k = {self.k}, {has}",
                expected="a draft alone or with script and trace, or without a draft a script; and k >= 1",
                remedy="build the engine with a draft and k >= 1, or give a script to one without a draft",
            )
        if script is not None:
            stands = [True] * len(script) if passes is None else passes
            check_trace(script, stands, max_new_tokens, self.target.config.vocab)
        parts = self.stages() if instrument else {"round": self.round}
        last = list(parts.values())[-1]  # counts the rounds
        ids, start, draft_start = self._start(
            prompt, max_new_tokens, prefilled, draft_prefilled, self.propose is not None
        )
        state, at, end = self.state, len(ids), len(ids) + max_new_tokens
        state.begin(ids, max_new_tokens, script, passes)
        host, before, emitted = HostTraffic(), last.replays, 0
        tokens: list[int] = []
        watch = Stopwatch(self.target.device, instrument)
        state.first.copy_(start.logits.argmax(-1))
        if draft_start:
            state.draft_first.copy_(draft_start.logits.argmax(-1))
        while emitted < max_new_tokens:
            # A round commits at most k + 1 tokens, so this many are needed in any case.
            for _ in range(-(-(max_new_tokens - emitted) // (self.k + 1))):
                for stage, part in parts.items():
                    part.replay()
                    watch.lap(stage)
            committed, *tokens = host.read(torch.cat((state.committed, state.text[at:end])))
            emitted = committed - at
            watch.lap("accept")
        watch.stop()
        replays = last.replays - before
        count = int(state.rounds)
        log = state.log[:count].tolist()
        return GraphGeneration(
            tokens=tokens, seconds=watch.seconds, prefill_seconds=start.seconds,
            draft_prefill_seconds=draft_start.seconds if draft_start else 0.0,
            rounds=[Round(proposed, accepted, kept) for proposed, accepted, kept, _ in log],
            stage_seconds=watch.stages, host_reads=host.reads, host_copies=host.copies, host_bytes=host.bytes,
            target_calls=count,
            draft_calls=count * self.k if self.propose else 0, mode=self.mode, device_seconds=watch.device_seconds,
            replays=replays, surplus=replays - count,
            natural=[row[3] for row in log],
        )  # fmt: skip

    def _start(
        self,
        prompt: list[int] | str,
        new: int,
        prefilled: Prefilled | None,
        draft_prefilled: Prefilled | None,
        with_draft: bool,
    ) -> tuple[list[int], Prefilled, Prefilled | None]:
        """Check the request and bring both prefills into the captured caches. Not part of the timed region."""
        ids = check_prompt(self.target, prompt)
        check_new_tokens(new)
        if len(ids) < 2:
            raise InvalidPrompt(
                "a prompt of one token",
                expected="at least two: a round's first rows are the last two committed tokens",
                remedy="put the model's BOS token in front, or use mode='eager'",
            )
        if len(ids) + new > self.capacity:
            raise ContextTooLong(
                f"{len(ids)} prompt + {new} new tokens",
                expected=f"at most {self.capacity}, the capacity of the captured graphs",
                remedy="build the engine with a larger capacity, or shorten the prompt",
            )
        start = prefilled_for(self.target, ids, new, prefilled)
        self._load(start, self.target_cache)
        if not (with_draft and self.draft and self.draft_cache):
            return ids, start, None
        draft_start = prefilled_for(self.draft, ids, new, draft_prefilled)
        self._load(draft_start, self.draft_cache)
        return ids, start, draft_start

    def _load(self, start: Prefilled, cache: Any) -> None:
        """Copy a prefill into a captured cache, unless it is the one that is there: a run writes behind the prompt
        (and, in mode "graphs", its last two rows again)."""
        if self.loaded.get(id(cache)) is not start:
            cache.keys[:, :, : start.length] = start.cache.keys[:, :, : start.length]
            cache.values[:, :, : start.length] = start.cache.values[:, :, : start.length]
            self.loaded[id(cache)] = start
