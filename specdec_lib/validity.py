"""Is the measurement itself to be trusted? Coverage of the interval, limits from A/A runs, a planted
slow-down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats as scipy_stats

from specdec_lib.design import Thresholds
from specdec_lib.errors import InvalidSetting
from specdec_lib.records import validate

Floats = npt.NDArray[np.float64]

TIMING_CHECKS = ("dispersion", "stationary", "order", "undisturbed")
DEFAULT_THRESHOLDS = {
    "cpu": Thresholds(dispersion=0.05, stationary=0.05, order=0.05, undisturbed=0.05),
    "gpu": Thresholds(dispersion=0.02, stationary=0.03, order=0.03, undisturbed=0.01),
}
_STEP = 0.005  # limits are stated to half a per cent
_CHUNK = (
    50  # studies that share one set of resampling weights: bounds memory, leaves every study's law as it is
)


def bootstrap_means(logs: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Bootstrap distributions of the mean: ``logs`` [studies, families] -> [studies, resamples]."""
    n = logs.shape[1]
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n
    return logs @ weights.T


def bootstrap_bounds(logs: Floats, means: Floats, level: float, method: str) -> Floats:
    """Interval of each study's mean from its bootstrap ``means``: [studies, 2]. Vectorised; equals scipy's.

    ``method`` "percentile", or "bca" (Efron 1987; the acceleration of a mean is its skewness / (6 sqrt(n))).
    """
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    ordered = np.sort(means, axis=1)
    if method == "percentile":
        return _at(ordered, np.broadcast_to(tails, (len(logs), 2)))
    centre = logs.mean(axis=1, keepdims=True)
    below = ((means < centre).mean(axis=1) + (means <= centre).mean(axis=1)) / 2
    shift = scipy_stats.norm.ppf(below)[:, None]
    off = logs - centre
    acceleration = ((off**3).sum(axis=1) / (6 * (off**2).sum(axis=1) ** 1.5))[:, None]
    z = shift + scipy_stats.norm.ppf(tails)[None, :]
    return _at(ordered, scipy_stats.norm.cdf(shift + z / (1 - acceleration * z)))


def t_bounds(logs: Floats, level: float) -> Floats:
    """Student's t interval of each study's mean: [studies, 2]."""
    n = logs.shape[1]
    half = scipy_stats.t.ppf((1 + level) / 2, n - 1) * logs.std(axis=1, ddof=1) / math.sqrt(n)
    centre = logs.mean(axis=1)
    return np.stack([centre - half, centre + half], axis=1)


def coverage_table(
    families: Iterable[int] = (16, 4),
    methods: Iterable[str] = ("percentile", "bca", "t-log"),
    sigma: float = 0.3,
    level: float = 0.95,
    replications: int = 4000,
    resamples: int = 2000,
    seed: int = 1,
) -> pd.DataFrame:
    """Coverage and mean width of each interval on simulated studies (schema "coverage").

    Family effects are lognormal: log R is normal with standard deviation ``sigma`` around the true log R_GM.
    (All three methods are equivariant, so the truth is put at 1 and ``sigma`` moves the width, not the
    coverage.)
    """
    rows = []
    for n in families:
        if n < 2:
            raise InvalidSetting(f"{n} families per study.", expected="at least 2")
        rng = np.random.default_rng([seed, n])
        logs = rng.normal(0.0, sigma, size=(replications, n))
        bounds: dict[str, list[Floats]] = {method: [] for method in methods}
        for start in range(0, replications, _CHUNK):
            part = logs[start : start + _CHUNK]
            means = bootstrap_means(part, resamples, rng)
            for method, found in bounds.items():
                found.append(
                    t_bounds(part, level)
                    if method == "t-log"
                    else bootstrap_bounds(part, means, level, method)
                )
        for method, found in bounds.items():
            low, high = np.concatenate(found).T
            coverage = float(((low <= 0) & (high >= 0)).mean())
            rows.append(
                {
                    "families_n": n,
                    "method": method,
                    "level": level,
                    "sigma": sigma,
                    "replications_n": replications,
                    "resamples_n": resamples,
                    "coverage": coverage,
                    "coverage_error": math.sqrt(coverage * (1 - coverage) / replications),
                    "mean_width": float((high - low).mean()),
                }
            )
    return validate(pd.DataFrame(rows), "coverage")


