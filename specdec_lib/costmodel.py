"""The cost line: what speculation costs in units of one AR step, and the speed ratio that follows.

A round costs ``draft forwards x c + v(rows) + repair (if rejected) + overhead``; AR costs 1 per token. ``c``
is one draft forward, ``v`` the verification of one block, a number or a function of the block's rows.
Acceptances are independent with probability ``alpha`` given that all before in the round were accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import scipy

from specdec_lib.errors import InvalidSetting
from specdec_lib.records import validate
from specdec_lib.stats import acceptance_from_alpha, alpha_from_acceptance, expected_tokens_per_round

Verify = float | Callable[[int], float]

FORMULATIONS = ("reference", "repair-free")

# Qwen2.5-1.5B-Instruct from its published config, and the published study's GPU.
TARGET_STEP_BYTES, TARGET_KV_BYTES_PER_TOKEN = 3_087_428_608, 28_672
GPU_BYTES_PER_S = 256e9
PUBLISHED_TOKENS, PUBLISHED_K = 64, 4
_ALL_ACCEPT_ROUNDS, _BONUS_ROUNDS = 16, 13  # of 64 tokens: 64 / 4, and 64 / 5 rounded up


@dataclass(frozen=True)
class Counts:
    """Expected counts of a run (or of one round of an endless run). ``blocks``: verifications by number of
    rows."""

    emitted: float
    rounds: float
    proposed: float
    accepted: float
    rejections: float
    draft_forwards: float
    repairs: float
    blocks: dict[int, float]

    @property
    def target_calls(self) -> float:
        """Target forwards: verifications and repairs."""
        return sum(self.blocks.values()) + self.repairs

    def cost(self, c: float, v: Verify, repair: float = 1.0, overhead: float = 0.0) -> float:
        """Time in AR steps."""
        verify = sum(n * (v(rows) if callable(v) else v) for rows, n in self.blocks.items())
        return self.draft_forwards * c + verify + self.repairs * repair + self.rounds * overhead


def expected_counts(
    alpha: float, k: int, new_tokens: int, formulation: str = "reference", bonus: bool = False
) -> Counts:
    """Exact expected counts of a run of ``new_tokens`` tokens, by dynamic programming over the room that is
    left.

    Follows the engine: the last round's k shrinks to the room (with bonus: room - 1; room 1 is a plain
    step), nothing runs after the last token, and the first round starts from the prefill's logits. A
    *pending* token is committed but not yet run: it is the next block's first row (repair-free: always;
    reference: the bonus token).
    """
    _check(formulation, alpha, k)
    probability = {(new_tokens, False): 1.0}
    rounds = proposed = accepted = rejections = draft = repairs = 0.0
    blocks: dict[int, float] = {}
    for room in range(new_tokens, 0, -1):  # a round always emits, so every state is complete when reached
        for pending in (False, True):
            weight = probability.pop((room, pending), 0.0)
            if not weight:
                continue
            limit = min(k, room - bonus)
            rows = limit + pending
            rounds += weight
            proposed += weight * limit
            if rows:
                blocks[rows] = blocks.get(rows, 0.0) + weight
            if (
                limit
            ):  # the draft's first proposal is known from before, unless a committed token waits to be run
                draft += weight * (limit - 1 + pending)
            for taken in range(limit + 1):
                full = taken == limit
                branch = weight * alpha**taken * (1.0 if full else 1 - alpha)
                emitted = taken + (not full or bonus or not limit)
                accepted += branch * taken
                rejections += branch * (not full)
                if emitted == room or not branch:
                    continue
                waits = True
                if formulation == "reference":
                    draft += branch  # the replacement, or the last proposal that the draft has not run
                    repairs += branch * (not full)
                    waits = full and bonus
                state = (room - emitted, waits)
                probability[state] = probability.get(state, 0.0) + branch
    return Counts(new_tokens, rounds, proposed, accepted, rejections, draft, repairs, blocks)


def counts_from_trace(
    passes: Sequence[bool], k: int, new_tokens: int, formulation: str = "reference", bonus: bool = False
) -> Counts:
    """Exact counts of a run, from one bit per output position: would the draft's choice there be the target's?

    Under greedy decoding the trace fixes every round, for every k, formulation and bonus. The same rules as in
    ``expected_counts``. Raises ``InvalidSetting`` for a trace shorter than the run.
    """
    _check(formulation, 0.0, k)
    if len(passes) < new_tokens:
        raise InvalidSetting(
            f"A trace of {len(passes)} positions for a run of {new_tokens} tokens.",
            expected="at least as many",
            remedy="record the trace over the whole run",
        )
    at, pending = 0, False
    rounds = proposed = accepted = rejections = draft = repairs = 0
    blocks: dict[int, float] = {}
    while True:
        limit = min(k, new_tokens - at - bonus)
        rows = limit + pending
        rounds, proposed = rounds + 1, proposed + limit
        if rows:
            blocks[rows] = blocks.get(rows, 0) + 1
        if limit:
            draft += limit - 1 + pending
        taken = next((i for i in range(limit) if not passes[at + i]), limit)
        full = taken == limit
        accepted, rejections = accepted + taken, rejections + (not full)
        at += taken + (not full or bonus or not limit)
        if at >= new_tokens:
            break
        pending = True
        if formulation == "reference":
            draft, repairs = draft + 1, repairs + (not full)
            pending = full and (bonus or not limit)
    return Counts(new_tokens, rounds, proposed, accepted, rejections, draft, repairs, blocks)


def long_run_counts(alpha: float, k: int, formulation: str = "reference", bonus: bool = False) -> Counts:
    """Expected counts of one round of an endless run, all rounds with full k. Their ratios are the renewal
    limit."""
    _check(formulation, alpha, k)
    full = alpha**k
    if formulation == "repair-free":
        draft, repairs, blocks = float(k), 0.0, {k + 1: 1.0}
    else:
        waits = full if bonus else 0.0  # chance that the round before left a bonus token to run
        draft, repairs, blocks = k + waits, 1 - full, {k: 1 - waits, k + 1: waits}
    accepted = k * acceptance_from_alpha(alpha, k)
    emitted = expected_tokens_per_round(alpha, k, bonus)
    return Counts(
        emitted, 1.0, float(k), accepted, 1 - full, draft, repairs, {r: n for r, n in blocks.items() if n}
    )


def predicted_R(
    c: float,
    v: Verify,
    k: int,
    alpha: float,
    formulation: str = "reference",
    bonus: bool = False,
    repair: float = 1.0,
    overhead: float = 0.0,
    new_tokens: int | None = 64,
) -> float:
    """T_AR / T_Spec by the cost line; above 1 speculation is faster. Costs in AR steps.

    ``new_tokens`` = N: exact for N tokens, the quotient of the expected times, AR making N - 1 steps.
    ``new_tokens`` = None: the long run, tokens per round / cost per round (ratio of expectations, no
    shrinking round).
    """
    if new_tokens is None:
        counts = long_run_counts(alpha, k, formulation, bonus)
        return counts.emitted / counts.cost(c, v, repair, overhead)
    if new_tokens < 2:
        raise InvalidSetting(f"new_tokens = {new_tokens}.", expected="at least 2: one token takes AR no step")
    return (new_tokens - 1) / expected_counts(alpha, k, new_tokens, formulation, bonus).cost(
        c, v, repair, overhead
    )


def break_even_alpha(
    c: float,
    v: Verify,
    k: int,
    formulation: str = "reference",
    bonus: bool = False,
    repair: float = 1.0,
    overhead: float = 0.0,
    new_tokens: int | None = 64,
) -> float | None:
    """Smallest alpha at which speculation costs no more than AR: 0 if it always pays, None if it never
    does."""

    def gain(alpha: float) -> float:
        return predicted_R(c, v, k, alpha, formulation, bonus, repair, overhead, new_tokens) - 1

    if gain(0.0) >= 0:
        return 0.0
    if gain(1.0) < 0:
        return None
    return float(scipy.optimize.brentq(gain, 0.0, 1.0, xtol=1e-12))  # pyright: ignore[reportArgumentType]


def best_k(
    c: float,
    v: Verify,
    alpha: float,
    formulation: str = "reference",
    bonus: bool = False,
    repair: float = 1.0,
    overhead: float = 0.0,
    new_tokens: int | None = 64,
    ks: Iterable[int] = range(1, 17),
) -> tuple[int, float]:
    """The k of ``ks`` with the largest predicted R, and that R; the smaller k on a tie."""
    found = ((k, predicted_R(c, v, k, alpha, formulation, bonus, repair, overhead, new_tokens)) for k in ks)
    return max(found, key=lambda pair: (pair[1], -pair[0]))


def audit(confirmatory: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """The published tables checked by the cost line: arithmetic only, one row per context (schema "audit").

    The draft-free oracle has no draft, so its R gives ``v``; the all-accept oracle then gives ``c``; with
    alpha from the published acceptance the reference formulation's R follows, to be held against the
    published one. ``R_predicted`` is the ratio of expectations, as published numbers are coarser than what
    separates the two.
    """

    def published(phase: str, context: int) -> float:
        chosen = (
            (phases["phase"] == phase) & (phases["context_tokens"] == context) & (phases["quantity"] == "R")
        )
        return float(phases.loc[chosen, "value"].item())

    rows = []
    for row in confirmatory.to_dict("records"):
        context = row["context_tokens"]
        v = PUBLISHED_TOKENS / (_BONUS_ROUNDS * published("draft-free", context))
        c = (PUBLISHED_TOKENS / (_ALL_ACCEPT_ROUNDS * published("all-accept", context)) - v) / PUBLISHED_K
        alpha = alpha_from_acceptance(row["acceptance_median"], PUBLISHED_K)
        step_s = row["ar_median_s"] / PUBLISHED_TOKENS
        read_bytes = TARGET_STEP_BYTES + TARGET_KV_BYTES_PER_TOKEN * context
        rows.append(
            {
                "source": row["source"],
                "context_tokens": context,
                "acceptance": row["acceptance_median"],
                "alpha": alpha,
                "v_steps": v,
                "c_steps": c,
                "rounds_n": PUBLISHED_TOKENS / expected_tokens_per_round(alpha, PUBLISHED_K),
                "R_predicted": predicted_R(c, v, PUBLISHED_K, alpha, new_tokens=None),
                "R_predicted_finite": predicted_R(c, v, PUBLISHED_K, alpha, new_tokens=PUBLISHED_TOKENS),
                "R_published": row["R_GM"],
                "R_bonus_predicted": PUBLISHED_TOKENS / (_BONUS_ROUNDS * ((PUBLISHED_K + 1) * c + v)),
                "R_bonus_published": published("all-accept-bonus", context),
                "ar_step_s": step_s,
                "roofline_share": read_bytes / step_s / GPU_BYTES_PER_S,
            }
        )
    return validate(pd.DataFrame(rows), "audit")


def _check(formulation: str, alpha: float, k: int) -> None:
    acceptance_from_alpha(alpha, k)  # refuses an alpha that is no probability, and k < 1
    if formulation not in FORMULATIONS:
        raise InvalidSetting(f"Formulation {formulation!r}.", expected=" or ".join(FORMULATIONS))
