"""The cost-model chapter: the fitted cost line, and what it says of a round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib import costmodel
from specdec_lib.costfit import along
from specdec_lib.guesses import draft_costs
from specdec_lib.report import figures, folders, mechanisms, style, text
from specdec_lib.report.style import number

Table = folders.Table
PHASE, FIT = "cost-model", "cost-fit.csv"
_STEADY = 0.1  # two measurements of one AR step that differ by more are told
_APART = 0.05  # shares of layers and of bytes nearer than this tell nothing
CLEARLY = 0.2  # the nearer of two guesses must be nearer by this share of the farther one's distance


@dataclass(frozen=True)
class Line:
    """The fitted cost line at one context, in AR steps."""

    context: int
    c: float  # a draft forward
    repair: float
    overhead: float  # per round
    extrapolated: bool
    blocks: tuple[tuple[float, float], ...]  # a verification: (rows, cost) as fitted, one row being a step

    def verify(self, rows: float) -> float:
        """One verification of a block of ``rows``, between the fitted ones."""
        return along(dict(self.blocks), rows)

    def R_of(self, counts: costmodel.Counts) -> float:
        """R of a run with exactly these counts."""
        return (counts.emitted - 1) / counts.cost(self.c, self.verify, self.repair, self.overhead)

    def predicted_R(self, alpha: float, k: int, formulation: str, bonus: bool, new_tokens: int) -> float:
        """R of a run of exactly ``new_tokens`` tokens."""
        return self.R_of(_expected(alpha, k, new_tokens, formulation, bonus))

    def break_even(self, k: int, formulation: str, bonus: bool, new_tokens: int) -> float | None:
        """The smallest alpha that pays; 0 if all do, None if none does."""
        return costmodel.break_even_alpha(
            self.c, self.verify, k, formulation, bonus, self.repair, self.overhead, new_tokens
        )


@lru_cache(maxsize=4096)
def _expected(alpha: float, k: int, new_tokens: int, formulation: str, bonus: bool) -> costmodel.Counts:
    """Counts do not hang on costs: every line of a page shares them."""
    return costmodel.expected_counts(alpha, k, new_tokens, formulation, bonus)


def line_at(fit: Table, context: int) -> Line:
    """The line of a context from the table "cost-fit"."""
    here = fit[fit["context_tokens"] == context]
    blocks = here[here["component"] == "verification"]
    fitted = zip(blocks["k"].astype(float) + 1, blocks["steps"].astype(float), strict=True)
    return Line(
        context, _steps(here, "draft forward"), _steps(here, "repair"), _steps(here, "round overhead"),
        bool(here["extrapolated"].any()), ((1.0, 1.0), *fitted),
    )  # fmt: skip


def lines(one: folders.Results) -> dict[int, Line]:
    """The fitted line of every context; none where the folder has no fit."""
    if not one.has(FIT):
        return {}
    fit = one.table(FIT, "cost-fit")
    return {int(context): line_at(fit, int(context)) for context in fit["context_tokens"].unique()}


def show(root: Path | None = None) -> None:
    """Every component with its interval, and what it says."""
    for one in mechanisms.having(PHASE, root):
        fit = one.table(FIT, "cost-fit")
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. In AR steps; means over "
            f"{text.families(fit['families_n'].max())} of development texts, each fitted alone"
            f"{'; brackets: 95 % t interval' if bool(fit['steps_low'].notna().any()) else ', too few for an interval'}."
        )
        caption += between_sentence(one)
        style.table(fit_table(fit), caption=caption, csv=one.csv(FIT))
        style.use_style()
        told = fit_sentences(fit, one.profile.k)
        alt = "Cost of a verification over k. " + told[0]
        style.figure(fit_figure(fit), alt=alt, caption=caption, csv=one.csv(FIT))
        text.say(
            *mechanisms.conclusions(
                one, f"**{one.label}.** {told[0]}", *step_sentence(one, fit), *ratio_sentence(one, fit)
            )
        )
    mechanisms.say_if_unmeasured(PHASE, root)


def step_sentence(one: folders.Results, fit: Table) -> list[str]:
    """Where the fit's AR step is not the confirmatory run's: both are of one machine."""
    steps: Any = fit[fit["component"] == "ar step"].set_index("context_tokens")["cost_s"]
    told = []
    for row in one.summary.to_dict("records") if one.contexts else []:
        context, run_s = int(row["context_tokens"]), row["ar_median_s"] / (one.profile.new_tokens - 1)
        if context in steps.index and abs(steps[context] / run_s - 1) > _STEADY:
            told.append(
                f"{number(steps[context] * 1e3)} ms at {text.context_name(context)} ({number(run_s * 1e3)} ms "
                "in the confirmatory runs)"
            )
    if not told:
        return []
    return [
        f"An AR step takes {text.listed(told)}: what this line says is in steps of its own runs, "
        "and its costs are no steadier than that."
    ]


def between_sentence(one: folders.Results) -> str:
    """Which verifications no run was made of: their cost is drawn between those of their neighbours."""
    if not one.has("costs.csv"):
        return ""
    costs = one.table("costs.csv", "costs")
    timed = {int(k) for k in costs[costs["formulation"] == "repair-free"]["k"].dropna()}
    between = [k for k in range(1, max(timed, default=0)) if k not in timed]
    if not between:
        return ""
    return f" No run timed k = {text.listed(map(str, between))}: drawn between their neighbours."


def fit_table(fit: Table) -> Table:
    """One row per component, a column per context: "0.31 [0.30, 0.32]"."""
    symbols = {"draft forward": "C_D, a draft forward", "repair": "C_repair, the target's",
               "round overhead": "overhead per round"}  # fmt: skip
    columns: dict[str, dict[str, str]] = {}
    for context, here in fit.groupby("context_tokens", sort=True):
        beyond = " (extrapolated)" if here["extrapolated"].any() else ""
        column = columns.setdefault(f"{text.context_name(context)}{beyond}", {})
        for row in here.to_dict("records"):
            name = str(row["component"])
            if name == "repair" and not row["steps"]:
                column[symbols["repair"]] = "not fitted: no repair"
            elif name == "ar step":
                column["AR step, ms"] = _bracketed(row, "cost", "_s", 1e3)
            elif name == "verification":
                column[f"C_verify({row['k']}), {row['k'] + 1} rows"] = _bracketed(row, "steps", "", 1)
            else:
                column[symbols.get(name, name)] = _bracketed(row, "steps", "", 1)
    return pd.DataFrame(columns).rename_axis("component").reset_index()


def fit_sentences(fit: Table, k: int) -> list[str]:
    """What a round of k costs and which part is the largest, per context."""
    costs, largest = [], []
    for context in sorted({int(context) for context in fit["context_tokens"]}):
        line = line_at(fit, context)
        parts = {"the draft": k * line.c, "verification": line.verify(k + 1), "overhead": line.overhead}
        top = max(parts, key=lambda name: parts[name])
        largest.append(top)
        costs.append(
            f"at {text.context_name(context)} {number(k * line.c)} for {text.counted(k, 'draft forward')}, "
            f"{number(parts['verification'])} for the verification and {number(line.overhead)} of "
            f"overhead, in sum {number(sum(parts.values()))}"
        )
    where = " at every context" if len(set(largest)) == 1 else ", but not at every context"
    told = f"The largest part is {largest[0]}{where}."
    return [
        f"A repair-free round of k = {k} costs, in AR steps: {'; '.join(costs)}. It yields at most "
        f"{k + 1} tokens with the bonus. {told}"
    ]


def ratio_sentence(one: folders.Results, fit: Table) -> list[str]:
    """Whether the draft's cost follows its layers or its bytes."""
    models = one.provenance.get("models")
    if not models:
        return []
    contexts = sorted({int(context) for context in fit["context_tokens"]})
    c = [line_at(fit, context).c for context in contexts]
    guessed = [draft_costs(models, context) for context in contexts]
    layers, shares = guessed[0]["layers"], [guess["bytes"] for guess in guessed]
    return [
        f"A draft forward costs c = {text.span(c)} AR steps. The draft has {number(layers)} of the target's "
        f"layers and reads {text.span(shares)} of its bytes: {c_follows(c, layers, shares)}."
    ]


