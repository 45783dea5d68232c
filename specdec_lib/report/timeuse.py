"""Where the time goes: what bytes and layers predict, the stages of a round, the share of bandwidth."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specdec_lib.costmodel import GPU_BYTES_PER_S, PUBLISHED_K, PUBLISHED_TOKENS, predicted_R
from specdec_lib.guesses import draft_costs
from specdec_lib.report import audit, compare, figures, folders, models, published, style, text
from specdec_lib.report.costline import CLEARLY
from specdec_lib.report.style import number

_CLOSE_CALL = 0.02  # two predictions whose misses are this near to each other are not told apart
MEASURED = "R_GM measured, all families"


def show_stages(found: list[compare.Source]) -> None:
    """Stacked bars per folder, context and arm, and the finding."""
    style.use_style()
    having = [(one, shares) for one in compare.ours(found) if (shares := stage_seconds(one))]
    for one, shares in having:
        told = stage_sentence(one)
        caption = (
            f"{one.label}: {one.hardware}; {one.setup}. One instrumented SpecDec repeat per family, never "
            f"counted in R; medians over {text.families(_staged(one)['family'].nunique())}; a part below 8 % "
            "has no label."
        )
        alt, csv = "Stacked bars of seconds per stage. " + told, one.csv(f"stages-{one.contexts[0]}.csv")
        style.figure(figures.stage_shares(shares), alt=alt, caption=caption, csv=csv)
        text.say(f"{told} {marks_sentence(one)}{unstaged(one)}")
    if not having:
        text.say(text.not_measured("the stages of a round"))


def stage_seconds(one: folders.Results) -> dict[str, dict[str, float]]:
    """Per "context arm": median seconds of every stage over families; {} without a stages table."""
    if one.stages is None:
        return {}
    names = {"ar": "AR", "spec": "SpecDec"}
    medians: Any = one.stages.groupby(["context_tokens", "arm", "stage"])["stage_s"].median()
    order = ["draft", "verify", "accept", "repair", "other"]
    return {
        f"{text.context_name(context)} {names[arm]}": {
            stage: float(medians.get((context, arm, stage), 0.0)) for stage in order
        }
        for context in one.contexts
        for arm in names
        if (context, arm) in medians.index.droplevel(2)
    }


def marks_sentence(one: folders.Results) -> str:
    """What the marks cost: instrumented runs of SpecDec against timed ones of the same cell."""
    cell = ["context_tokens", "family"]
    marked = _staged(one).groupby(cell)["total_s"].first()
    timed: Any = one.runs[one.runs["arm"] == "spec"].groupby(cell)["decode_s"].median()
    times = (marked / timed).dropna()
    return (
        f"An instrumented run takes {number(times.median())} times a timed one of its cell (median of "
        f"{text.counted(len(times), 'cell')}; {text.span(times)}): costs by stages are held against AR steps without "
        "marks, and may be off by as much."
    )


def unstaged(one: folders.Results) -> str:
    """Cells of SpecDec that have timed runs and no stages; "" where all have."""
    cell = ["context_tokens", "family"]
    timed: Any = one.runs[one.runs["arm"] == "spec"][cell].drop_duplicates()
    both = timed.merge(_staged(one)[cell].drop_duplicates(), on=cell, how="left", indicator=True)
    without = both[both["_merge"] == "left_only"].groupby("family", sort=False)["context_tokens"].unique()
    each = (
        f"`{family}` at {text.listed(text.context_name(context) for context in sorted(contexts))}"
        for family, contexts in without.items()
    )
    told = text.listed(each)
    return (
        f' Without stages: {told}; where rows were removed, the job file says why under "corrected".'
        if told
        else ""
    )


def _staged(one: folders.Results) -> folders.Table:
    """The stages of SpecDec."""
    stages: Any = one.stages
    return stages[stages["arm"] == "spec"]


def stage_sentence(one: folders.Results) -> str:
    """The largest stages of the SpecDec arm per context, with their shares."""
    parts = []
    for label, stages in stage_seconds(one).items():
        total = sum(stages.values())
        if label.endswith("SpecDec") and total:
            largest, second, *_ = sorted(stages, key=lambda stage: stages[stage], reverse=True)
            rest = [second] + ["draft"] * ("draft" not in (largest, second))
            then = text.listed(f"{stage} {text.percent(stages[stage] / total)}" for stage in rest)
            share = text.percent(stages[largest] / total)
            parts.append(f"{largest} at {label.split()[0]} ({share}, then {then})")
    return f"In {one.named} the largest part of the SpecDec time is {text.listed(parts)}." if parts else ""


def show_roofline(found: list[compare.Source]) -> None:
    """AR's bytes per step, achieved bytes per second and their share of the measured bandwidth."""
    having = [one for one in compare.ours(found) if not roofline(one).empty]
    if not having:
        text.say(text.not_measured("the share of the read bandwidth"))
        return
    each = "; ".join(
        f"{one.label}: {one.hardware}, "
        + number(one.provenance["device"]["read_bandwidth_bytes_per_s"] / 1e9, "GB/s")
        for one in having
    )
    caption = (
        "Medians over families of AR's decode time per step, against the read bandwidth: one reading per "
        "folder, the median of some sums over 512 MiB, by the same definition on every device; its spread "
        f"was not kept ({each}). Published: against {GPU_BYTES_PER_S / 1e9:g} GB/s, the GPU's nominal "
        "bandwidth."
    )
    frames = [(published.LABEL, published_roofline()), *((one.label, roofline(one)) for one in having)]
    style.table(beside(frames), caption=caption, csv=[one.csv(folders.PROVENANCE) for one in having])
    text.say(*(roofline_sentence(one) for one in having), *bandwidth_sentences(having))


