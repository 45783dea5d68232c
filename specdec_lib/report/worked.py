"""A worked round: what the engine itself recorded (:mod:`specdec_lib.trace`), drawn and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import drawing, folders, style, text
from specdec_lib.report.drawing import Round, outcome

FILE = "worked-round.json"


def load(root: Path | None = None) -> tuple[dict[str, Any], folders.Results] | None:
    """The recorded rounds and the folder they come from, or None."""
    found = folders.first_with(FILE, root)
    return (json.loads((found.folder / FILE).read_text(encoding="utf-8")), found) if found else None


def show(formulation: str, root: Path | None = None) -> None:
    """Figure and row-by-row table of one round of ``formulation``, and its cache lengths."""
    loaded = load(root)
    if loaded is None:
        text.say(text.not_measured("a worked round"))
        return
    worked, source = loaded
    number, seen = choose(worked["formulations"][formulation])
    style.use_style()
    note = (
        " Random weights (synthetic): the tokens mean nothing, the bookkeeping is real." * worked["synthetic"]
    )
    caption = (
        f"Round {number} of the {formulation} formulation, pair {worked['pair']}, FP32, context "
        f"{worked['context_tokens']}, k = {worked['k']}, bonus on, one run on {place(source)}.{note}"
    )
    style.figure(drawing.figure(seen), alt=alt(seen), caption=caption, csv=source.csv(FILE))
    style.table(rows(seen), caption="Which row checks which proposal.")
    style.table(lengths(seen), caption="Tokens in each cache during the round.")
    text.say(finding(seen, formulation))


def place(source: folders.Results) -> str:
    """The hardware of the recorded run, without the precision of the folder's timed runs: it is FP32 by design."""
    return source.hardware.split(", ")[0]


def show_identities(root: Path | None = None) -> None:
    """The counting identities, checked on every recorded round of both formulations."""
    if loaded := load(root):
        frame = identities(loaded[0]).set_index("formulation").T.rename_axis("").reset_index()
        style.table(frame, caption="The identities on the recorded runs.", csv=loaded[1].csv(FILE))


def show_rounds(formulation: str, root: Path | None = None) -> None:
    """Every recorded round of ``formulation`` in one table."""
    if loaded := load(root):
        worked, source = loaded
        frame = pd.DataFrame(
            {
                "round": number,
                "proposed": quoted("".join(seen["proposals_text"])),
                "accepted": f"{seen['accepted']} of {len(seen['proposals'])}",
                "committed": quoted("".join(seen["emitted_text"])),
            }
            for number, seen in enumerate(worked["formulations"][formulation], start=1)
        )
        style.table(frame, caption="Every round of the recorded run.", csv=source.csv(FILE))


def choose(rounds: list[Round]) -> tuple[int, Round]:
    """The round to explain, with its number: one that accepted some and rejected one, if there is.

    A round after the first is preferred, because there the two formulations differ.
    """

    def rank(item: tuple[int, Round]) -> tuple[bool, bool, int]:
        number, seen = item
        partial = 0 < seen["accepted"] < len(seen["proposals"])
        return (not partial or seen["end"] is None, number == 1, number)

    return min(enumerate(rounds, start=1), key=rank)


def rows(seen: Round) -> pd.DataFrame:
    """One line per choice of the target: which row it came from, what it checks, and the outcome."""
    waiting, k = len(seen["pending"]), len(seen["proposals"])
    lines = []
    for index, choice in enumerate(seen["choices_text"]):
        row = index + waiting - 1
        proposed = seen["proposals_text"]
        checks = f"d{index + 1} {quoted(proposed[index])}" if index < k else "nothing: the bonus"
        lines.append(
            {
                "logits": "saved_next" if row < 0 else f"rows[{row}]",
                "after the token": "before the round" if row < 0 else _fed(seen, row),
                "target's choice": quoted(choice),
                "checks": checks,
                "outcome": outcome(seen, index),
            }
        )
    return pd.DataFrame(lines)


