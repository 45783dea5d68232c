"""The cost line applied to the published tables, arithmetic shown; and the two acceptance quantities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import GPU_BYTES_PER_S, TARGET_KV_BYTES_PER_TOKEN, TARGET_STEP_BYTES, audit
from specdec_lib.pairs import PAIRS
from specdec_lib.report import figures, published, style, text
from specdec_lib.report.style import number

Row = dict[str, Any]
_CLOSE = 0.05  # a prediction within this share of the published value counts as close


def table(root: Path | None = None) -> pd.DataFrame:
    """The audit (schema "audit"), one row per context."""
    return audit(published.confirmatory(root), published.phases(root))


def rows(root: Path | None = None) -> list[Row]:
    """The audit's rows as plain values."""
    return [{str(key): value for key, value in row.items()} for row in table(root).to_dict("records")]


def ratios() -> dict[str, float]:
    """Draft over target of the published pair: layers, and bytes read per decode step."""
    target, draft = PAIRS["qwen2.5-shapes"].shapes or ({}, {})
    return {"layers": draft["layers"] / target["layers"], "bytes": _parameters(draft) / _parameters(target)}


def show(root: Path | None = None) -> None:
    """Both tables, the figure and the findings."""
    found, given = rows(root), published.confirmatory(root)
    caption = "v and c in AR steps; alpha and rounds from the published acceptance."
    style.table(costs(found), caption=caption, csv=published.PHASES_CSV)
    style.table(ratio_table(found), caption="R by the cost line and as published.", csv=published.CSV)
    style.use_style()
    each = (
        f"{text.context_name(row['context_tokens'])}: {number(row['R_predicted'])} predicted, "
        f"{number(row['R_published'])} published"
        for row in found
    )
    alt = f"Predicted against published R. {'; '.join(each)}"
    caption = (
        f"Published R ({published.HARDWARE}) and the cost line's. Bars: published bootstrap intervals over "
        "families; the all-accept values have none."
    )
    style.figure(figure(found, given), alt=alt, caption=caption, csv=published.CSV)
    text.say(*findings(found, given, root))


def costs(found: list[Row]) -> pd.DataFrame:
    """Per context: alpha, the two costs, rounds, AR's time per token."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "alpha": row["alpha"],
            "v": row["v_steps"],
            "c": row["c_steps"],
            "rounds": row["rounds_n"],
            "AR step, ms": row["ar_step_s"] * 1e3,
            "of 256 GB/s": text.percent(row["roofline_share"]),
        }
        for row in found
    )


def ratio_table(found: list[Row]) -> pd.DataFrame:
    """Per context: R predicted and published, without and with the bonus token."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "predicted": row["R_predicted"],
            "published": row["R_published"],
            "all-accept + bonus, predicted": row["R_bonus_predicted"],
            "published ": row["R_bonus_published"],
        }
        for row in found
    )


def show_arithmetic(root: Path | None = None) -> None:
    """Every step of the audit with its numbers, at the shortest context."""
    text.say(*(f"{i}. {step}" for i, step in enumerate(arithmetic(root), start=1)))


def arithmetic(root: Path | None = None) -> list[str]:
    """The audit of the shortest context, step by step, with the published numbers filled in."""
    row, phases = rows(root)[0], published.phases(root)
    context = row["context_tokens"]
    free, full = (
        published.phase_value(phases, phase, "R", context) for phase in ("draft-free", "all-accept")
    )
    bonus_rounds = published.phase_value(phases, "all-accept-bonus", "rounds")
    full_rounds = published.phase_value(phases, "all-accept", "rounds")
    reject = 1 - row["alpha"] ** 4
    cost = 4 * row["c_steps"] + row["v_steps"] + reject
    return [
        f"The draft-free oracle needs {bonus_rounds:g} rounds and runs no draft: v = 64 / ({bonus_rounds:g} "
        f"× {free:g}) = {number(row['v_steps'])} AR steps per verification.",
        f"The all-accept oracle needs {full_rounds:g} rounds of four draft forwards (three proposals after "
        f"the first, and the forward over the last one): c = (64 / ({full_rounds:g} × {full:g}) − "
        f"{number(row['v_steps'])}) / 4 = {number(row['c_steps'])} AR steps per draft forward.",
        f"Acceptance {row['acceptance']:g} at k = 4 means alpha = {number(row['alpha'])}, so 64 tokens take "
        f"{number(row['rounds_n'])} rounds.",
        f"A round costs 4 × {number(row['c_steps'])} + {number(row['v_steps'])} + {number(reject)} (the target's "
        f"repair after a rejection; the draft's is already one of its four forwards) = "
        f"{number(cost)} AR steps and yields {number(64 / row['rounds_n'])} tokens.",
        f"R = {number(64 / row['rounds_n'])} / {number(cost)} = {number(row['R_predicted'])}. Published: "
        f"{number(row['R_published'])}.",
    ]


