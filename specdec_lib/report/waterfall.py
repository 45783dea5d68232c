"""The synthesis in numbers: AR's time, what turns it into the reference engine's, and what each change gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specdec_lib.costmodel import PUBLISHED_K, PUBLISHED_TOKENS, Counts, counts_from_trace
from specdec_lib.report import audit, folders, mechanisms, published, text
from specdec_lib.report.costline import FIT, Line, line_at

Table = folders.Table
PHASE, REFERENCE = "formulations", "reference"
VERIFY, DRAFT, REPAIR, OVERHEAD, REST = (
    "verification instead of steps", "draft forwards", "repairs", "overhead", "not explained by the line",
)  # fmt: skip
# What is changed -> (phase, variant); each is compared with the reference engine.
CHANGES = {
    "bonus": ("formulations", "reference, bonus"),
    "repair-free": ("formulations", "repair-free"),
    "repair-free, bonus": ("formulations", "repair-free, bonus"),
    "all accepted": ("all-accept", "all accepted"),
    "draft-free": ("draft-free", "draft-free"),
}
# Changes of the engine alone: a real system can have them, whatever the acceptance was taken from.
ENGINES = {name for name, (phase, _) in CHANGES.items() if phase == PHASE}
_NEEDED = (FIT, "formulations.csv", "all-accept.csv", "draft-free.csv")


@dataclass(frozen=True)
class Waterfall:
    """One context, in AR steps, means over families. ``ar`` + all ``parts`` = ``spec``, the measured time."""

    context: int
    n: int
    ar: float
    parts: dict[str, float]
    spec: float
    saved: dict[str, float]  # by every change, against the reference engine
    labels: dict[str, str]
    extrapolated: bool
    label: str = "real"  # of the reference engine's own run
    # of R_GM, by change; REFERENCE is the engine itself
    verdicts: dict[str, str] = field(default_factory=dict)
    R_GM: dict[str, str] = field(default_factory=dict)  # the same runs' R_GM with its interval, in words

    @property
    def R(self) -> float:
        """AR over the mean time; near R_GM, which averages logs."""
        return self.ar / self.spec


def waterfalls(one: folders.Results) -> list[Waterfall]:
    """One per context, from the folder's tables."""
    ratios = {phase: mechanisms.by_family(one, phase) for phase in {phase for phase, _ in CHANGES.values()}}
    fit, traces = one.table(FIT, "cost-fit"), mechanisms.traces(one)
    found = compose(fit, traces, ratios, one.profile.k, one.profile.new_tokens)
    interval = one.design.analysis.interval
    given: dict[tuple[int, str, str], dict[str, Any]] = {
        (row["context"], phase, row["variant"]): row
        for phase, cells in ratios.items() for row in mechanisms.summarised(cells, interval).to_dict("records")
    }  # fmt: skip
    names = {REFERENCE: (PHASE, REFERENCE)} | CHANGES
    complete = []
    for fall in found:
        rows = {
            name: given[fall.context, *key] for name, key in names.items() if (fall.context, *key) in given
        }
        verdicts = {name: str(row["verdict"]) for name, row in rows.items()}
        R_GM = {name: text.estimate(row) for name, row in rows.items()}
        complete.append(replace(fall, verdicts=verdicts, R_GM=R_GM))
    return complete


