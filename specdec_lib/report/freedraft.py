"""The chapter on a free draft: what a verification costs, and what is left of a round without drafting."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from specdec_lib.report import audit, folders, mechanisms, published, style, text
from specdec_lib.report.oracles import (
    ALL,
    BONUS,
    COUNTED,
    FREE,
    FREE_BONUS,
    FREE_PLAIN,
    other_text_sentences,
    published_quotients,
)

Table = folders.Table
_HARDLY = 0.1  # a verification at most this share above a step costs hardly more


def show(root: Path | None = None) -> None:
    """v from R, the ceiling that the rounds set, and what is left of the time without a draft."""
    for one in mechanisms.having(FREE, root):
        frame = verification_costs(mechanisms.by_family(one, FREE), one.profile.new_tokens)
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. Draft-free (oracle), means over families. v: "
            "AR steps per round, overhead inside; ceiling: R if a verification cost one step."
        )
        style.table(verification_table(frame, one.label, root), caption=caption, csv=one.csv(f"{FREE}.csv"))
        free = mechanisms.by_family(one, FREE)
        odd = above_ceiling(free, one.profile.new_tokens)
        told = unsteady_sentences(free, odd, frame) or verification_sentences(frame)
        told += other_text_sentences(mechanisms.by_family(one, FREE), (FREE_PLAIN, FREE_BONUS))
        if one.has(f"{ALL}.csv"):
            told += left_sentences(mechanisms.by_family(one, ALL), free, root, steady=odd.empty)
        text.say(*mechanisms.conclusions(one, *(f"**{one.label}.** {sentence}" for sentence in told)))
    text.say(published_v_sentence(root))


def verification_costs(free: Table, new_tokens: int) -> Table:
    """Per context and variant: v = (N - 1) / (rounds x R), the ceiling (N - 1) / rounds, the share of it reached."""
    steps, rows = new_tokens - 1, []
    for (context, variant), part in free.groupby(["context_tokens", "variant"], sort=False):
        rows.append(
            {"context_tokens": int(context), "variant": str(variant), "label": part["label"].iloc[0], "n": len(part),
             "rounds_n": int(part["rounds_n"].iloc[0]), "R": float(part["R"].mean()),
             "v": float((steps / part["R"] / part["rounds_n"]).mean()),
             "ceiling": float((steps / part["rounds_n"]).mean()),
             "reached": float((part["R"] * part["rounds_n"] / steps).mean())}
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values("context_tokens", kind="stable", ignore_index=True)


def verification_table(frame: Table, label: str, root: Path | None = None) -> Table:
    """Published and ours, for the page. The published ceiling counts N tokens, not the N - 1 steps between them."""
    phases = published.phases(root)
    rounds = published.phase_value(phases, "all-accept-bonus", "rounds")
    theirs = [
        {"context_tokens": row["context_tokens"], "source": published.LABEL, "variant": FREE_BONUS, "label": "oracle",
         "rounds_n": int(rounds), "v": row["v_steps"],
         "ceiling": row["v_steps"] * published.phase_value(phases, FREE, "R", row["context_tokens"]),
         "reached": 1 / row["v_steps"]}
        for row in audit.rows(root)
    ]  # fmt: skip
    ours = [{"source": label} | row for row in frame.to_dict("records")]
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "source": row["source"],
            "variant": mechanisms.labelled(row["variant"], row["label"]),
            "families": row.get("n", "not stated"),
            "rounds": row["rounds_n"],
            "v": row["v"],
            "ceiling": row["ceiling"],
            "R of the ceiling": text.percent(row["reached"]),
        }
        for row in [*theirs, *ours]
    )


def above_ceiling(cells: Table, new_tokens: int) -> Table:
    """The cells in which a round took less than one AR step: R above (N - 1) / rounds. A round verifies at least once,
    and no verification is cheaper than a step, so that such a quotient is of times that do not belong together."""
    return cells[cells["R"] * cells["rounds_n"] > new_tokens - 1]


def unsteady_sentences(cells: Table, odd: Table, frame: Table) -> list[str]:
    """In place of a verdict where some cell cannot be: the values, and that they tell nothing."""
    if odd.empty:
        return []
    where = text.listed(text.context_name(int(c)) for c in sorted(set(odd["context_tokens"])))
    return [
        f"In {len(odd)} of {text.counted(len(cells), 'cell')} (at {where}) R lies above its ceiling, and v below one "
        "AR step, which cannot be: the times of this folder are too unsteady to tell what a verification costs. By "
        f"them v = {text.span(frame['v'])} AR steps (oracle), and R is {text.span(r * 100 for r in frame['reached'])} "
        "% of the ceiling: no verdict."
    ]


def verification_sentences(frame: Table) -> list[str]:
    """What a verification costs above a step."""
    chosen = frame[frame["variant"] == FREE_BONUS]
    if chosen.empty:
        return []
    above, most = (chosen["v"] - 1) * 100, _HARDLY * 100
    near, far = (
        text.listed(text.context_name(c) for c in chosen["context_tokens"][side])
        for side in (above <= most, above > most)
    )
    parts = [f"hardly more than a step (at most {most:g} %) at {near}"] * bool(near)
    parts += [f"clearly more (above {most:g} %) at {far}"] * bool(far)
    return [
        f"With the bonus a verification costs v = {text.span(chosen['v'])} AR steps (oracle), "
        f"{text.span(above)} % above one step: {', '.join(parts)}. R reaches "
        f"{text.span(r * 100 for r in chosen['reached'])} % of the ceiling.",
    ]


def published_v_sentence(root: Path | None = None) -> str:
    """v by the same arithmetic on the published R, with the article's N steps in place of our N - 1."""
    v = text.span(row["v_steps"] for row in audit.rows(root))
    return f"Published, with N in place of N - 1: v = {v}. {COUNTED}"


def left_sentences(cells: Table, free: Table, root: Path | None = None, steady: bool = True) -> list[str]:
    """How much of the time with everything accepted was drafting; only described where the times are not ``steady``."""
    keys = ["context_tokens", "family"]
    full, without = cells[cells["variant"] == BONUS], free[free["variant"] == FREE_BONUS]
    both = full.merge(without, on=keys, suffixes=("", "_free"))
    shares = list((1 - both["R"] / both["R_free"]).groupby(both["context_tokens"]).mean())
    if not shares:
        return []
    theirs = [1 - q for q in published_quotients("all-accept-bonus", "draft-free", root)]
    of = text.span(s * 100 for s in theirs)
    if not steady:
        return [
            f"By the same unsteady times drafting is {text.span(s * 100 for s in shares)} % of the time with "
            f"everything accepted and the bonus on (synthetic against oracle): no verdict. Published: {of} %."
        ]
    most = "most" if min(shares) > 0.5 else "less than half" if max(shares) < 0.5 else "about half"
    return [
        f"With everything accepted and the bonus on, drafting is {text.span(s * 100 for s in shares)} % "
        f"of the time: {most} of it goes when drafting is free (synthetic against oracle). Published: "
        f"{of} %. What is left is verification and a round's overhead."
    ]