def c_follows(c: list[float], layers: float, shares: list[float]) -> str:
    """Which share c is nearer to, of the layers or of the bytes, and that it is c alone that was compared."""
    by_bytes = sum(abs(v - s) for v, s in zip(c, shares, strict=True))
    off = {"layers": sum(abs(v - layers) for v in c), "bytes": by_bytes}
    nearer, farther = sorted(off, key=lambda name: off[name])
    if max(abs(layers - share) for share in shares) < _APART:
        return "the two are too near to each other to tell what c follows"
    if off[nearer] < (1 - CLEARLY) * off[farther]:
        return f"c alone is nearer to its {nearer}"
    between = all(min(layers, s) < v < max(layers, s) for v, s in zip(c, shares, strict=True))
    where = "between the two" if between else "as far from the one as from the other"
    return f"c alone lies {where}, and the data do not tell which it follows"


def fit_figure(fit: Table) -> figures.Figure:
    """Verification over k with its interval, and the draft's k forwards, a colour per context."""
    fig, ax = figures.axes(3.4)
    for look, (context, here) in zip(style.SERIES, fit.groupby("context_tokens", sort=True), strict=False):
        blocks = here[here["component"] == "verification"]
        k, steps = blocks["k"].astype(float), blocks["steps"]
        spread = [steps - blocks["steps_low"].fillna(steps), blocks["steps_high"].fillna(steps) - steps]
        name = text.context_name(context)
        ax.errorbar(k, steps, yerr=spread, color=look.colour, marker=look.marker, linestyle="-", capsize=3,
                    label=f"{name}: verification of k + 1 rows")  # fmt: skip
        c = _steps(here, "draft forward")
        ax.plot(k, k * c, color=look.colour, linestyle="--", marker="", label=f"{name}: k draft forwards")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("k")
    ax.set_ylabel("cost in AR steps")
    return figures.finished(fig, ncols=2)


def _steps(here: Table, component: str) -> float:
    return float(here[here["component"] == component]["steps"].iloc[0])


def _bracketed(row: dict[str, Any], name: str, unit: str, scale: float) -> str:
    value, low, high = (row[f"{name}{end}{unit}"] for end in ("", "_low", "_high"))
    told = number(value * scale)
    return told if pd.isna(low) else f"{told} [{number(low * scale)}, {number(high * scale)}]"