def compose(fit: Table, traces: Table, ratios: dict[str, Table], k: int, new_tokens: int) -> list[Waterfall]:
    """The parts of every context from the fit and the counts of each trace; the rest is what they do not explain."""
    steps, found = float(new_tokens - 1), []
    reference = _of(ratios[PHASE], REFERENCE)
    joined = traces.merge(reference[["context_tokens", "family", "R"]], on=["context_tokens", "family"])
    for context, here in joined.groupby("context_tokens", sort=True):
        line = line_at(fit, int(context))
        counted = [
            counts_from_trace([bit == "1" for bit in bits], k, new_tokens, REFERENCE, False)
            for bits in here["passes"]
        ]
        parts = {name: sum(part[name] for part in map(lambda c: _parts(c, line, steps), counted)) / len(counted)
                 for name in (VERIFY, DRAFT, REPAIR, OVERHEAD)}  # fmt: skip
        spec = float((steps / here["R"]).mean())
        parts[REST] = spec - steps - sum(parts.values())
        saved, labels = {}, {}
        for name, (phase, variant) in CHANGES.items():
            other = _of(ratios[phase], variant)
            theirs = other[other["context_tokens"] == context][["family", "R", "label"]]
            pair = here[["family", "R"]].merge(theirs, on="family", suffixes=("", "_other"))
            if len(pair):
                saved[name] = float((steps / pair["R"] - steps / pair["R_other"]).mean())
                labels[name] = str(pair["label"].iloc[0])
        label = str(reference["label"].iloc[0])
        found.append(
            Waterfall(int(context), len(here), steps, parts, spec, saved, labels, line.extrapolated, label)
        )
    return found


def _parts(counts: Counts, line: Line, steps: float) -> dict[str, float]:
    return {
        VERIFY: sum(n * line.verify(rows) for rows, n in counts.blocks.items()) - steps,
        DRAFT: counts.draft_forwards * line.c,
        REPAIR: counts.repairs * line.repair,
        OVERHEAD: counts.rounds * line.overhead,
    }


def complete(root: Path | None = None) -> list[folders.Results]:
    """The folders that hold every table the synthesis is built from."""
    found = [
        one
        for one in mechanisms.having(PHASE, root)
        if one.has(*_NEEDED) and mechanisms.traces(one) is not None
    ]
    return [one for one in found if REFERENCE in set(mechanisms.by_family(one, PHASE)["variant"])]


def published_waterfalls(root: Path | None = None) -> list[Waterfall]:
    """The same from the published numbers, with the audit's c and v; overhead is inside v, a repair costs a step."""
    phases, tokens, k, found = published.phases(root), float(PUBLISHED_TOKENS), PUBLISHED_K, []
    for row in audit.rows(root):
        context, rounds = int(row["context_tokens"]), row["rounds_n"]
        spec = tokens / row["R_published"]
        parts = {VERIFY: rounds * row["v_steps"] - tokens, DRAFT: rounds * k * row["c_steps"],
                 REPAIR: rounds * (1 - row["alpha"] ** k)}  # fmt: skip
        parts[REST] = spec - tokens - sum(parts.values())
        after = {
            name: tokens / published.phase_value(phases, phase, "R", context)
            for name, phase in (("all accepted", "all-accept"), ("draft-free", "draft-free"))
        }
        saved = {name: spec - steps for name, steps in after.items()}
        found.append(Waterfall(context, 0, tokens, parts, spec, saved, dict.fromkeys(saved, "oracle"), False))
    return found


def limit(fall: Waterfall) -> str:
    """What takes the time below AR's: "nothing" is needed, a real "engine", "acceptance", a free "draft", or none."""
    after = {name: fall.spec - steps for name, steps in fall.saved.items()}
    if fall.spec < fall.ar:
        return "nothing"
    if any(steps < fall.ar for name, steps in after.items() if name in ENGINES):
        return "engine"
    if "all accepted" not in after or "draft-free" not in after:
        return "unknown"
    if after["all accepted"] < fall.ar:
        return "acceptance"
    return "draft" if after["draft-free"] < fall.ar else "verification"


def decider(fall: Waterfall) -> str:
    """The run whose R settles :func:`limit`: the reference engine's own, the best engine's, or an oracle's."""
    engines = {name: steps for name, steps in fall.saved.items() if name in ENGINES}
    best = max(engines, key=lambda name: engines[name], default=REFERENCE)
    return {"nothing": REFERENCE, "engine": best, "acceptance": "all accepted"}.get(limit(fall), "draft-free")


def _of(table: Table, variant: str) -> Table:
    return table[table["variant"] == variant]
