"""The cost-model chapter: break-even alpha and the best k, predicted and found."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from specdec_lib.report import figures, folders, mechanisms, style, text
from specdec_lib.report.costline import PHASE
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean
from specdec_lib.variants import PHASES

Table = folders.Table


def show(root: Path | None = None) -> None:
    """Break-even alpha and best k by the line, and the best k that was found."""
    for one in mechanisms.having(PHASE, root):
        table = one.table("break-even.csv", "break-even")
        if one.profile.captured:  # it replays repair-free rounds only, and has no repair to fit
            table = table[table["formulation"] == "repair-free"]
        caption = (
            f"{one.label}: {one.hardware}. By the cost line, at the mean pass share of the held-out traces."
        )
        style.table(break_even_table(table), caption=caption, csv=one.csv("break-even.csv"))
        frame = compared(one.table("predictions.csv", "predictions"), mechanisms.by_family(one, PHASE))
        if frame.empty:
            continue
        told = sentences(frame)
        style.use_style()
        label = "synthetic: acceptance imposed" if one.synthetic else "real"
        caption = (
            f"{one.label}: {one.hardware}. Repair-free with bonus, draft paid for ({label}): geometric means "
            "over "
            f"{text.listed(map(text.families, frame.groupby('context_tokens', sort=True)['n'].max()))}, "
            "medians over repeats; dashed: predicted before. Bars: range over families."
        )
        style.figure(figure(frame), alt="R over k, measured and predicted. " + " ".join(told), caption=caption,
                     csv=one.csv(f"{PHASE}.csv"))  # fmt: skip
        told += two_predictions(table, frame)
        text.say(*mechanisms.conclusions(one, f"**{one.label}.** {' '.join(told)}"))
    mechanisms.say_if_unmeasured(PHASE, root)


def break_even_table(table: Table) -> Table:
    """The table "break-even" in words."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]) + (" (extrapolated)" if row["extrapolated"] else ""),
            "formulation": row["formulation"] + (", bonus" if row["bonus"] else ""),
            "c": row["c_steps"],
            f"v at k = {row['k']}": row["v_steps"],
            "alpha of the traces": row["alpha"],
            f"break-even alpha at k = {row['k']}": (
                "none pays" if pd.isna(row["break_even_alpha"])
                else "every alpha pays" if row["break_even_alpha"] == 0 else number(row["break_even_alpha"])
            ),
            "best k": row["best_k"],
            "R there": row["R_at_best_k"],
        }
        for row in table.to_dict("records")
    )  # fmt: skip


def compared(predictions: Table, cells: Table) -> Table:
    """Per context and k of the repair-free engine with its real draft: R predicted and measured, over families."""
    keys = ["context_tokens", "family", "k"]
    engines = [
        v.name for v in PHASES[PHASE] if v.proposer == "draft" and v.formulation == "repair-free" and v.bonus
    ]
    real = [t[t["variant"].isin(engines)] for t in (predictions, cells)]
    joined = real[0][[*keys, "R_predicted", "extrapolated"]].merge(real[1][[*keys, "R"]], on=keys)
    rows = [
        {"context_tokens": int(context), "k": int(k), "n": len(part),
         "predicted": geometric_mean(part["R_predicted"]), "measured": geometric_mean(part["R"]),
         "low": float(part["R"].min()), "high": float(part["R"].max())}
        for (context, k), part in joined.groupby(["context_tokens", "k"], sort=True)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["context_tokens", "k", "n", "predicted", "measured", "low", "high"])


def sentences(frame: Table) -> list[str]:
    """Per context: the best k predicted and found, and what following the prediction costs."""
    told = []
    for context, part in frame.groupby("context_tokens", sort=True):
        chosen, found = part.loc[part["predicted"].idxmax()], part.loc[part["measured"].idxmax()]
        start = (
            f"At {text.context_name(context)} the best of k = {text.listed(str(k) for k in part['k'])} "
            f"is predicted to be {int(chosen['k'])} (R = {number(chosen['predicted'])})"
        )
        told.append(
            f"{start}, and it was (R = {number(found['measured'])})."
            if chosen["k"] == found["k"]
            else f"{start}; found best: {int(found['k'])} (R = {number(found['measured'])}). Following the prediction "
            f"gives R = {number(chosen['measured'])}, "
            f"{text.percent(1 - chosen['measured'] / found['measured'])} less."
        )
    return told


def two_predictions(table: Table, frame: Table) -> list[str]:
    """Where the table and the figure predict another best k by one cost line: what each of them takes, and both k."""
    engine = table[(table["formulation"] == "repair-free") & table["bonus"].astype(bool)]
    by_alpha = {int(row["context_tokens"]): int(row["best_k"]) for row in engine.to_dict("records")}
    other = []
    for context, part in frame.groupby("context_tokens", sort=True):
        by_trace = int(part.loc[part["predicted"].idxmax(), "k"])
        if by_alpha.get(int(context), by_trace) != by_trace:
            both = f"{by_alpha[int(context)]} by the table and {by_trace} by the figure"
            other.append(f"{both} at {text.context_name(int(context))}")
    if not other:
        return []
    return [
        "The table takes one alpha for all positions and any k, the figure each text's own trace and the k that were "
        f"run. So one cost line predicts two best k: {'; '.join(other)}."
    ]


def figure(frame: Table) -> figures.Figure:
    """R over k: measured with the range of families, predicted dashed, a colour per context."""
    from matplotlib.ticker import FixedLocator

    fig, ax = figures.axes(3.4)
    groups = list(frame.groupby("context_tokens", sort=True))
    for place, (look, (context, part)) in enumerate(zip(style.SERIES, groups, strict=False)):
        name, at = text.context_name(context), part["k"] + (place - (len(groups) - 1) / 2) * 0.12
        # a mean over one family may differ from its own value by a rounding
        ends = (part["measured"] - part["low"], part["high"] - part["measured"])
        spread = [end.clip(lower=0) for end in ends]
        ax.errorbar(
            at, part["measured"], yerr=spread, color=look.colour, marker=look.marker, linestyle="-", capsize=3,
            label=f"{name} measured",
        )  # fmt: skip
        ax.plot(
            at, part["predicted"], color=look.colour, linestyle="--", marker="", label=f"{name} predicted"
        )
    figures.log_axis(ax, "y", [*frame["low"], *frame["high"], *frame["predicted"], 1.0])
    ax.axhline(1, color=style.INK, linewidth=1.4, linestyle="-", marker="")
    ax.xaxis.set_major_locator(FixedLocator(sorted(set(frame["k"]))))
    ax.set_xlabel("k")
    ax.set_ylabel("R, log scale")
    return figures.finished(fig, ncols=2)
