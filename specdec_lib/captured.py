"""The front door's captured modes: which graph engine a call of ``decoding`` means, captured once and reused.

Engines stay with their target: the next call with the same draft, k and mode replays the same graphs, whatever its
prompt. In mode "compiled" a step's cost follows the length, so a larger capacity serves shorter contexts too; in mode
"graphs" it follows the capacity, so each capacity has its own graphs: what was run before must not change a time.

The proposer and the rule are not run; they say what the graphs do: propose and accept.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import NamedTuple

import torch

from .acceptance import Acceptance, Greedy, Imposed
from .errors import InvalidSetting, OutOfDeviceMemory
from .graphs import GraphEngine, GraphGeneration
from .model import DecoderModel
from .modes import MODES
from .prefilled import Prefilled, prefilled_for
from .proposers import DraftFree, DraftModel, ForcedDraft, Proposer, Scripted
from .request import check_prompt, check_request, check_room

GRAIN = 2048  # capacities are multiples of it: a prompt that grows a little needs no new graphs


class Plan(NamedTuple):
    """What a proposer and a rule come to on the device: see ``GraphEngine.speculative``."""

    draft: DraftModel | None
    script: list[int] | None = None
    passes: list[bool] | None = None


def autoregressive(
    target: DecoderModel,
    prompt: list[int] | str,
    max_new_tokens: int,
    eos: int | Iterable[int] | None = None,
    *,
    prefilled: Prefilled | None = None,
    instrument: bool = False,
    mode: str = "compiled",
) -> GraphGeneration:
    """``decoding.autoregressive`` by replays of the plain step's graph: the one of an engine that speculates, if there
    is one.

    Raises what that does, and ``NoCudaDevice``, ``TritonMissing``, ``UnsupportedDevice``, ``OutOfDeviceMemory``; no
    ``eos``.
    """
    ids = check_prompt(target, prompt)
    stop = check_request(target, max_new_tokens, eos)
    _check_mode(mode, stop)
    check_room(target, len(ids), max_new_tokens)
    engine = engine_for(target, None, 0, mode, len(ids) + max_new_tokens)
    return engine.autoregressive(ids, max_new_tokens, prefilled=prefilled, instrument=instrument)


def speculative(
    target: DecoderModel,
    proposer: Proposer,
    prompt: list[int] | str,
    max_new_tokens: int,
    k: int = 4,
    bonus: bool = True,
    acceptance: Acceptance | None = None,
    formulation: str = "repair-free",
    eos: int | Iterable[int] | None = None,
    *,
    prefilled: Prefilled | None = None,
    instrument: bool = False,
    mode: str = "compiled",
) -> GraphGeneration:
    """``decoding.speculative``, repair-free with bonus, by replays of one graph per round; see ``plan_of`` for what can
    propose and accept. Called by it, after its checks of the request.

    Raises what that does, and ``NoCudaDevice``, ``TritonMissing``, ``UnsupportedDevice``, ``OutOfDeviceMemory``.
    """
    ids = check_prompt(target, prompt)
    stop = check_request(target, max_new_tokens, eos)
    _check_mode(mode, stop)
    if not bonus or formulation != "repair-free":
        raise InvalidSetting(
            f"formulation {formulation!r} with bonus = {bonus} in mode {mode!r}",
            expected="formulation='repair-free' with bonus=True: the rounds that are captured",
            remedy="use mode='eager' for every other form of the round",
        )
    plan = plan_of(proposer, acceptance, max_new_tokens, mode)
    model = plan.draft.model if plan.draft else None
    for one in (target, model):
        if one is not None:
            check_room(one, len(ids), max_new_tokens)
    engine = engine_for(target, model, k, mode, len(ids) + max_new_tokens)
    start = None
    if plan.draft:
        draft = plan.draft
        start = prefilled_for(draft.model, ids, max_new_tokens, draft.prefilled, draft.chunk)
    return engine.speculative(
        ids, max_new_tokens, script=plan.script, passes=plan.passes, prefilled=prefilled, draft_prefilled=start,
        instrument=instrument,
    )  # fmt: skip


def plan_of(proposer: Proposer, rule: Acceptance | None, new: int, mode: str) -> Plan:
    """What the graphs do for this proposer and rule; ``InvalidSetting`` for a pairing that only the eager mode runs.

    Exact classes only: a class derived from one of these may do anything.
    """
    greedy, imposed = rule is None or type(rule) is Greedy, rule if type(rule) is Imposed else None
    if type(proposer) is DraftModel and greedy:
        return Plan(proposer)
    if type(proposer) is ForcedDraft and imposed:
        _check_same(proposer.tokens[:new] == imposed.tokens[:new], mode)
        _check_same(proposer.passes[:new] == imposed.passes[:new], mode)
        return Plan(proposer, imposed.tokens, imposed.passes)
    script: list[int] | None = None
    if type(proposer) is DraftFree:
        script = proposer.tokens.tolist()
    elif type(proposer) is Scripted and not callable(proposer.script):
        script = list(proposer.script)
    if script is not None and greedy:
        return Plan(None, script)
    if script is not None and imposed:
        _check_same(script[:new] == imposed.tokens[:new], mode)
        return Plan(None, imposed.tokens, imposed.passes)
    raise InvalidSetting(
        f"{type(proposer).__name__} with {type(rule).__name__ if rule else 'Greedy'} in mode {mode!r}",
        expected="DraftModel with Greedy, ForcedDraft with Imposed, or DraftFree or a Scripted list with either",
        remedy="use mode='eager', which runs every proposer and every rule",
    )


def engine_for(target: DecoderModel, draft: DecoderModel | None, k: int, mode: str, need: int) -> GraphEngine:
    """The target's engine for this draft, k and mode with room for ``need`` tokens; captured now if there is none.

    ``k`` = 0: any engine of the mode will do, since all have the plain step. Where memory runs out, the target's other
    engines make room; results do not depend on it, and the one that stays is captured anew when it is asked for.
    """
    kept: list[GraphEngine] = vars(target).setdefault("captured_engines", [])
    limits = [model.config.max_positions for model in (target, draft) if model is not None]
    capacity = min([-(-need // GRAIN) * GRAIN, *limits])

    def fits(engine: GraphEngine) -> bool:
        return engine.capacity == capacity if mode == "graphs" else engine.capacity >= need

    for engine in kept:
        if engine.mode == mode and fits(engine) and (not k or (engine.k == k and engine.draft is draft)):
            return engine
    # What the new one can stand in for: the same with less room, and an engine that has the plain step only.
    kept[:] = [
        e for e in kept
        if e.mode != mode or (mode == "graphs" and e.capacity != capacity) or e.capacity > capacity
        or (e.k and (e.k != k or e.draft is not draft))
    ]  # fmt: skip
    made: GraphEngine | None = None
    try:
        made = GraphEngine(target, draft, k, mode, capacity)
    except OutOfDeviceMemory:
        if not kept:
            raise
    if made is None:  # not in the handler: until it is left, the failed attempt holds its memory
        release(target)
        made = GraphEngine(target, draft, k, mode, capacity)
    kept.append(made)
    return made


def release(target: DecoderModel) -> None:
    """Give the memory of all the target's engines back: caches, graphs and prefills."""
    vars(target).setdefault("captured_engines", []).clear()
    gc.collect()
    if target.device.type == "cuda":
        torch.cuda.empty_cache()


def _check_mode(mode: str, stop: frozenset[int]) -> None:
    if mode not in MODES:
        raise InvalidSetting(
            f"mode = {mode!r}",
            expected=" or ".join(map(repr, ("eager", *MODES))),
            remedy="'eager' works everywhere; the others capture CUDA graphs",
        )
    if stop:
        raise InvalidSetting(
            f"eos in mode {mode!r}",
            expected="none: a captured run emits exactly max_new_tokens, since nothing on the host sees a token",
            remedy="use mode='eager' to stop at a token, or cut the output behind it",
        )


def _check_same(same: bool, mode: str) -> None:
    if not same:
        raise InvalidSetting(
            f"proposer and rule hold different traces, in mode {mode!r}",
            expected="one script, and the same passes, in both",
            remedy="give both the same lists, or use mode='eager'",
        )
