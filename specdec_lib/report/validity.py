"""Is the measurement valid: A/A runs, the limits they give, and what a small interval is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, models, style, text
from specdec_lib.report.style import number

COMMAND = "make runs PROFILE=cpu-full INTO=my-cpu-full"
SLOWDOWN = 1.1
_ARMS = ("ar", "ar-again")


def show_aa(root: Path | None = None) -> None:
    """R of AR against AR per context, and the planted slow-down."""
    found = folders.all_with("aa.csv", root)
    if not found:
        text.say(text.not_measured("AR against AR", COMMAND))
    text.say(models.synthetic_told(found))
    for one in found:
        _show_aa(one)


def _show_aa(one: folders.Results) -> None:
    plain, planted, families = aa(one)
    rows = [
        {"context": text.context_name(row["context_tokens"]), "runs": runs, "R_GM": text.estimate(row),
         "families": row["n_in_inference"],
         "interval contains 1": _holds(row)}
        for runs, table in (("A/A, as measured", plain),
                            (f"{text.percent(SLOWDOWN - 1, 0)} added to the second arm's recorded times (arithmetic)",
                             planted))
        for row in table.to_dict("records")
    ]  # fmt: skip
    caption = (
        f"{one.label}: {one.hardware}. Development families, {one.profile.repeats} repeats, the plan "
        f"of the confirmatory run."
    )
    style.table(pd.DataFrame(rows), caption=caption, csv=one.csv("aa.csv"))
    text.say(f"**{one.label}.** {aa_sentence(plain, families, one)} {planted_sentence(planted)}")


def aa(one: folders.Results) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Summary of the A/A runs, of the same with the planted slow-down, and the A/A families table."""
    from specdec_lib.analysis import families_table, summary_table
    from specdec_lib.validity import plant_slowdown

    runs = one.optional("aa")
    assert runs is not None
    families = families_table(runs, one.design, arms=_ARMS)
    slowed = families_table(plant_slowdown(runs, "ar-again", SLOWDOWN), one.design, arms=_ARMS)
    return summary_table(families, one.design), summary_table(slowed, one.design), families


def aa_sentence(plain: folders.Table, families: folders.Table, one: folders.Results | None = None) -> str:
    """Whether AR against AR gives 1, as it must; if not, how large that is beside the effects of ``one``."""
    rows = plain.to_dict("records")
    bounded = [row for row in rows if row["low"] == row["low"]]
    worst = float((families["R"] - 1).abs().max())
    tail = f"The largest difference of a single family is {text.percent(worst)}."
    if not bounded:
        return f"No context has an interval here. {tail}"
    missed = [row for row in bounded if not row["low"] <= 1 <= row["high"]]
    if missed:
        return (
            "**AR against AR is not 1 within its interval at "
            f"{text.listed(text.context_name(row['context_tokens']) for row in missed)}**: a bias of the "
            f"measurement, of {text.span((abs(row['R_GM'] - 1) * 100 for row in missed), '%', 2)}"
            f"{_beside(one)}. {tail}"
        )
    where = text.listed(text.context_name(row["context_tokens"]) for row in bounded)
    return f"AR against AR is 1 within its interval at {where}, as it must be. {tail}"


def _beside(one: folders.Results | None) -> str:
    """The effects that a folder's intervals show, to weigh a bias by."""
    rows = one.summary.to_dict("records") if one and one.contexts else []
    effects = [abs(row["R_GM"] - 1) * 100 for row in rows if row["low"] == row["low"]]
    return f"; the effects measured there are {text.span(effects, '%', 2)} (|R_GM - 1|)" if effects else ""


def planted_sentence(planted: pd.DataFrame) -> str:
    """Whether a known slow-down was found."""
    rows = [row for row in planted.to_dict("records") if row["low"] == row["low"]]
    if not rows:
        return ""
    seen = [text.context_name(row["context_tokens"]) for row in rows if row["high"] < 1]
    name = f"A slow-down of {text.percent(SLOWDOWN - 1, 0)}, added to the recorded times (arithmetic, no slowed run),"
    if len(seen) == len(rows):
        return f"{name} is found at {text.listed(seen)}{', the only context run' * (len(planted) == 1)}."
    return (
        f"{name} is found at {text.listed(seen)} only."
        if seen
        else f"**{name} is not found at any context.**"
    )


def show_thresholds(root: Path | None = None) -> None:
    """Limits from the A/A rule beside the frozen ones."""
    found = folders.all_with("thresholds.csv", root)
    if not found:
        text.say(text.not_measured("the limits that A/A runs give", COMMAND))
    for one in found:
        frame = thresholds(one)
        caption = f"{one.label}: the rule's limits and those of design.toml."
        style.table(frame, caption=caption, csv=one.csv("thresholds.csv"))
        text.say(threshold_sentence(frame), consequence(one, root))