def bandwidth_sentences(having: list[folders.Results]) -> list[str]:
    """Folders of one hardware whose bandwidths are far apart: a single reading does not name a machine's bandwidth."""
    by_machine: dict[str, list[folders.Results]] = {}
    for one in having:
        by_machine.setdefault(one.hardware, []).append(one)
    told = []
    for hardware, same in by_machine.items():
        read = {one.named: one.provenance["device"]["read_bandwidth_bytes_per_s"] / 1e9 for one in same}
        if max(read.values()) > (1 + CLEARLY) * min(read.values()):
            each = text.listed(f"{number(value, 'GB/s')} in {name}" for name, value in read.items())
            told.append(
                f"{hardware} read {each}. One name does not mean one machine, nor one reading its bandwidth: "
                "shares of the one are not shares of the other."
            )
    return told


def beside(frames: list[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Tables of several sources as one, by context, with a column that names the source."""
    rows = [
        {"context": row["context"], "source": label} | row
        for label, frame in frames
        for row in frame.to_dict("records")
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: (len(row["context"]), row["context"])), dtype=object)


def published_roofline() -> pd.DataFrame:
    """The same of the published AR times, with the Qwen pair's bytes."""
    return pd.DataFrame(
        {
            "context": text.context_name(row["context_tokens"]),
            "bytes per step, MB": row["roofline_share"] * GPU_BYTES_PER_S * row["ar_step_s"] / 1e6,
            "AR step, ms": row["ar_step_s"] * 1e3,
            "tokens/s": 1 / row["ar_step_s"],
            "achieved, GB/s": row["roofline_share"] * GPU_BYTES_PER_S / 1e9,
            "share of bandwidth": text.percent(row["roofline_share"]),
        }
        for row in audit.rows()
    )


def roofline(one: folders.Results) -> pd.DataFrame:
    """AR per context: bytes read per step (weights, cache at its mean length), and their rate."""
    target = one.provenance.get("models", {}).get("target")
    bandwidth = one.provenance.get("device", {}).get("read_bandwidth_bytes_per_s")
    if not target or not bandwidth:
        return pd.DataFrame()
    rows = []
    for row in one.summary.to_dict("records"):
        context, new = row["context_tokens"], one.profile.new_tokens
        read = target["step_bytes"] + target["kv_bytes_per_token"] * (context - new / 2)
        step = row["ar_median_s"] / (new - 1)
        rows.append(
            {
                "context": text.context_name(context),
                "bytes per step, MB": read / 1e6,
                "AR step, ms": step * 1e3,
                "tokens/s": 1 / step,
                "achieved, GB/s": read / step / 1e9,
                "share of bandwidth": text.percent(read / step / bandwidth),
            }
        )
    return pd.DataFrame(rows)


def roofline_sentence(one: folders.Results) -> str:
    """How good the baseline is; a speed-up over a weak one is no finding. Of a quick look only what it measured."""
    bandwidth = one.provenance["device"]["read_bandwidth_bytes_per_s"]
    shares = [row["achieved, GB/s"] * 1e9 / bandwidth for row in roofline(one).to_dict("records")]
    weak, n = sum(share < 0.5 for share in shares), len(shares)
    every = "both" if n == 2 else f"all {n}"
    where = "at the one context" if n == 1 else f"at {every if weak == n else f'{weak} of {n}'} contexts"
    told = (
        "A quick look: that describes its runs and judges no baseline."
        if one.quick
        else f"That is less than half {where}: a step there is not bound by its bytes, and an R over this baseline "
        "says as much about the baseline."
        if weak
        else "The baseline is not a weak one."
    )
    return (
        f"In {one.named} AR reaches {text.span((s * 100 for s in shares), digits=3)} % of the "
        f"read bandwidth. {told}"
    )


def predictions(one: folders.Results) -> pd.DataFrame:
    """R by the cost line at the runs' own alpha, v = 1, if a draft step costs its share of bytes, or of layers."""
    models = one.provenance.get("models")
    if not models:
        return pd.DataFrame()
    p, rows = one.profile, []
    for known in one.summary.to_dict("records"):
        context, alpha = int(known["context_tokens"]), known["alpha_median"]
        if alpha != alpha:  # nothing was proposed
            continue
        row = {"context": text.context_name(context), "alpha": alpha}
        for name, cost in draft_costs(models, context).items():
            R = predicted_R(cost, 1.0, p.k, alpha, p.formulation, p.bonus, new_tokens=p.new_tokens)
            row[f"R if time follows {name}"] = R
        rows.append(row | {MEASURED: known["R_GM_all"]})
    return pd.DataFrame(rows)


def show_predictions(found: list[compare.Source]) -> None:
    """What bytes or layers predict at the acceptance of the runs, against R as measured."""
    having = [(one, frame) for one in compare.ours(found) if len(frame := predictions(one))]
    if not having:
        text.say(text.not_measured("a prediction from this machine's own models"))
        return
    text.say(models.synthetic_told(one for one, _ in having))
    each = "; ".join(f"{one.label}: {models.setting(one)}; {one.setup}" for one, _ in having)
    caption = (
        "The cost line at each source's own median alpha, with v = 1, for its own engine "
        f"(published: {published.HARDWARE}; {published.SETUP}; {each}). Measured: R_GM of all families; published: as "
        "stated, of the families in its inference."
    )
    frames = [(published.LABEL, published_predictions(found[0]))]
    frames += [(one.label, frame) for one, frame in having]
    style.table(beside(frames), caption=caption, csv=[pair[0].csv(folders.PROVENANCE) for pair in having])
    for one, frame in having:
        text.say(*concluded(one, prediction_sentence(one, frame)))


def concluded(one: folders.Results, told: str) -> list[str]:
    """The sentence; in place of a quick look's, how little was run. Its repeats are those of the confirmatory runs."""
    if not one.quick:
        return [told]
    n = int(one.runs.groupby("context_tokens")["family"].nunique().max())
    least = one.design.analysis.interval.min_repeats
    return [
        f"**{one.label}.** {text.families(n)} per context, {text.counted(one.profile.repeats, 'repeat')}, where the "
        f"design asks for {least}: the numbers describe these runs, and which prediction is nearer is not concluded."
    ]


def show_finding(found: list[compare.Source]) -> None:
    """Per folder: which simple machine it resembles, which stage is the largest, and how good its baseline is."""
    for one in compare.ours(found):
        guessed = predictions(one)
        guess = concluded(one, prediction_sentence(one, guessed)) if len(guessed) else []
        told = [*guess, stage_sentence(one), "" if roofline(one).empty else roofline_sentence(one)]
        text.say(" ".join(part for part in told if part))
    if not compare.ours(found):
        text.say(text.not_measured("where the time goes"))


def published_predictions(article: compare.Source) -> pd.DataFrame:
    """The same for the published pair: layers and bytes of the Qwen shapes."""
    ratios = audit.ratios()
    return pd.DataFrame(
        {"context": text.context_name(row["context_tokens"]), "alpha": row["alpha_median"]}
        | {
            f"R if time follows {name}": predicted_R(
                ratios[name], 1.0, PUBLISHED_K, row["alpha_median"], new_tokens=PUBLISHED_TOKENS
            )
            for name in ("bytes", "layers")
        }
        | {MEASURED: row["R_GM"]}
        for row in article.rows
    )


def prediction_sentence(one: folders.Results, frame: pd.DataFrame) -> str:
    """Which of the two predictions is nearer to the whole R as measured; of c alone the cost line speaks."""
    wins = []
    for row in frame.to_dict("records"):
        found = {name: row[f"R if time follows {name}"] for name in ("bytes", "layers")}
        off = {name: abs(R / row[MEASURED] - 1) for name, R in found.items()}
        nearer, farther = sorted(off, key=lambda name: off[name])
        clear = off[farther] - off[nearer] > max(_CLOSE_CALL, CLEARLY * off[farther])
        wins.append(nearer if clear else "neither")
    if len(set(wins)) == 1:
        if wins[0] == "neither":
            return (
                f"In {one.named} the whole R is about equally far from the two predictions: it tells neither."
            )
        return (
            f"In {one.named} the whole R, which the verification shapes too, is nearer to the prediction from "
            f"{wins[0]} at {'every context' if len(wins) > 1 else frame['context'].iloc[0]}."
        )
    each = text.listed(f"{win} at {context}" for win, context in zip(wins, frame["context"], strict=True))
    return f"In {one.named} the prediction nearer to the whole R differs: {each}."
