"""The control-plane chapter: host reads, token copies and bytes per round, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import folders, mechanisms, published, style, text
from specdec_lib.report.style import number

PHASE, DEVICE, NAIVE = "control-plane", "device", "naive"
ID_BYTES = 8  # a token id, int64


def expected_traffic(variant: str, proposed: int, accepted: int, rounds: int) -> dict[str, int]:
    """What a run must read, copy and move, by its rounds.

    Device-side: one read per round, of the accepted count and a token per row. Naive: also a read and a copy per
    proposal, a read per verified row up to the first mismatch, and a copy of the decision per round.
    """
    decision = proposed + 2 * rounds  # per round: the count, the proposals' rows, the row after them
    if variant == DEVICE:
        return {"host_reads_n": rounds, "host_copies_n": 0, "host_bytes": ID_BYTES * decision}
    looked_at = accepted + rounds
    return {
        "host_reads_n": proposed + looked_at + rounds,
        "host_copies_n": proposed + rounds,
        "host_bytes": ID_BYTES * (2 * proposed + looked_at + 2 * decision),
    }


def traffic(runs: folders.Table) -> folders.Table:
    """One row per speculative run: counted and expected traffic, and whether all three agree (``as_expected``)."""
    chosen: Any = runs[runs["variant"].isin([DEVICE, NAIVE])]
    rows = []
    for row in chosen.to_dict("records"):
        counts = (row[name] for name in ("variant", "proposed_tokens", "accepted_tokens", "rounds_n"))
        expected = expected_traffic(*counts)
        rows.append(row | {"as_expected": all(row[name] == value for name, value in expected.items())})
    return pd.DataFrame(rows)


def show_prediction(root: Path | None = None) -> None:
    """What a full round must count, from the design's k alone."""
    k = folders.read_design(root).measurement.k
    low, high = (expected_traffic(NAIVE, k, accepted, 1)["host_reads_n"] for accepted in (0, k))
    own = expected_traffic(DEVICE, k, k, 1)
    copies = expected_traffic(NAIVE, k, k, 1)["host_copies_n"]
    text.say(
        f"At k = {k} the naive plane reads {low} to {high} times per round: every proposal, every verified row up to "
        f"the first mismatch, and the decision. It copies {copies} times. The device-side plane makes "
        f"{text.counted(own['host_reads_n'], 'read')} and {text.counted(own['host_copies_n'], 'copy', 'copies')}. "
        f"Published: {given('syncs_per_round_before', root)} reads before, "
        f"{given('syncs_per_round_after', root)} after."
    )


def show_finding(root: Path | None = None) -> None:
    """Counts and time, each held against its prediction."""
    for one in mechanisms.having(PHASE, root):
        runs = traffic(one.table(f"{PHASE}.csv", "mechanism"))
        counts = counts_sentence(one, runs, mechanisms.by_variant(one, PHASE))
        text.say(counts, latency_sentence(one, latency(one), root))
    mechanisms.say_if_unmeasured(PHASE, root)


def show_counts(root: Path | None = None) -> None:
    """Per round: reads, token copies, bytes, before and after, published beside every folder."""
    if found := mechanisms.having(PHASE, root):
        each = " ".join(map(_caption, found))
        caption = f"Medians over families. Published: {published.HARDWARE}. {each}"
        csv = [one.csv(f"{PHASE}.csv") for one in found]
        style.table(counts_table(found, root), caption=caption, csv=csv)
    mechanisms.say_if_unmeasured(PHASE, root)


def _caption(one: folders.Results) -> str:
    return f"{mechanisms.caption(one, mechanisms.by_variant(one, PHASE))} Pair {one.profile.pair}."


def counts_table(found: list[folders.Results], root: Path | None = None) -> pd.DataFrame:
    """The published before and after, and both variants of every folder."""
    counted = ("reads per round", "token copies per round", "bytes per round")
    rows = []
    for when, variant in (("before", NAIVE), ("after", DEVICE)):
        theirs = (given(f"{name}_{when}", root) for name in ("syncs_per_round", "token_copies"))
        rows.append((published.LABEL, variant, "all", *theirs, "not stated"))
    for one in found:
        frame = mechanisms.by_variant(one, PHASE)
        for variant in (NAIVE, DEVICE):
            for row in frame[frame["variant"] == variant].to_dict("records"):
                ours = (number(row[f"{name}_per_round"]) for name in ("reads", "copies", "bytes"))
                name, context = mechanisms.labelled(variant, row["label"]), text.context_name(row["context"])
                rows.append((one.label, name, context, *ours))
    return pd.DataFrame(rows, columns=["source", "variant", "context", *counted], dtype=object)


def given(quantity: str, root: Path | None = None) -> str:
    """A published number of the phase, or "not stated"."""
    value = mechanisms.published_value(PHASE, quantity, None, root)
    return "not stated" if value is None else f"{value:g}"


