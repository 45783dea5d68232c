"""The chapter on everything accepted: its rounds, the bonus, and what R says about the draft's cost c."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import PUBLISHED_K, PUBLISHED_TOKENS, counts_from_trace
from specdec_lib.report import audit, folders, mechanisms, models, published, style, text
from specdec_lib.report.costline import lines
from specdec_lib.report.style import number
from specdec_lib.stats import geometric_mean

Table = folders.Table
ALL, FREE = "all-accept", "draft-free"
PLAIN, BONUS, TEXT = "all accepted", "all accepted, bonus", "draft's text"
FREE_PLAIN, FREE_BONUS = "draft-free", "draft-free, bonus"
# Our variant -> the published phase that it answers to.
PUBLISHED = {
    ALL: {PLAIN: "all-accept", TEXT: "all-accept", BONUS: "all-accept-bonus"},
    FREE: {FREE_BONUS: "draft-free"},
}
# The article gives no step count; the audit takes it at its word and divides by the tokens.
COUNTED = (
    f"(Its rows count N = {PUBLISHED_TOKENS} steps, as it divides by tokens; ours N - 1, since the first "
    f"token comes from the prefill: {100 / PUBLISHED_TOKENS:.1f} % between the two.)"
)
_FEWEST = 3  # cells from which a difference of times is judged
_CARRY = 2  # families of a context from which it is judged whether perfect acceptance pays
BELOW = "none: v below a step"  # where a largest c would stand
_SAME = 0.05  # times within this share of each other are one


def show(phase: str, root: Path | None = None) -> None:
    """The phase's variants beside the published ones."""
    text.say(models.synthetic_told(mechanisms.having(phase, root)))
    mechanisms.show_variants(phase, PUBLISHED[phase], root)


def show_rounds(phase: str, root: Path | None = None) -> None:
    """Rounds by arithmetic against rounds measured."""
    for one in mechanisms.having(phase, root):
        told = round_sentences(mechanisms.by_family(one, phase), one.profile.new_tokens)
        text.say(f"**{one.label}**, k = {one.profile.k}. {' '.join(told)}")
    if not mechanisms.having(phase, root):
        profiles = folders.read_design(root).profiles.items()
        names = (name for name, entry in profiles if entry.committed and phase in entry.phases)
        text.say(
            text.not_measured("the rounds of these runs", f"make runs PROFILE={next(names, 'cpu-full')}")
        )


def round_sentences(cells: Table, new_tokens: int) -> list[str]:
    """Per variant: did every cell take the rounds that follow when everything is accepted?"""
    told = []
    for variant, part in cells.groupby("variant", sort=False):
        first = part.iloc[0]
        bits, k = [True] * new_tokens, int(first["k"])
        counts = counts_from_trace(bits, k, new_tokens, first["formulation"], bool(first["bonus"]))
        right = int((part["rounds_n"] == counts.rounds).sum())
        name = mechanisms.labelled(str(variant), first["label"])
        cells_n = len(part)
        where = text.in_all(cells_n, "cell")
        where = where if right == cells_n else f"in {right} of {text.counted(cells_n, 'cell')} only"
        told.append(
            f"*{name}*: {int(counts.rounds)} rounds for {new_tokens} tokens by arithmetic, measured {where}."
        )
    return told


# -- everything accepted


def show_all_accept(root: Path | None = None) -> None:
    """What the bonus gives, whether the way of accepting matters, and what R says about c."""
    for one in mechanisms.having(ALL, root):
        cells = mechanisms.by_family(one, ALL)
        text.say(*_of(one, [*gain_sentences(cells, root), *other_text_sentences(cells, (PLAIN, BONUS))]))
        if not one.has(f"{FREE}.csv"):
            command = f"make runs PROFILE={one.profile.name}"
            text.say(text.not_measured("the cost of a verification alone", command))
            continue
        frame = draft_costs(cells, mechanisms.by_family(one, FREE), one.profile.new_tokens)
        if frame.empty:
            continue
        caption = (
            f"{one.label}: {one.hardware}, pair {one.profile.pair}. AR steps; means over families. v from "
            "draft-free (oracle), c from all accepted (synthetic), both without bonus and with a "
            "round's overhead inside."
        )
        style.table(draft_cost_table(frame, one.label, root), caption=caption, csv=one.csv(f"{ALL}.csv"))
        text.say(*_of(one, draft_cost_sentences(frame, {c: line.c for c, line in lines(one).items()})))
    text.say(*published_c_sentence(root))


