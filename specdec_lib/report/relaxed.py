"""The relaxed chapter: what a wider acceptance buys, and what the text pays for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import costline, figures, folders, formulations, mechanisms, style, text
from specdec_lib.report.style import number
from specdec_lib.stats import acceptance_from_alpha

PHASE, QUALITY = "relaxed", "relaxed-quality.csv"
PUBLISHED = {"published (not exact)": "relaxed"}


def tradeoff(one: folders.Results) -> folders.Table:
    """One row per (context, delta): those of :func:`mechanisms.by_variant`, with ``acceptance_predicted``,
    ``R_predicted`` (NaN where there is nothing to predict from), ``first_divergence`` (median over the families that
    leave AR's text), ``log_probability`` per token less AR's, ``format_kept``, ``format_kept_ar``, ``format_n``."""
    frame = mechanisms.by_variant(one, PHASE)
    quality: Any = one.table(QUALITY, "quality")
    predicted = predictions(one)
    rows = []
    for row in frame.to_dict("records"):
        here = quality[quality["context_tokens"] == row["context"]].set_index("family")
        mine, ar = (here[here["variant"] == name] for name in (row["variant"], "ar"))
        checked = mine[mine["format"].notna()]
        known = predicted.get((row["context"], float(row["setting"])), {})
        rows.append(
            row
            | {
                "acceptance_predicted": known.get("acceptance", float("nan")),
                "R_predicted": known.get("R", float("nan")),
                "first_divergence": float(mine["first_divergence_tokens"].dropna().astype(float).median()),
                "log_probability": float((mine["mean_log_probability"] - ar["mean_log_probability"]).mean()),
                "format_n": len(checked),
                "format_kept": int(checked["format_kept"].sum()),
                "format_kept_ar": int(ar.loc[checked.index, "format_kept"].sum()),
            }
        )
    return pd.DataFrame(rows)


def predictions(one: folders.Results) -> dict[tuple[int, float], dict[str, float]]:
    """(context, delta) -> acceptance from the shares of the acceptance phase, and R by the fitted cost line."""
    if not one.has("acceptance.csv"):
        return {}
    from specdec_lib.guesses import relaxed_alphas

    k, new = one.profile.k, one.profile.new_tokens
    lines, found = costline.lines(one), {}
    for row in relaxed_alphas(one.table("acceptance.csv", "proposals")).to_dict("records"):
        context, alpha = int(row["context_tokens"]), row["alpha"]
        known = {"acceptance": acceptance_from_alpha(alpha, k)}
        if lines:
            known["R"] = lines[context].predicted_R(alpha, k, "reference", False, new)
        found[context, float(row["delta"])] = known
    return found


def show_price(root: Path | None = None) -> None:
    """Per delta: what is accepted and gained, and how far the text leaves the target's."""
    for one in mechanisms.having(PHASE, root):
        if not one.has(QUALITY):
            text.say(text.not_measured(f"the text of the relaxed variants in {one.named}"))
            continue
        frame, csv = tradeoff(one), one.csv(QUALITY)
        caption = (
            "Counts and medians over families; log-probability: mean over families of the mean per token under the "
            f"target, less AR's, in nats. {_caption(one, frame)}"
        )
        style.table(price_table(frame), caption=caption, csv=csv)
        style.use_style()
        told = [gain_sentence(one, frame), price_sentence(frame, greedy(one))]
        drawn = "Above R_GM, below the change of the text's log-probability under the target; "
        style.figure(
            figure(frame), alt="R and text quality over delta. " + " ".join(told),
            caption=f"{drawn}no delta is exact (at 0 ties pass). {_caption(one, frame)}", csv=csv,
        )  # fmt: skip
    mechanisms.say_if_unmeasured(PHASE, root)


def _caption(one: folders.Results, frame: folders.Table) -> str:
    return f"{mechanisms.caption(one, frame)} Pair {one.profile.pair}."


def show_finding(root: Path | None = None) -> None:
    """What was bought, what was paid, and how well it was predicted."""
    for one in mechanisms.having(PHASE, root):
        if one.has(QUALITY):
            frame = tradeoff(one)
            told = (gain_sentence(one, frame), price_sentence(frame, greedy(one)), prediction_sentence(frame))
            text.say(*mechanisms.conclusions(one, *told))
    mechanisms.say_if_unmeasured(PHASE, root)


def price_table(frame: folders.Table) -> pd.DataFrame:
    """One row per context and delta."""
    rows = [
        {
            "context": text.context_name(row["context"]),
            "variant": mechanisms.labelled(row["variant"], row["label"]),
            "acceptance predicted": number(row["acceptance_predicted"]),
            "acceptance": number(row["acceptance"]),
            "R predicted": number(row["R_predicted"]),
            "R_GM": text.estimate(row),
            "text is AR's": f"{row['identical_n']} of {row['n']}",
            "first other token": "none"
            if row["identical_n"] == row["n"]
            else number(row["first_divergence"] + 1),  # the column counts from 0
            "equal tokens": text.percent(row["equal_share"]),
            "log-probability less AR's": number(row["log_probability"]),
            "form kept (AR)": f"{row['format_kept']} ({row['format_kept_ar']}) of {row['format_n']}"
            if row["format_n"]
            else "–",
        }
        for row in frame.to_dict("records")
    ]
    return pd.DataFrame(rows, dtype=object)


def gain_sentence(one: folders.Results, frame: folders.Table) -> str:
    """What the widest delta buys, and the smallest with R above 1."""
    parts = []
    for context, part in frame.groupby("context", sort=True):
        ordered = part.sort_values("setting")
        first, last = ordered.iloc[0], ordered.iloc[-1]
        above = ordered[ordered["R_GM"] > 1]
        told = "no delta brings R_GM above 1"
        if len(above):
            row = above.iloc[0]
            told = f"{_named(row)} is the first above 1, {text.estimate(row)}"
            if not row["low"] or not row["low"] > 1:
                why = "too few families for an interval" if pd.isna(row["low"]) else "the interval contains 1"
                told = (
                    f"{_named(row)} is the first with a mean above 1, {text.estimate(row)}: undecided, {why}"
                )
            sure = ordered[ordered["low"].astype(float) > 1]
            if len(sure) and sure.index[0] != above.index[0]:
                first_sure = sure.iloc[0]
                told += f"; {_named(first_sure)} is the first with its interval above 1, {text.estimate(first_sure)}"
        parts.append(
            f"At {text.context_name(context)} acceptance goes from {number(first['acceptance'])} to "
            f"{number(last['acceptance'])} and R_GM from {number(first['R_GM'])} to {number(last['R_GM'])}; {told}"
        )
    ends = [frame.loc[at] for at in (frame["setting"].idxmin(), frame["setting"].idxmax())]
    start, end = (mechanisms.labelled(row["variant"], row["label"]) for row in ends)
    return f"In {one.named}, from {start} to {end}: {'. '.join(parts)}."


def _named(row: Any) -> str:
    return mechanisms.labelled(row["variant"], row["label"])


def greedy(one: folders.Results) -> tuple[int, int] | None:
    """Cells in which the output at delta 0 is not that of the greedy rule in the same engine, and all that have both.

    None where no greedy run of the reference formulation is at hand.
    """
    if not one.has(f"{formulations.PHASE}.csv"):
        return None
    mine: Any = one.table(f"{PHASE}.csv", "mechanism")
    other: Any = one.table(f"{formulations.PHASE}.csv", "mechanism")
    keys = ["context_tokens", "family"]
    columns = [*keys, "tokens_sha256"]
    pairs = (
        mine[mine["setting"].eq(0)][columns].drop_duplicates(keys)
        .merge(other[other["variant"] == "reference"][columns].drop_duplicates(keys), on=keys, suffixes=("", "_greedy"))
    )  # fmt: skip
    other_n = int((pairs["tokens_sha256"] != pairs["tokens_sha256_greedy"]).sum())
    return (other_n, len(pairs)) if len(pairs) else None


def price_sentence(frame: folders.Table, against_greedy: tuple[int, int] | None = None) -> str:
    """What that text is, against AR's; and what delta 0 is, against AR and the greedy rule (:func:`greedy`)."""
    top, zero = frame[frame["setting"] == frame["setting"].max()], frame[frame["setting"] == 0]
    kept, n = int(zero["identical_n"].sum()), int(zero["n"].sum())
    exact = (
        "With delta 0 every output is AR's."
        if kept == n
        else f"With delta 0, {kept or 'none'} of {text.counted(n, 'output')} {'is' if kept == 1 else 'are'} AR's."
    )
    if against_greedy:
        other, outputs = against_greedy[0], text.counted(against_greedy[1], "output")
        told = f"here, though, none of {outputs} differs from the greedy rule's."
        if other:
            differ = "differs" if other == 1 else "differ"
            told = f"{other} of {outputs} {differ} from the greedy rule's for that reason alone."
        exact += " At delta = 0 an exact tie for the top still passes, so in BF16 it is not the greedy rule: "
        exact += told
        exact += " The rest is the block's rounding, which flips near-ties." if kept < n else ""
    worse = top["log_probability"]
    nats = number(abs(float(worse.mean())))
    price = (
        f"the target finds the text less probable by {nats} nats per token"
        if (worse < 0).all()
        else f"the target finds the text no less probable ({number(float(worse.mean()))} nats per token)"
        if (worse >= 0).all()
        else f"the text's log-probability changes by {text.span(worse)} nats per token, not to one side"
    )
    form = ""
    if lost := int((top["format_kept_ar"] - top["format_kept"]).sum()):
        form = (
            f" The asked form is lost in {lost} of {int(top['format_n'].sum())} answers that can be checked."
        )
    return (
        f"{exact} With {top.iloc[0]['variant']} (not exact) {text.span(top['equal_share'] * 100)} % of the tokens are "
        f"AR's, and {price}.{form}"
    )


def prediction_sentence(frame: folders.Table) -> str:
    """How far acceptance lies from what the greedy run's logit gaps predict."""
    known = frame[frame["acceptance_predicted"].notna()]
    if known.empty:
        return ""
    off = known["acceptance"] - known["acceptance_predicted"]
    worst = known.loc[off.abs().idxmax()]
    return (
        "The share of proposals within delta in a greedy run predicts the acceptance within "
        f"{number(float(off.abs().max()))} "
        f"(worst: {mechanisms.labelled(worst['variant'], worst['label'])} at {text.context_name(worst['context'])})."
    )


def figure(frame: folders.Table) -> figures.Figure:
    """Two panels over delta: R_GM with its interval, and the change of log-probability; a series per context."""
    import matplotlib.pyplot as plt

    fig, (top, low) = plt.subplots(2, 1, figsize=(figures.WIDTH, 4.6), sharex=True)
    deltas = sorted(frame["setting"].unique())
    for look, (context, part) in zip(style.SERIES, frame.groupby("context", sort=True), strict=False):
        at = [deltas.index(delta) for delta in part["setting"]]
        R = part["R_GM"].astype(float)
        spread = [R - part["low"].astype(float).fillna(R), part["high"].astype(float).fillna(R) - R]
        shape: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": look.line}
        top.errorbar(at, R, yerr=spread, capsize=3, label=f"{text.context_name(context)} tokens", **shape)
        low.plot(at, part["log_probability"], **shape)
    for ax, level, name in ((top, 1, "R_GM"), (low, 0, "log-probability\nless AR's, nats")):
        ax.axhline(level, color=style.INK, linewidth=1.4, linestyle="-", marker="")
        ax.set_ylabel(name)
    names = [f"{delta:g}\n{'not exact' if delta else 'ties pass'}" for delta in deltas]
    low.set_xticks(range(len(deltas)), names)
    low.set_xlabel("delta, logits")
    return figures.finished(fig, ncols=4)
