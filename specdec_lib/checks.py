"""The six timing-quality checks of one (family, context) cell.

Each takes the cell's runs, the limits and the profile, and says whether the cell may enter the inference.
``passed`` is None where the plan cannot tell (two repeats have no dispersion); that is shown and excludes
nothing. Adding a check is one function and one line in ``CHECKS`` (and its name in the design's
``CheckName``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pandas as pd

from specdec_lib.design import Profile, Thresholds
from specdec_lib.load import UNSEEN_S
from specdec_lib.stats import robust_cv, robust_slope

# Three points are the fewest with which a spread or a drift differs from a plain difference of two.
_MIN_REPEATS = 3
# One run per block would test the noise of single runs, not the order.
_MIN_PER_BLOCK = 2
_GPU_COLUMNS = ("device_event_s", "throttled", "other_gpu_processes_n")


@dataclass(frozen=True)
class Check:
    """Outcome of one check: ``value`` was compared with ``limit``; ``note`` says what was seen."""

    name: str
    passed: bool | None
    value: float | None
    limit: float | None
    note: str


def complete(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """Every planned repeat of both arms is there once, and emitted exactly the planned tokens."""
    planned = set(range(1, profile.repeats + 1))
    whole = runs[runs["new_tokens"] == profile.new_tokens]
    good = sum(len(planned & set(repeats)) for repeats in _by_arm(whole, "repeat").values())
    surplus = len(runs) - good
    share = good / (2 * profile.repeats)
    note = f"{good} of {2 * profile.repeats} planned runs with {profile.new_tokens} tokens"
    if surplus:
        note += f", {surplus} repeated, unplanned or of another length"
    return Check("complete", share == 1 and surplus == 0, share, 1.0, note)


def deterministic(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """Identical tokens in all repeats of an arm; the value is the larger number of different outputs."""
    outputs = _by_arm(runs, "tokens_sha256")
    if max(map(len, outputs.values())) < 2:
        return _cannot("deterministic", 1.0, "one repeat cannot show it")
    different = {arm: float(len(set(hashes))) for arm, hashes in outputs.items()}
    worst = max(different.values())
    return Check("deterministic", worst == 1, worst, 1.0, _per_arm(different))


def dispersion(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """Robust coefficient of variation of the decode time, of the worse arm."""
    times = _by_arm(runs, "decode_s")
    if min(map(len, times.values())) < _MIN_REPEATS:
        return _cannot("dispersion", limits.dispersion, f"needs {_MIN_REPEATS} repeats per arm")
    return _within("dispersion", {arm: robust_cv(series) for arm, series in times.items()}, limits.dispersion)


def stationary(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """Robust drift of the decode time over the repeats, as a share of the median, of the worse arm."""
    times = _by_arm(runs.sort_values("repeat"), "decode_s")
    if min(map(len, times.values())) < _MIN_REPEATS:
        return _cannot("stationary", limits.stationary, f"needs {_MIN_REPEATS} repeats per arm")
    drift = {arm: abs(robust_slope(series)) for arm, series in times.items()}
    return _within("stationary", drift, limits.stationary)


def order(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """Medians of the AB and the BA block agree, as a share of the arm's median, of the worse arm."""
    ab, ba = (_by_arm(runs[runs["block"] == block], "decode_s") for block in ("AB", "BA"))
    times = _by_arm(runs, "decode_s")
    if any(len(block.get(arm, ())) < _MIN_PER_BLOCK for block in (ab, ba) for arm in times):
        return _cannot("order", limits.order, f"needs {_MIN_PER_BLOCK} repeats per arm and block")
    gap = {arm: abs(median(ab[arm]) - median(ba[arm])) / median(series) for arm, series in times.items()}
    return _within("order", gap, limits.order)


def undisturbed(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> Check:
    """CPU time used by others stays within the limit in every run. On a GPU: beyond 20 ms, since the system counts in
    ticks of 10 ms and runs are short; and wall time agrees with device events within the limit, no throttle reason, no
    other process on the device.

    Where a GPU run did not record those, the check cannot be computed.
    """
    limit = limits.undisturbed
    table: Any = runs.assign(others_cpu_share=others_share(runs))  # pandas' types lose what table[column] is
    worst = {arm: max(shares) for arm, shares in _by_arm(table, "others_cpu_share").items()}
    if not table["device"].str.startswith("cuda").any():
        return _within("undisturbed", worst, limit)
    recorded = [name for name in _GPU_COLUMNS if name in table and not table[name].isna().any()]
    if len(recorded) < len(_GPU_COLUMNS):
        return _cannot("undisturbed", limit, "device events, throttling or other GPU processes not recorded")
    events = _by_arm(runs, "device_event_s")
    for arm, walls in _by_arm(runs, "decode_s").items():
        gaps = (abs(wall - event) / wall for wall, event in zip(walls, events[arm], strict=True))
        worst[arm] = max(worst[arm], *gaps)
    seen = _within("undisturbed", worst, limit)
    faults = ["throttled"] if table["throttled"].any() else []
    faults += ["other GPU processes"] if (table["other_gpu_processes_n"] > 0).any() else []
    return replace(seen, passed=bool(seen.passed) and not faults, note="; ".join([seen.note, *faults]))


def others_share(runs: Any) -> Any:
    """CPU time of other processes as a share of each run's time; on a GPU, less what the system's ticks cannot show."""
    if not runs["device"].str.startswith("cuda").any():
        return runs["others_cpu_share"]
    return (runs["others_cpu_share"] - UNSEEN_S / runs["decode_s"]).clip(lower=0)


def disturbed(runs: Any, limit: float) -> Any:
    """For each run by itself, what ``undisturbed`` asks of a cell: True where others took more than ``limit``.

    On a GPU also where the device's events and the wall clock disagree by more, where it throttled, and where another
    process was on it; what was not recorded counts as undisturbed.
    """
    found = others_share(runs) > limit
    if runs["device"].str.startswith("cuda").any():
        if "device_event_s" in runs:
            gap = (runs["decode_s"] - runs["device_event_s"].astype("float64")).abs() / runs["decode_s"]
            found |= (gap > limit).fillna(False)
        for name in ("throttled", "other_gpu_processes_n"):
            if name in runs:
                found |= runs[name].astype("float64").fillna(0.0) > 0
    return found


CHECKS: dict[str, Callable[[pd.DataFrame, Thresholds, Profile], Check]] = {
    check.__name__: check for check in (complete, deterministic, dispersion, stationary, order, undisturbed)
}


def run_checks(runs: pd.DataFrame, limits: Thresholds, profile: Profile) -> dict[str, Check]:
    """All checks on the runs of one (family, context) cell, by name. ``runs``: rows of a confirmatory or aa
    table."""
    return {name: check(runs, limits, profile) for name, check in CHECKS.items()}


def _by_arm(runs: Any, column: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}  # a cell has ten rows, and there are thousands of questions: no groupby
    for arm, value in zip(runs["arm"], runs[column], strict=True):
        found.setdefault(str(arm), []).append(value)
    return dict(sorted(found.items()))


def _within(name: str, per_arm: dict[str, float], limit: float) -> Check:
    worst = float(max(per_arm.values()))
    shown = {arm: value * 100 for arm, value in per_arm.items()}
    return Check(name, worst <= limit, worst, limit, _per_arm(shown, " %"))


def _cannot(name: str, limit: float, why: str) -> Check:
    return Check(name, None, None, limit, f"not computed: {why}")


def _per_arm(values: dict[str, float], unit: str = "") -> str:
    return ", ".join(f"{arm} {value:.3g}{unit}" for arm, value in values.items())
