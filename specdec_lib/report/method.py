"""The frozen design as tables, read from design.toml and the prompts' own lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.checks import CHECKS
from specdec_lib.design import Profile
from specdec_lib.pairs import ALIASES, PAIRS
from specdec_lib.plan import plan
from specdec_lib.prompts import load_families, load_sources
from specdec_lib.report import folders, regimes, style, text
from specdec_lib.report.style import number

_MEANING = {
    "new_tokens": "tokens every timed run emits",
    "k": "draft tokens per round",
    "formulation": "round of the SpecDec arm",
    "bonus": "commit the target's token after a fully accepted block",
    "prefill_chunk": "prompt tokens per prefill call",
    "contexts": "prompt plus new tokens",
    "repeats": "per family, context and arm",
    "decoding": "choice of each token",
    "batch": "sequences at once",
    "warmup_repeats": "per process, never counted",
    "dtype": "auto: BF16 where a one-second calibration finds it faster, else FP32",
    "families": "held-out prompt families",
    "development": "families for thresholds and tuning only",
}


# What of [measurement] a profile may set for itself, but for whom it measures.
_OWN = ("formulation", "bonus", "k", "repeats", "new_tokens", "dtype")
_FROZEN = "as above"
_STEP = 0.005  # to which the design rounds the published alphas


def configuration(root: Path | None = None) -> pd.DataFrame:
    """Every setting of [measurement] with its meaning."""
    settings = folders.read_design(root).measurement.model_dump()
    return pd.DataFrame(
        {"setting": name, "value": _shown(name, value), "meaning": _MEANING.get(name, "")}
        for name, value in settings.items()
    )


def profiles(root: Path | None = None) -> pd.DataFrame:
    """Every profile with its overrides resolved."""
    design = folders.read_design(root)
    rows = []
    for name in design.profiles:
        profile = design.profile(name)
        jobs = plan(profile) if "confirmatory" in profile.phases else []
        rows.append(
            {
                "profile": name,
                "what": profile.title,
                "pair": profile.pair,
                "families": len(profile.families),
                "contexts": ", ".join(text.context_name(context) for context in profile.contexts),
                "repeats": profile.repeats,
                "isolation": profile.isolation,
                "processes": len(jobs),
                "runs": sum(len(job.runs) for job in jobs),
                "minutes, about": number(float(profile.total_minutes)),
                "committed": profile.committed,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def overrides(root: Path | None = None) -> pd.DataFrame:
    """What of a round and of its measurement each profile sets for itself; its contexts are in :func:`profiles`."""
    design, rows = folders.read_design(root), []
    for name, entry in design.profiles.items():
        own = {key: getattr(entry, key) for key in _OWN}
        own = {
            key: value for key, value in own.items() if value not in (None, getattr(design.measurement, key))
        }
        if own or entry.scripted or entry.mode != "eager":
            settings = {key: _shown(key, own[key]) if key in own else _FROZEN for key in _OWN}
            alpha = f"imposed: {text.span(entry.scripted.values())}" if entry.scripted else "the draft's"
            rows.append({"profile": name, "mode": entry.mode} | settings | {"alpha": alpha})
    return pd.DataFrame(rows, dtype=object)


def k_sentence(root: Path | None = None) -> str:
    """Where the k of the committed profiles comes from that set it for the published alphas; "" where none does.

    It is history: of a reader's own profile, or of other alphas, nobody knows it.
    """
    entries = folders.read_design(root).profiles.items()
    own = {
        name: entry.k
        for name, entry in entries
        if entry.committed and entry.k and entry.scripted and _are_published(entry.scripted, root)
    }
    if not own:
        return ""
    first, *others = own
    same = [f"`{name}`" for name in others if own[name] == own[first]]
    take = f"; {text.listed(same)} {'takes' if len(same) == 1 else 'take'} the same" if same else ""
    return (
        f"The k = {own[first]} of `{first}` was chosen before its run, by the cost line at the alphas that it "
        f"imposes, the published ones rounded{take}."
    )


def _are_published(scripted: dict[int, float], root: Path | None) -> bool:
    """Whether these are the published alphas of their contexts, rounded to the next step."""
    known = regimes.alphas(root)
    return all(abs(alpha - known.get(context, 2)) <= _STEP / 2 for context, alpha in scripted.items())


def pairs(root: Path | None = None) -> pd.DataFrame:
    """The model pairs that the profiles use, and where their weights come from."""
    design = folders.read_design(root)
    used = dict.fromkeys(ALIASES.get(entry.pair, entry.pair) for entry in design.profiles.values())
    return pd.DataFrame(
        {"pair": name, "target and draft": PAIRS[name].title} for name in used if name in PAIRS
    )


def checks(root: Path | None = None) -> pd.DataFrame:
    """The six checks with their frozen limits on a CPU and on a GPU."""
    analysis = folders.read_design(root).analysis
    rows = []
    for name, check in CHECKS.items():
        limits = [getattr(analysis.thresholds(kind), name, None) for kind in ("cpu", "gpu")]
        cpu, gpu = ("all" if limit is None else text.percent(limit) for limit in limits)
        summary = " ".join((check.__doc__ or "").split("\n\n")[0].split())
        excludes = name in analysis.exclude_on
        rows.append(
            {"check": name, "what it asks": summary, "CPU limit": cpu, "GPU limit": gpu, "excludes": excludes}
        )
    return pd.DataFrame(rows)


def interval(root: Path | None = None) -> str:
    """How the interval over families is made, in sentences."""
    plan = folders.read_design(root).analysis.interval
    kind = {"bca": "BCa", "percentile": "percentile"}.get(plan.method, "")
    how = f"the {kind} bootstrap of mean log R, {number(plan.resamples)} resamples, seed {plan.seed}"
    how = how if kind else "Student's t on log R"
    return (
        f"The interval is two-sided at {text.percent(plan.level, 0)}: {how}, over families. With fewer than "
        f"{plan.min_families} families, or fewer than {plan.min_repeats} repeats, there is no interval and "
        f"no verdict."
    )


def order(root: Path | None = None, profile_name: str = "cpu-full", families: int = 2) -> pd.DataFrame:
    """The planned order of the runs of the first ``families`` families at the shortest context."""
    profile: Profile = folders.read_design(root).profile(profile_name)
    names = profile.families[:families]
    rows = [
        {
            "process": job.name.removeprefix("confirmatory-"),
            "runs, in order": " ".join("A" if run.arm == "ar" else "B" for run in job.runs),
            "repeats": ", ".join(str(run.repeat) for run in job.runs),
        }
        for job in plan(profile, profile.contexts[0])
        if job.family in names
    ]
    return pd.DataFrame(rows)


def prompt_families(root: Path | None = None) -> pd.DataFrame:
    """Every family with its task, the texts it is built from and their licences."""
    folder = {} if root is None else {"root": root / "data" / "prompts"}
    sources: Any = load_sources(**folder)
    rows = []
    for family in load_families(**folder):
        given = [sources[file] for file in family.files]
        rows.append(
            {
                "family": family.name,
                "set": family.set,
                "task": family.task,
                "text": "; ".join(dict.fromkeys(f"{one['title']} ({one['author']})" for one in given)),
                "from": "; ".join(dict.fromkeys(one["source"] for one in given)),
                "licence": "; ".join(dict.fromkeys(one["licence"] for one in given)),
            }
        )
    return pd.DataFrame(rows)


def hashes(root: Path | None = None) -> pd.DataFrame:
    """The measurement hash each folder was measured under, and the analysis plan's."""
    design = folders.read_design(root)
    rows = [
        {
            "results": one.label,
            "measurement hash": one.provenance.get("design_hash", "not recorded"),
            "sources that measured": ", ".join(
                f"{name} ({text.counted(n, 'job')})"
                for name, n in one.provenance.get("measured_by", {}).items()
            )
            or "not recorded",
            "analysis hash, now": design.analysis_hash(),
        }
        for one in folders.all_folders(root)
    ]
    return pd.DataFrame(rows)


def show_hashes(root: Path | None = None) -> None:
    """The table of hashes, or what makes one."""
    text.say(f"The analysis plan's hash is `{folders.read_design(root).analysis_hash()}`.")
    if len(frame := hashes(root)):
        style.table(frame, caption="Hashes stored with the results.")
    else:
        text.say(text.not_measured("a measurement, which would carry its own hash"))


def _shown(name: str, value: Any) -> str:
    if name in ("families", "development"):
        return f"{len(value)}: {', '.join(value)}"
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{item:,}" for item in value)
    return number(value)