def choose_method(coverage: pd.DataFrame) -> str:
    """The interval method that the simulation supports.

    The rule: of the methods whose coverage is within two Monte Carlo standard errors of the nominal level,
    or above it, for every number of families, the narrowest; if there is none, the one whose worst coverage
    is largest. ``coverage``: :func:`coverage_table`.
    """
    by_method: Any = coverage.assign(
        short=coverage["level"] - coverage["coverage"] - 2 * coverage["coverage_error"]
    ).groupby("method")
    summary = by_method.agg(short=("short", "max"), width=("mean_width", "mean"), worst=("coverage", "min"))
    good = summary[summary["short"] <= 0]
    return str(summary["worst"].idxmax() if good.empty else good["width"].idxmin())


def thresholds_from_aa(families: pd.DataFrame, device_kind: str) -> pd.DataFrame:
    """Limits of the timing checks from A/A cells (schema "thresholds").

    The rule, fixed before any confirmatory run: over the A/A cells take the 95th percentile of the check's
    value (the order statistic at or above it), round up to half a per cent, and keep it between half and
    twice the study's default. Nothing to compare in an A/A cell can be a real effect, so what it shows is
    noise; the lower bound keeps a quiet afternoon from setting limits that no later run meets, the upper one
    a bad machine from passing everything. A check that no cell could compute keeps its default.

    ``families``: :func:`specdec_lib.analysis.families_table` of A/A runs.
    """
    if device_kind not in DEFAULT_THRESHOLDS:
        raise InvalidSetting(f"Device kind {device_kind!r}.", expected=" or ".join(DEFAULT_THRESHOLDS))
    rows = []
    for name in TIMING_CHECKS:
        default = getattr(DEFAULT_THRESHOLDS[device_kind], name)
        values = families[f"{name}_value"].dropna().to_numpy(dtype="float64")
        observed = float(np.quantile(values, 0.95, method="higher")) if values.size else None
        limit = default
        if observed is not None:
            # Rounding first: 0.035 / 0.005 is 7.000...01 in binary and must not become eight steps.
            rounded = math.ceil(round(observed / _STEP, 9)) * _STEP
            limit = round(min(max(rounded, default / 2), default * 2), 9)
        rows.append(
            {
                "device_kind": device_kind,
                "check": name,
                "cells_n": values.size,
                "observed": observed,
                "default": default,
                "threshold": limit,
            }
        )
    return validate(pd.DataFrame(rows), "thresholds")


def plant_slowdown(runs: pd.DataFrame, arm: str, factor: float) -> pd.DataFrame:
    """A copy of ``runs`` in which every decode time of ``arm`` is ``factor`` times as long, by the wall clock and by
    the device's events. The study must notice."""
    planted = runs.copy()
    clocks = [name for name in ("decode_s", "device_event_s") if name in planted]
    planted.loc[planted["arm"] == arm, clocks] *= factor
    return planted


def _at(ordered: Floats, quantiles: Floats) -> Floats:
    """Linear-interpolation quantiles of sorted rows: [studies, resamples], [studies, q] -> [studies, q]."""
    place = np.clip(quantiles, 0, 1) * (ordered.shape[1] - 1)
    lower = np.floor(place).astype(np.intp)
    upper = np.minimum(lower + 1, ordered.shape[1] - 1)
    below, above = np.take_along_axis(ordered, lower, 1), np.take_along_axis(ordered, upper, 1)
    return below + (above - below) * (place - lower)