def findings(found: list[Row], confirmatory: pd.DataFrame, root: Path | None = None) -> list[str]:
    """What the arithmetic says, chosen by its outcome; and what the regimes of ``root`` say of its hypothesis."""
    from specdec_lib.report import launches  # which compares with this audit

    off = _off(found)
    close = sum(value <= _CLOSE for value in off)
    how = f"at {close} of {len(found)} contexts" if close else "at no context"
    how = "at every context" if close == len(found) else how
    inside = [
        text.context_name(row["context_tokens"])
        for row, held in zip(found, _inside(found, confirmatory), strict=True)
        if held
    ]
    held = (
        f"inside the published interval at {text.listed(inside)}"
        if inside
        else "outside every published interval"
    )
    c, shares = [row["c_steps"] for row in found], ratios()
    nearer = min(("bytes", "layers"), key=lambda name: abs(sum(c) / len(c) - shares[name]))
    told = (
        "By c alone the draft's cost follows its layers, not its bytes. That is consistent with a **launch-bound** "
        "draft, of which each layer costs its launches, however small it is: a hypothesis, which these tables cannot "
        f"test. {launches.tested(root)}"
        if nearer == "layers"
        else "By c alone the draft's cost follows its bytes. That is consistent with a draft bound by memory bandwidth."
    )
    times, warning = [row["ar_step_s"] for row in found], ""
    if times[-1] < times[0]:
        first, last = (text.context_name(row["context_tokens"]) for row in (found[0], found[-1]))
        warning = f" AR is faster at {last} than at {first}, although it has more to read: a warning about "
        warning += "validity."
    return [
        f"The cost line predicts the published R within {text.percent(_CLOSE, 0)} {how} (off by "
        f"{text.span(v * 100 for v in off)} %). It lies {held}.",
        f"A draft forward costs c = {text.span(c)} AR steps. The draft has {number(shares['layers'])} of the "
        f"target's layers and {number(shares['bytes'])} of its bytes. {told}",
        f"AR itself takes {text.span((t * 1000 for t in times), 'ms')} per token, "
        f"{text.span(row['roofline_share'] * 100 for row in found)} % of what {GPU_BYTES_PER_S / 1e9:g} GB/s "
        f"would allow for {TARGET_STEP_BYTES / 1e9:.2f} GB of weights and {TARGET_KV_BYTES_PER_TOKEN:,} "
        f"bytes of cache per token.{warning}",
    ]


def show_fit(root: Path | None = None) -> None:
    """Whether the tables fit together, and what that does and does not show."""
    text.say(fit_sentence(rows(root), published.confirmatory(root)))


def fit_sentence(found: list[Row], confirmatory: pd.DataFrame) -> str:
    """At how many contexts the prediction came true: within 5 % of the published R, and inside its interval."""
    close, inside = [off <= _CLOSE for off in _off(found)], _inside(found, confirmatory)
    n = len(found)
    out = [
        text.context_name(row["context_tokens"]) for row, held in zip(found, inside, strict=True) if not held
    ]
    fit = "fit together in part" if any(close) or any(inside) else "do **not** fit together"
    fit = "fit together" if all(close) and all(inside) else fit
    where = f", not at {text.listed(out)}" if out else ""
    return (
        f"The prediction came true within {text.percent(_CLOSE, 0)} at {sum(close)} of "
        f"{text.counted(n, 'context')}, and "
        f"within the published interval at {sum(inside)} of {n}{where}: the tables {fit}."
    )


def _off(found: list[Row]) -> list[float]:
    """How far the predicted R is from the published one, per context."""
    return [abs(row["R_predicted"] / row["R_published"] - 1) for row in found]


def _inside(found: list[Row], confirmatory: pd.DataFrame) -> list[bool]:
    """Whether the predicted R lies inside the published interval, per context."""
    bounds = zip(confirmatory["low"], confirmatory["high"], strict=True)
    return [low <= row["R_predicted"] <= high for row, (low, high) in zip(found, bounds, strict=True)]


def figure(found: list[Row], confirmatory: pd.DataFrame) -> figures.Figure:
    """Predicted (hollow) and published (filled, with interval) R, a line per context and case."""
    fig, ax = figures.axes(3.4)
    labels: list[str] = []
    values: list[float] = []
    for key, case, look in (("R", "k = 4", style.AR), ("R_bonus", "all-accept + bonus", style.SPEC)):
        for row, given in zip(found, confirmatory.to_dict("records"), strict=True):
            y = len(labels)
            labels.append(f"{text.context_name(row['context_tokens'])}, {case}")
            if key == "R":
                ax.plot([given["low"], given["high"]], [y, y], color=look.colour, linestyle="-", marker="|")
                values += [given["low"], given["high"]]
            first = f"published, {case}" if row is found[0] else None
            ax.plot(row[f"{key}_published"], y, look.marker, color=look.colour, linestyle="none", label=first)
            predicted: Any = {"markersize": 9, "linestyle": "none", "label": None if y else "predicted"}
            ax.plot(row[f"{key}_predicted"], y, "x", color=style.INK, **predicted)
            values += [row[f"{key}_published"], row[f"{key}_predicted"]]
    figures.ratio_axis(ax, values)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    return figures.finished(fig, ncols=3)


def show_alpha(root: Path | None = None) -> None:
    """Published acceptance beside the alpha and the tokens per round that it means."""
    summary = published.summary(root)
    frame = pd.DataFrame(
        {
            "context": [text.context_name(context) for context in summary["context_tokens"]],
            "acceptance": summary["acceptance_median"],
            "alpha": summary["alpha_median"],
            "tokens per round": summary["tokens_per_round_median"],
            "rounds of 64 tokens": 64 / summary["tokens_per_round_median"],
        }
    )
    style.table(frame, caption="The published acceptance at k = 4, and what it means.", csv=published.CSV)


def _parameters(shape: Any) -> float:
    """Parameters read by one decode step of a tied Qwen2 decoder (study of the published configs)."""
    hidden, head = shape["hidden"], shape["head_dim"]
    queries, keys = shape["heads"] * head, shape["kv_heads"] * head
    attention = hidden * (queries + 2 * keys) + queries + 2 * keys + queries * hidden
    layer = attention + 3 * hidden * shape["intermediate"] + 2 * hidden
    return shape["layers"] * layer + hidden + shape["vocab"] * hidden