def thresholds(one: folders.Results) -> pd.DataFrame:
    """Per check: cells, observed 95th percentile, default, what the rule gives, what is frozen."""
    table: Any = one.optional("thresholds")
    rows = []
    for row in table.to_dict("records"):
        frozen = getattr(one.design.analysis.thresholds(row["device_kind"]), row["check"])
        shown = {name: text.percent(row[name]) for name in ("observed", "default", "threshold")}
        rows.append(
            {"check": row["check"], "A/A cells": row["cells_n"], "95th percentile": shown["observed"],
             "default": shown["default"],
             "by the rule": shown["threshold"], "frozen": text.percent(frozen)}
        )  # fmt: skip
    return pd.DataFrame(rows)


def threshold_sentence(frame: pd.DataFrame) -> str:
    """Whether design.toml holds the limits that the rule gives."""
    other = [row["check"] for row in frame.to_dict("records") if row["by the rule"] != row["frozen"]]
    return (
        f"The frozen limit differs from the rule's for {text.listed(other)}."
        if other
        else "The frozen limits are the rule's."
    )


def consequence(one: folders.Results, root: Path | None = None) -> str:
    """How many cells of each folder of the same kind of device would pass by the rule's limits of these A/A runs, how
    many pass by the frozen ones, and what would fail."""
    table: Any = one.optional("thresholds")
    limits = {row["check"]: float(row["threshold"]) for row in table.to_dict("records")}
    each = []
    for other in folders.measured(root):
        if other.cuda is not one.cuda:
            continue
        failed = failures(other, limits)
        passing, kept = int((~failed.any(axis=1)).sum()), int(other.families["in_inference"].sum())
        lost = text.listed(f"{name} {int(hits)}" for name, hits in failed.sum().items() if hits)
        told = f"{other.named} {passing} of {text.counted(len(failed), 'cell')}"
        notes = [f"{kept} by the frozen limits"] * (passing != kept) + [f"lost: {lost}"] * bool(lost)
        each.append(told + (f" ({'; '.join(notes)})" if notes else ""))
    if not each:
        return ""
    named = text.listed(f"{name} {text.percent(limit)}" for name, limit in limits.items())
    start = f"By the limits that the rule gives for the A/A runs of {one.named} ({named}) these would pass"
    return f"{start}: {', '.join(each)}."


def failures(one: folders.Results, limits: dict[str, float]) -> pd.DataFrame:
    """Per cell and check that excludes: whether it fails by these limits. What failed within its own limit failed for
    another reason, which no limit moves."""
    families: Any = one.families
    own = one.design.analysis.thresholds("gpu" if one.cuda else "cpu")
    found = {}
    for name in one.design.analysis.exclude_on:
        failed, value = families[f"{name}_passed"].eq(False), families[f"{name}_value"].astype(float)
        if name in limits:
            failed = value.gt(limits[name]) | (failed & value.le(getattr(own, name)))
        found[name] = failed.fillna(False).astype(bool)
    return pd.DataFrame(found)


def show_finding(root: Path | None = None) -> None:
    """What A/A runs say of the checks, of R = 1 and of a small effect; and the simulation of the interval."""
    found = folders.all_with("aa.csv", root)
    for one in found:
        plain, planted, families = aa(one)
        text.say(f"**{one.label}.** {' '.join(finding_sentences(one, plain, planted, families))}")
    if first := folders.first_with("coverage.csv", root):
        text.say(coverage_sentences(first.optional("coverage"), first.design.analysis.interval.method)[0])
    if not found and first is None:
        text.say(text.not_measured("AR against AR", COMMAND))


def finding_sentences(
    one: folders.Results, plain: folders.Table, planted: folders.Table, families: folders.Table
) -> list[str]:
    """How many A/A cells the checks refuse, whether that leaves enough to decide anything, and what was decided."""
    n, failed = len(families), int((~families["in_inference"]).sum())
    by_check = {
        name: int(families[f"{name}_passed"].eq(False).sum()) for name in one.design.analysis.exclude_on
    }
    each = text.listed(f"{name} ({hits})" for name, hits in by_check.items() if hits)
    told = [
        f"{failed} of {text.counted(n, 'A/A cell')} {'fails' if failed == 1 else 'fail'} a timing check"
        + (f": {each}. Nothing differs between their arms, so the checks reject {failed} of "
           f"{text.counted(n, 'cell')} for noise alone (exact 95 % interval {_exact(failed, n)})." if failed else ".")
    ]  # fmt: skip
    if (above := above_the_cap(one)) is not None:
        over, checks = above
        if over:
            told.append(
                f"For {over} of {text.counted(checks, 'check')} the 95th percentile lies above the largest "
                "limit that the "
                "rule allows: the machine is noisier than the study accepts, and cells will be lost."
            )
    rest = [text.context_name(context) for context in plain[plain["low"].isna()]["context_tokens"]]
    if rest:
        told.append(
            f"Whether A/A is 1, and whether a slow-down of {text.percent(SLOWDOWN - 1, 0)} would be seen, could not be "
            f"decided at {text.listed(rest)}: the cells that are left are too few for an interval."
        )
    if len(rest) < len(plain):
        told += [aa_sentence(plain, families, one), planted_sentence(planted)]
    return told