def counts_sentence(one: folders.Results, runs: folders.Table, frame: folders.Table) -> str:
    """Whether every run counted what was predicted, and what the device-side plane needs."""
    right, n = int(runs["as_expected"].sum()), len(runs)
    told = f"all {number(n)} runs" if right == n else f"**only {number(right)} of {number(n)} runs**"
    naive, device = (frame[frame["variant"] == v] for v in (NAIVE, DEVICE))
    shown = ("reads_per_round", "copies_per_round")
    reads, copies = (f"{text.span(naive[name])} to {text.span(device[name])}" for name in shown)
    kept = bool((device["reads_per_round"] <= 1).all() and (device["copies_per_round"] == 0).all())
    return (
        f"In {one.named} {told} counted exactly the predicted reads, copies and bytes. Reads per round go from "
        f"{reads}, "
        f"token copies from {copies}: {'within' if kept else '**outside**'} the limit of one read and no copy."
    )


def show_latency(root: Path | None = None) -> None:
    """What the device-side plane saves of the naive one's time: judged on a GPU, where a read makes the host wait."""
    if found := [one for one in mechanisms.having(PHASE, root) if one.cuda]:
        each = " ".join(map(_caption, found))
        caption = f"Device-side against naive, the same cells. Published: {published.HARDWARE}. {each}"
        csv = [one.csv(f"{PHASE}.csv") for one in found]
        style.table(latency_table(found, root), caption=caption, csv=csv)
    else:
        profiles = folders.read_design(root).profiles.items()
        names = (name for name, entry in profiles if entry.device == "cuda" and PHASE in entry.phases)
        text.say(text.not_measured(f"{PHASE} on a GPU", f"make runs PROFILE={next(names, 'qwen-8gb')}"))


def latency_table(found: list[folders.Results], root: Path | None = None) -> pd.DataFrame:
    """The published range, and every folder's change per context with its interval."""
    low, high = _published_change(root)
    rows: list[dict[str, Any]] = [
        {"source": published.LABEL, "context": "all", "families": "not stated", "interval": "none",
         "change of the decode time": f"{text.percent(low)} to {text.percent(high)}"}
    ]  # fmt: skip
    for one in found:
        rows += [
            {"source": one.label, "context": text.context_name(row["context"]), "families": row["n"],
             "change of the decode time": text.percent(row["change"]), "interval": changes(row)}
            for row in latency(one).to_dict("records")
        ]  # fmt: skip
    return pd.DataFrame(rows, dtype=object)


def _published_change(root: Path | None) -> list[float | None]:
    return [mechanisms.published_value(PHASE, f"latency_change_{end}", None, root) for end in ("max", "min")]


def latency(one: folders.Results) -> folders.Table:
    """Per context the relative change of the decode time, device-side against naive: ``change, low, high``."""
    saved = mechanisms.gain(one, PHASE, DEVICE, NAIVE)
    ends = {"change": saved["gain"], "change_low": saved["high"], "change_high": saved["low"]}
    return saved.assign(**{name: 1 / column.astype(float) - 1 for name, column in ends.items()})


def changes(row: dict[str, Any]) -> str:
    """ "-4.5 % to -3.8 %", or "none"."""
    low, high = row["change_low"], row["change_high"]
    return "none" if pd.isna(low) else f"{text.percent(low)} to {text.percent(high)}"


def latency_sentence(one: folders.Results, saved: folders.Table, root: Path | None = None) -> str:
    """On a GPU: whether the change is the predicted gain. On a CPU only the counts are judged."""
    if not one.cuda:
        return (
            f"In {one.named} a read is a plain memory access: only its counts are judged, not its time "
            f"(which changes by {text.span((row * 100 for row in saved['change']), '%')})."
        )
    low, high = _published_change(root)
    told = f"Published: {text.percent(low)} to {text.percent(high)}."
    bounded = saved[saved["change_low"].notna()]
    if bounded.empty:
        span = text.span((row * 100 for row in saved["change"]), "%")
        each = saved.to_dict("records")
        lost = [
            f"{text.percent(row['spread'])} at {text.context_name(row['context'])}"
            for row in each if not mechanisms.told_apart(row)
        ]  # fmt: skip
        side = (
            f", which cannot be told from the spread of runs and families ({text.listed(lost)})" if lost
            else ", as predicted" if (saved["change"] < 0).all()
            else ", **not as predicted**, a gain at every context"
        )  # fmt: skip
        return (
            f"In {one.named} the device-side plane changes the time by {span}{side}; there are too few "
            f"families for an interval. {told}"
        )
    faster = [text.context_name(c) for c in bounded[bounded["change_high"] < 0]["context"]]
    slower = [text.context_name(c) for c in bounded[bounded["change_low"] > 0]["context"]]
    sides = {"faster": faster, "slower": slower}
    moved = [f"{side} at {text.listed(names)}" for side, names in sides.items() if names]
    where = text.listed(text.context_name(c) for c in bounded["context"])
    found = f"is {text.listed(moved)}" if moved else f"makes no difference that the interval at {where} shows"
    held = "holds" if faster and not slower else "**does not hold**"
    size = f" by {text.span((abs(row) * 100 for row in bounded['change']), '%')}" if faster or slower else ""
    return (
        f"In {one.named} the device-side plane {found}{size}. The prediction, a gain on a GPU, {held}. {told}"
    )