def _of(one: folders.Results, told: list[str]) -> list[str]:
    """A folder's conclusions, each with its name; those of a quick look are withheld."""
    return mechanisms.conclusions(one, *(f"**{one.label}.** {sentence}" for sentence in told))


def gain_sentences(cells: Table, root: Path | None = None) -> list[str]:
    """The bonus against none, beside the published; the draft's own text against the imposed one."""
    theirs = published_quotients("all-accept-bonus", "all-accept", root)
    bonus = _quotients(cells, BONUS, PLAIN)
    if not bonus:
        return []
    gains = [(q - 1) * 100 for q in bonus.values()]
    does = f"makes generation {text.span(gains)} % faster"
    does = (
        f"changes the speed by {text.span(gains)} %, not in one direction"
        if min(gains) < 0 < max(gains)
        else does
    )
    told = [
        f"With everything accepted the bonus token {does} (synthetic; "
        f"{text.listed(map(text.context_name, bonus))}). Published: "
        f"{text.span((q - 1) * 100 for q in theirs)} %."
    ]
    own = _quotients(cells, TEXT, PLAIN)
    if own:
        equal: Any = cells[cells["variant"] == TEXT]["equal_share"]
        same = all(abs(1 / q - 1) <= _SAME for q in own.values())
        few = len(equal) < _FEWEST
        so = "so few cells do not tell the costs apart" if few else "here the two are not the same cost"
        so = "which text is committed does not enter the cost" if same else so
        told.append(
            "Committing the draft's own text, as the article did (oracle), takes "
            f"{text.span(1 / q for q in own.values())} times the time of the imposed run: {so}. "
            f"{text.span(equal * 100)} % of that text is AR's."
        )
    return told


def other_text_sentences(cells: Table, variants: tuple[str, ...]) -> list[str]:
    """Where the target's recorded text, which is imposed, is not what this engine's AR writes."""
    imposed = cells[cells["variant"].isin(variants)]
    one_each = imposed.drop_duplicates(["context_tokens", "family"])
    other = one_each[one_each["first_divergence_tokens"].notna()]
    if other.empty:
        return []
    at = zip(other["family"], other["context_tokens"], strict=True)
    where = text.listed(f"{family} at {text.context_name(context)}" for family, context in at)
    return [
        f"In {text.counted(len(other), 'cell')} of {len(one_each)} ({where}) the recorded text is not what AR writes "
        "in this mode. Counts and times are those of the recorded text."
    ]


def draft_costs(cells: Table, free: Table, new_tokens: int) -> Table:
    """Per context, in AR steps: v of a k-row block, c by the formula and by counted forwards, and the c with R = 1.

    (N - 1) / R is the time in AR steps. Draft-free: rounds x v. Everything accepted: rounds x (k c + v). ``spread``:
    the widest of R over a cell's repeats or over the families, as a share of R. ``steady``: no cell's v is below one
    step, which cannot be (:func:`.freedraft.above_ceiling`); else there is no ``c_limit``, and c is worth as little.
    """
    keys, steps, rows = ["context_tokens", "family"], new_tokens - 1, []
    full = cells[cells["variant"] == PLAIN].merge(
        free[free["variant"] == FREE_PLAIN], on=keys, suffixes=("", "_free")
    )
    for context, part in full.groupby("context_tokens", sort=True):
        v = steps / part["R_free"] / part["rounds_n_free"]
        spent = steps / part["R"] - part["rounds_n"] * v
        k, steady = int(part["k"].iloc[0]), bool((v >= 1).all())
        limit = float(((steps / part["rounds_n"] - v) / k).mean())
        repeats = ((part["R_high"] - part["R_low"]) / part["R"]).max()
        families = (part["R"].max() - part["R"].min()) / part["R"].mean()
        rows.append(
            {"context_tokens": int(context), "n": len(part), "k": k, "R": float(part["R"].mean()), "v": float(v.mean()),
             "spread": float(max(repeats, families)), "steady": steady,
             "c_formula": float((spent / part["rounds_n"] / k).mean()),
             "c_counted": float((spent / part["draft_calls_n"]).mean()),
             "c_limit": limit if steady else None}
        )  # fmt: skip
    return pd.DataFrame(rows)


