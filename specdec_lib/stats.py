"""Ratios, geometric mean, intervals over families, and the two named acceptance quantities.

Families are resampled, not runs: a family is the unit over which the study generalises. Every interval is
made on log R and exponentiated, so that scaling one arm's times scales the estimate and both bounds alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts load on first use: scipy.stats alone takes half a second, on every page

from specdec_lib.design import Interval
from specdec_lib.errors import InvalidSetting

Values = Sequence[float] | npt.NDArray[np.float64]

# Logs closer together than this are one value; their spread is rounding and no interval can be made of it.
_SAME = 1e-12
# Steps of the bootstrap's grid over the spread of the logs: far finer than any timing, far coarser than
# rounding.
_GRID = 2**24


@dataclass(frozen=True)
class Estimate:
    """R_GM of ``n`` families with its interval; ``low``, ``high``, ``method`` are None without one."""

    n: int
    R_GM: float | None
    low: float | None
    high: float | None
    verdict: str
    method: str | None


def paired_ratios(ar_s: Values, spec_s: Values) -> npt.NDArray[np.float64]:
    """T_AR / T_Spec per family; above 1 speculation is faster. Both in seconds, same length, positive.

    Raises:
        InvalidSetting: lengths differ, or a time is not positive.
    """
    ar, spec = _positive(ar_s), _positive(spec_s)
    if ar.shape != spec.shape:
        raise InvalidSetting(
            f"{ar.size} AR times against {spec.size} SpecDec times.", expected="one pair per family"
        )
    return ar / spec


def geometric_mean(ratios: Values) -> float:
    """exp(mean(log R)). Raises InvalidSetting for none, or for a ratio that is not positive."""
    return float(np.exp(np.log(_positive(ratios)).mean()))


def estimate(ratios: Values, interval: Interval, repeats: int | None = None) -> Estimate:
    """R_GM, its interval and the verdict, from one ratio per family.

    With fewer than ``interval.min_families`` families, or ``repeats`` below ``interval.min_repeats``, there
    is no interval, and the verdict says so.
    """
    n = len(ratios)
    mean = geometric_mean(ratios) if n else None
    if n < interval.min_families or (repeats is not None and repeats < interval.min_repeats):
        return Estimate(n, mean, None, None, verdict(None, None), None)
    low, high = family_interval(ratios, interval)
    return Estimate(n, mean, low, high, verdict(low, high), interval.method)


def family_interval(ratios: Values, interval: Interval) -> tuple[float, float]:
    """Two-sided interval of R_GM over families, by the design's method. Needs at least two ratios.

    Percentile and BCa (Efron 1987) are scipy's bootstrap of the mean of log R; t-log is Student's t on the
    logs. Equal ratios give an interval of zero width: the data show no spread, which is not the same as
    certainty.
    """
    # Sorted, so that the seeded resampling gives one answer whatever the order in which families are listed.
    logs = np.sort(np.log(_positive(ratios)))
    if logs.size < 2:
        raise InvalidSetting(f"An interval over {logs.size} family.", expected="at least two families")
    if np.ptp(logs) <= _SAME * max(1.0, float(np.abs(logs).max())):
        point = float(np.exp(logs.mean()))
        return point, point
    if interval.method == "t-log":
        half = t_half_width(logs, interval.level)
        return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))
    # On a grid of whole numbers sums are exact. Otherwise rounding breaks ties between resampled and
    # observed means at random, and BCa, which counts the means below the observed one, jumps for times that
    # differ in no digit.
    spread = np.ptp(logs) / _GRID
    grid = np.round((logs - logs[0]) / spread)
    result = scipy.stats.bootstrap(
        (grid,),
        np.mean,
        n_resamples=interval.resamples,
        confidence_level=interval.level,
        method="BCa" if interval.method == "bca" else "percentile",
        rng=np.random.default_rng(interval.seed),
    ).confidence_interval
    return float(np.exp(logs[0] + result.low * spread)), float(np.exp(logs[0] + result.high * spread))


def t_half_width(values: Values, level: float) -> float:
    """Half the width of Student's t interval of the mean. Needs at least two values."""
    data = np.asarray(values, dtype=np.float64)
    quantile = scipy.special.stdtrit(data.size - 1, (1 + level) / 2)
    return float(quantile * data.std(ddof=1) / math.sqrt(data.size))


def verdict(low: float | None, high: float | None) -> str:
    """ "pays" if the whole interval is above 1, "does not" if below, else "undecided"; "no interval" without
    one."""
    if low is None or high is None:
        return "no interval"
    if low > 1:
        return "pays"
    return "does not" if high < 1 else "undecided"


def acceptance_from_alpha(alpha: float, k: int) -> float:
    """Accepted / proposed at fixed ``k``: (alpha + ... + alpha^k) / k = alpha (1 - alpha^k) / (k (1 -
    alpha))."""
    _probability(alpha, "alpha")
    return sum(alpha**j for j in range(1, _k(k) + 1)) / k  # the sum has no 0 / 0 at alpha = 1


def alpha_from_acceptance(acceptance: float, k: int) -> float:
    """The alpha that gives ``acceptance`` at fixed ``k``; the inverse of :func:`acceptance_from_alpha`."""
    _probability(acceptance, "acceptance")
    if acceptance in (0.0, 1.0):
        return acceptance
    root = scipy.optimize.brentq(
        lambda alpha: acceptance_from_alpha(alpha, k) - acceptance, 0.0, 1.0, xtol=1e-14
    )
    return float(root)  # pyright: ignore[reportArgumentType]


def expected_tokens_per_round(alpha: float, k: int, bonus: bool = False) -> float:
    """Mean tokens committed per round of fixed ``k`` (Leviathan et al. 2023, eq. 1).

    (1 - alpha^(k+1)) / (1 - alpha) with bonus, (1 - alpha^k) / (1 - alpha) without.
    """
    _probability(alpha, "alpha")
    return sum(alpha**j for j in range(_k(k) + bonus))


def robust_cv(values: Values) -> float:
    """1.4826 MAD / median: for normal data the coefficient of variation, but one outlier does not move it."""
    data = _positive(values)
    return float(1.4826 * np.median(np.abs(data - np.median(data))) / np.median(data))


def robust_slope(values: Values) -> float:
    """Drift over the series as a share of its median: Theil-Sen slope per step x n / median. Needs two
    values."""
    data = _positive(values)
    if data.size < 2:
        raise InvalidSetting("A slope over one value.", expected="at least two values, in the order measured")
    slope: Any = scipy.stats.theilslopes(data)[0]
    return float(slope * data.size / np.median(data))


def _positive(values: Values) -> npt.NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.all(np.isfinite(data) & (data > 0)):
        raise InvalidSetting(
            f"Times and ratios {data.tolist()}.",
            expected="at least one, all positive and finite",
            remedy="look at the runs that these come from",
        )
    return data


def _probability(value: float, name: str) -> None:
    if not 0 <= value <= 1:
        raise InvalidSetting(f"{name} = {value!r}.", expected="a probability from 0 to 1")


def _k(k: int) -> int:
    if k < 1:
        raise InvalidSetting(f"k = {k!r}.", expected="at least 1")
    return k