def lengths(seen: Round) -> pd.DataFrame:
    """Cache lengths of both models at the start, after verification and at the end of the round."""
    end = seen["end"] or {"target": None, "draft": None}
    return pd.DataFrame(
        {
            "model": model,
            "committed before": seen["committed"],
            "start": seen["start"][model],
            "proposed and verified": seen["verified"][model],
            "end": end[model],
            "committed after": seen["committed"] + len(seen["emitted"]),
        }
        for model in ("target", "draft")
    )


def finding(seen: Round, formulation: str) -> str:
    """What happened in the round, in sentences."""
    accepted, k = seen["accepted"], len(seen["proposals"])
    last = quoted(seen["emitted_text"][-1])
    told = f"{accepted} of {k} proposals were accepted, and the target's own {last} replaced d{accepted + 1}"
    if accepted == k:
        told = f"All {k} proposals were accepted, and the bonus {last} came on top"
    parts = [f"{told}: the round committed {text.counted(len(seen['emitted']), 'token')}."]
    if seen["end"] is not None:
        committed = seen["committed"] + len(seen["emitted"])
        left = {model: committed - seen["end"][model] for model in ("target", "draft")}
        if formulation == "reference" and accepted < k:
            cut = seen["committed"] + accepted
            parts.append(
                f"Both caches were trimmed to {cut:,}, then the replacement ran through both models (the "
                f"repair)."
            )
        elif accepted < k:
            parts.append(
                "Both caches were trimmed; the replacement waits to be the first row of the next block."
            )
        if set(left.values()) == {0}:
            parts.append("Both now hold every committed token.")
        elif set(left.values()) == {1}:
            parts.append("Both now hold every committed token but the last.")
    return " ".join(parts)


def identities(worked: dict[str, Any]) -> pd.DataFrame:
    """Per formulation: emitted = accepted + rounds - cut, target calls by formula, both cache invariants."""
    lines = []
    for formulation, rounds in worked["formulations"].items():
        accepted, emitted = sum(r["accepted"] for r in rounds), sum(len(r["emitted"]) for r in rounds)
        rejections = sum(r["accepted"] < len(r["proposals"]) for r in rounds)
        cut = accepted + len(rounds) - emitted
        behind = 1 if formulation == "repair-free" else 0
        kept = all(
            set(r["end"].values()) == {r["committed"] + len(r["emitted"]) - behind}
            # only the bonus token waits
            or (formulation == "reference" and r["accepted"] == len(r["proposals"]))
            for r in rounds
            if r["end"] is not None
        )
        repairs = rejections - (rounds[-1]["accepted"] < len(rounds[-1]["proposals"]))
        repairs *= formulation == "reference"
        lines.append(
            {
                "formulation": formulation,
                "rounds": len(rounds),
                "accepted": accepted,
                "rejections": rejections,
                "cut": cut,
                "emitted": emitted,
                "accepted + rounds - cut": accepted + len(rounds) - cut,
                "target calls": len(rounds) + repairs,
                "cache length after every round": "as stated" if kept else "NOT as stated",
            }
        )
    return pd.DataFrame(lines)


def alt(seen: Round) -> str:
    """The figure in words."""
    columns = ["logits", "target's choice", "checks", "outcome"]
    lines = (
        f"{logits} chose {choice}, checks {checks}: {outcome}"
        for logits, choice, checks, outcome in rows(seen)[columns].itertuples(index=False)
    )
    return (
        f"One round: the proposals in the upper line, the target's choices in the lower. {'; '.join(lines)}"
    )


def quoted(token: str) -> str:
    """A token with its spaces and line ends visible."""
    return "“" + token.replace("\n", "⏎").replace(" ", "␣") + "”"


def _fed(seen: Round, row: int) -> str:
    waiting = len(seen["pending"])
    if row < waiting:
        return f"{quoted(seen['pending_text'][row])} (last committed)"
    return f"d{row - waiting + 1} {quoted(seen['proposals_text'][row - waiting])}"