def draft_cost_table(frame: Table, label: str, root: Path | None = None) -> Table:
    """Published and ours, for the page."""
    theirs = [
        {"context_tokens": row["context_tokens"], "source": published.LABEL, "v": row["v_steps"],
         "c_formula": row["c_steps"], "c_limit": limit}
        for row, limit in zip(audit.rows(root), published_limits(root), strict=True)
    ]  # fmt: skip
    ours = [{"source": label} | row for row in frame.to_dict("records")]
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "source": row["source"],
            "families": row.get("n", "not stated"),
            "v (oracle)": row["v"],
            "c by the formula (synthetic; article: oracle)": row["c_formula"],
            "c per counted forward (synthetic)": number(row.get("c_counted", "not stated")),
            "largest c with R = 1 (by v)": number(row["c_limit"]) if row.get("steady", True) else BELOW,
        }
        for row in [*theirs, *ours]
    )


def published_limits(root: Path | None = None) -> list[float]:
    """The largest c with R = 1 by the published counts, per context of the audit."""
    rounds = published.phase_value(published.phases(root), "all-accept", "rounds")
    return [(PUBLISHED_TOKENS / rounds - row["v_steps"]) / PUBLISHED_K for row in audit.rows(root)]


def draft_cost_sentences(frame: Table, fitted: dict[int, float]) -> list[str]:
    """Whether a draft this dear can ever pay, and whether the cost line gives the same c: where v can be."""
    where, known = _pays_told(frame), frame[frame["steady"]]
    odd = text.listed(map(text.context_name, frame[~frame["steady"]]["context_tokens"]))
    costs = (
        f"Here a draft forward costs {text.span(known['c_formula'])} AR steps by the formula and may cost at most "
        f"{text.span(known['c_limit'])}{f' (no limit at {odd}: v below a step)' * bool(odd)}"
    )
    if known.empty:
        costs = f"No limit of c can be told (v below a step at {odd}: unsteady times)"
    told = [f"{costs}: without bonus, {where} (synthetic)."]
    counted = zip(known["c_counted"], known["context_tokens"], strict=True)
    beside = [(c, fitted[context]) for c, context in counted if context in fitted]
    if beside:
        told.append(
            f"The cost line, fitted on other texts, gives c = {text.span(f for _, f in beside)}; per "
            f"counted forward these runs give {text.span(c for c, _ in beside)}, which differs by "
            f"{text.span(abs(c / f - 1) * 100 for c, f in beside)} %."
        )
    return told


def _pays_told(frame: Table) -> str:
    """Where perfect acceptance pays and where not: of R that is away from 1 by more than its spread, over two families
    at least. What lacks that is undecided, and says what R was."""
    found: dict[str, list[str]] = {"pays": [], "does not": [], "undecided": []}
    for row in frame.to_dict("records"):
        name, off = text.context_name(row["context_tokens"]), row["R"] - 1
        if row["n"] >= _CARRY and abs(off) > row["spread"] * row["R"]:
            found["pays" if off > 0 else "does not"].append(name)
        else:
            found["undecided"].append(
                f"{name} (R = {number(row['R'])}, spread {text.percent(row['spread'])}, {text.families(row['n'])})"
            )
    if len(found["pays"]) == len(frame):
        return "perfect acceptance pays at every context"
    if len(found["does not"]) == len(frame):
        return "even perfect acceptance does not pay at any context: the draft alone is too dear"
    words = {"pays": "perfect acceptance pays at", "does not": "even perfect acceptance does not pay at",
             "undecided": "whether perfect acceptance pays is undecided at"}  # fmt: skip
    return "; ".join(f"{words[kind]} {text.listed(names)}" for kind, names in found.items() if names)


def published_c_sentence(root: Path | None = None) -> list[str]:
    """The same arithmetic on the published numbers, with the article's N steps in place of our N - 1."""
    found, limit = audit.rows(root), published_limits(root)
    above = all(row["c_steps"] > top for row, top in zip(found, limit, strict=True))
    so = "even perfect acceptance could not pay" if above else "perfect acceptance could pay somewhere"
    return [
        f"Published: c = {text.span(row['c_steps'] for row in found)} against at most {text.span(limit)}, "
        f"so {so} there. {COUNTED}"
    ]


def published_quotients(phase: str, against: str, root: Path | None = None) -> list[float]:
    """R of one published phase over R of another, per context of the audit that states both."""
    pairs = [
        [mechanisms.published_value(p, "R", row["context_tokens"], root) for p in (phase, against)]
        for row in audit.rows(root)
    ]
    return [R / other for R, other in pairs if R and other]


def _quotients(cells: Table, variant: str, against: str) -> dict[int, float]:
    """Geometric mean over families of R(variant) / R(against), per context."""
    found = {}
    for context, part in cells.groupby("context_tokens", sort=True):
        R = part.pivot(index="family", columns="variant", values="R")
        if variant in R and against in R:
            found[int(context)] = geometric_mean(R[variant] / R[against])
    return found
