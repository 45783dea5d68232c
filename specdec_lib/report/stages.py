"""The cost-model chapter: the audit in short, and where a round spends its time."""

from __future__ import annotations

from pathlib import Path

from specdec_lib.report import audit, figures, folders, mechanisms, models, published, style, text, timeuse
from specdec_lib.report.costline import PHASE

Table = folders.Table
COSTS = "costs.csv"


def show_audit(root: Path | None = None) -> None:
    """The audit of the published tables in short."""
    text.say(*audit.findings(audit.rows(root), published.confirmatory(root), root)[:2])


def show(root: Path | None = None) -> None:
    """Stage shares of the development runs, and the published share of the draft."""
    text.say(models.synthetic_told(mechanisms.having(PHASE, root)))
    for one in mechanisms.having(PHASE, root):
        costs = one.table(COSTS, "costs")
        k = one.profile.k
        # Random weights accept next to nothing by themselves; their confirmatory runs have the scripted acceptance.
        imposed = one.scripted and timeuse.stage_seconds(one)
        lines = [timeuse.stage_sentence(one)] if imposed else sentences(costs, k, root)
        told = [f"**{one.label}.** {line}" for line in lines]
        style.use_style()
        of = f"{text.families(len(one.profile.families))}, acceptance imposed"
        development = f"{text.families(costs['family'].nunique())} of development texts, one run each"
        caption = (
            f"{one.label}: {one.hardware}. Instrumented runs, never counted in any R: medians over "
            f"{of if imposed else development}; a part below 8 % has no label."
        )
        style.figure(
            figures.stage_shares(imposed or seconds(costs, k)), alt="Stacked bars of seconds per stage. " + told[0],
            caption=caption, csv=one.csv(COSTS),
        )  # fmt: skip
        text.say(*mechanisms.conclusions(one, *told))
    mechanisms.say_if_unmeasured(PHASE, root)


def seconds(costs: Table, k: int) -> dict[str, dict[str, float]]:
    """Per "context variant": median seconds of every stage over families."""
    names = {"ar": "AR", "reference": "reference", f"repair-free, k = {k}": f"repair-free, k = {k}"}
    stages = ("draft", "verify", "accept", "repair", "other")
    found = {}
    for context, here in costs.groupby("context_tokens", sort=True):
        for variant, shown in names.items():
            part = here[here["variant"] == variant]
            if len(part):
                medians = {stage: float(part[f"{stage}_s"].fillna(0).median()) for stage in stages}
                found[f"{text.context_name(context)} {shown}"] = medians
    return found


def sentences(costs: Table, k: int, root: Path | None = None) -> list[str]:
    """The draft's share and the largest stage of the reference engine, beside the published share."""
    parts = []
    for label, stages in seconds(costs, k).items():
        total = sum(stages.values())
        if label.endswith("reference"):
            largest = max(stages, key=lambda stage: stages[stage])
            rest = f" (the largest is {largest} with {text.percent(stages[largest] / total)})"
            rest = "" if largest == "draft" else rest
            parts.append(f"{text.percent(stages['draft'] / total)} at {label.split()[0]}{rest}")
    given = published.phase_value(published.phases(root), "representative-task", "draft_share")
    if not parts:
        shares = {label: stages["draft"] / sum(stages.values()) for label, stages in seconds(costs, k).items()
                  if "repair-free" in label}  # fmt: skip
        each = text.listed(f"{text.percent(share)} at {label.split()[0]}" for label, share in shares.items())
        return [
            f"This engine has no reference formulation. Of a repair-free round's time at k = {k} the draft stage "
            f"takes {each}. Published, one task: {text.percent(given)}."
        ]
    return [
        f"Of the reference engine's time the draft stage takes {text.listed(parts)}. Published, one task: "
        f"{text.percent(given)}.",
        "The draft stage holds the proposals, as in the article. The draft's forward over the "
        "replacement or the last proposal is timed under repair.",
    ]