def _exact(hits: int, n: int) -> str:
    """ "39.8 to 100 %": the exact (Clopper-Pearson) interval of a share."""
    from scipy.stats import binomtest

    bounds = binomtest(hits, n).proportion_ci(0.95)
    return text.span((float(bounds.low) * 100, float(bounds.high) * 100), "%")


def above_the_cap(one: folders.Results) -> tuple[int, int] | None:
    """Checks whose 95th percentile over A/A cells exceeds twice the default, the most that the rule allows; of all."""
    table: Any = one.optional("thresholds")
    if table is None:
        return None
    return int((table["observed"] > 2 * table["default"]).sum()), len(table)


def show_coverage(root: Path | None = None) -> None:
    """The coverage simulation: figure, table, and what a small study's interval is worth."""
    one = folders.first_with("coverage.csv", root)
    if one is None:
        text.say(text.not_measured("the coverage simulation", COMMAND))
        return
    table: Any = one.optional("coverage")
    style.use_style()
    told = coverage_sentences(table, one.design.analysis.interval.method)
    caption = (
        f"Coverage of {number(int(table['replications_n'].iloc[0]))} simulated studies per point, lognormal "
        f"family effects with standard deviation {table['sigma'].iloc[0]:g} in log R; bars are two Monte "
        "Carlo standard errors. A simulation: no hardware."
    )
    style.figure(coverage_figure(table), alt=" ".join(told), caption=caption, csv=one.csv("coverage.csv"))
    frame = pd.DataFrame(
        {"families": row["families_n"], "interval": row["method"], "coverage": text.percent(row["coverage"]),
         "mean width in log R": row["mean_width"]}
        for row in table.to_dict("records")
    )  # fmt: skip
    style.table(frame, caption="Coverage and width.", csv=one.csv("coverage.csv"))
    text.say(*told)


def coverage_sentences(table: Any, frozen: str) -> list[str]:
    """What the simulation supports, and how far a bootstrap over the fewest families falls short."""
    from specdec_lib.validity import choose_method

    chosen, level = choose_method(table), float(table["level"].iloc[0])
    few, many = int(table["families_n"].min()), int(table["families_n"].max())
    told = "which is the frozen one" if chosen == frozen else f"**but design.toml has {frozen}**"
    lines = [f"The rule chooses {chosen}, {told}."]
    small = table[table["families_n"] == few].set_index("method")
    for name, row in small.iterrows():
        short = level - row["coverage"] > 2 * row["coverage_error"]
        if name != chosen and short:
            lines.append(
                f"With {few} families a nominal {text.percent(level, 0)} interval by {name} contains the "
                f"truth in {text.percent(row['coverage'])} of studies: it promises more than it holds."
            )
    wide = table[table["method"] == chosen].set_index("families_n")["mean_width"]
    if few != many:
        lines.append(
            f"With {few} families the {chosen} interval is {number(float(wide[few] / wide[many]))} times as "
            f"wide as with {many}."
        )
    return lines


def coverage_figure(table: Any) -> figures.Figure:
    """Coverage by number of families, a marker per method, the nominal level as a line."""
    fig, ax = figures.axes(3.2)
    sizes = sorted(table["families_n"].unique(), reverse=True)
    for index, (name, part) in enumerate(table.groupby("method", sort=False)):
        look = style.SERIES[index]
        at = [sizes.index(size) + (index - 1) * 0.16 for size in part["families_n"]]
        mark: Any = {"fmt": look.marker, "color": look.colour, "capsize": 4, "label": name}
        ax.errorbar(part["coverage"] * 100, at, xerr=part["coverage_error"] * 200, **mark)
    level = float(table["level"].iloc[0]) * 100
    ax.axvline(level, color=style.INK, linewidth=1.4, linestyle="-", marker="")
    above: Any = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 10}
    ax.text(level, 1.01, f"nominal {level:g} %", **above)
    ax.set_yticks(range(len(sizes)), [text.families(size) for size in sizes])
    ax.set_ylim(len(sizes) - 0.5, -0.5)
    ax.set_xlabel("studies whose interval contains the truth, %")
    ax.grid(axis="y", visible=False)
    return figures.finished(fig, ncols=3, fontsize=11)


def _holds(row: dict[str, Any]) -> str:
    return "no interval" if pd.isna(row["low"]) else "yes" if row["low"] <= 1 <= row["high"] else "no"
