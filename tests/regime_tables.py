"""Made-up regimes: four GPU folders and one of real text whose times follow known cost lines exactly."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.costmodel import Counts, counts_from_trace
from specdec_lib.design import Profile, load_design
from specdec_lib.plan import plan
from specdec_lib.records import write_table
from specdec_lib.report.controlplane import expected_traffic
from specdec_lib.variants import PHASES, Variant, passes_of, resolved

REPOSITORY = Path(__file__).parent.parent
HASH = "0123456789abcdef"
ALPHAS = {2048: 0.77, 4096: 0.755, 8192: 0.735}
SHARED = """
device = "cuda"
isolation = "context"
committed = true
mechanisms = { families = { 2048 = 4, 4096 = 2, 8192 = 2 }, repeats = 2 }
phases = ["confirmatory"]
minutes = { confirmatory = 1 }
"""
SCRIPTED = "scripted = { 2048 = 0.77, 4096 = 0.755, 8192 = 0.735 }\n"
CAPTURED = 'formulation = "repair-free"\nbonus = true\n'
PROFILES = {
    "gpu-text": 'title = "Real text"\npair = "smol"\n',
    "gpu-eager": f'title = "Eager"\npair = "qwen2.5-shapes"\n{SCRIPTED}',
    "gpu-graphs": f'title = "Graphs"\npair = "qwen2.5-shapes"\nmode = "graphs"\nk = 1\n{SCRIPTED}{CAPTURED}',
    "gpu-compiled": f'title = "Compiled"\npair = "qwen2.5-shapes"\nmode = "compiled"\nk = 1\n{SCRIPTED}{CAPTURED}'
    "memory_cap_gib = 8.0\n",
}
QWEN = {
    "target": {"step_bytes": 3_087_428_608, "kv_bytes_per_token": 28_672, "layers": 28},
    "draft": {"step_bytes": 988_065_536, "kv_bytes_per_token": 12_288, "layers": 24},
}
SMOL = {
    "target": {"step_bytes": 269_030_016, "kv_bytes_per_token": 23_040, "layers": 30},
    "draft": {"step_bytes": 84_945_024, "kv_bytes_per_token": 3_072, "layers": 4},
}


ONLY_CONFIRMATORY = ("gpu-graphs",)


@dataclass(frozen=True)
class Machine:
    """A cost line: seconds of an AR step, and everything else in AR steps."""

    step: float = 0.02
    c: float = 0.86
    base: float = 1.0
    row: float = 0.02
    repair: float = 1.0
    overhead: float = 0.05

    def seconds(self, counts: Counts) -> float:
        return self.step * counts.cost(
            self.c, lambda rows: self.base + self.row * rows, self.repair, self.overhead
        )


MACHINES = {
    "gpu-text": Machine(step=0.015, c=0.15),
    "gpu-eager": Machine(),
    "gpu-graphs": Machine(step=0.004, c=0.45, repair=0.0, overhead=0.02),
    "gpu-compiled": Machine(step=0.001, c=0.55, repair=0.0, overhead=0.01),
}


def make_project(root: Path, machines: dict[str, Machine] | None = None) -> Path:
    """The published tables, a design with the profiles above, and every folder's tables."""
    text = (REPOSITORY / "design.toml").read_text()
    text = text[: text.index("[profiles.")]
    phases = ("confirmatory", "acceptance", "numerics", *PHASES)
    minutes = ", ".join(f"{phase} = 1" for phase in phases)
    text += (
        f'[profiles.cpu]\ntitle = "Here"\npair = "smol"\nisolation = "cell"\nphases = {json.dumps(phases)}\n'
        "mechanisms = { families = { 2048 = 1 }, repeats = 2 }\n"
    )
    text += f"minutes = {{ {minutes} }}\n"
    for name, own in PROFILES.items():
        text += f"[profiles.{name}]\n{own}{SHARED}"
    (root / "design.toml").write_text(text)
    shutil.copytree(REPOSITORY / "data" / "published", root / "data" / "published")
    for name, machine in ((MACHINES | machines) if machines else MACHINES).items():
        make_folder(root, name, machine)
    return root


def make_folder(root: Path, name: str, machine: Machine) -> Path:
    """``data/<name>/`` with provenance, confirmatory runs, stages, the fit and the mechanism tables its engine has."""
    profile = load_design(root / "design.toml").profile(name)
    folder = root / "data" / name
    folder.mkdir()
    record = {
        "profile": name, "design_hash": HASH, "machine": {"cpu": "Example CPU", "threads_used": 4},
        "device": {"device": "cuda", "device_name": "Example GPU", "dtype": "bf16",
                   "read_bandwidth_bytes_per_s": 4e12},
        "models": SMOL if profile.pair == "smol" else QWEN,
    }  # fmt: skip
    (folder / "provenance.json").write_text(json.dumps(record))
    for context in profile.contexts:
        write_table(
            confirmatory(profile, machine, context), folder / f"confirmatory-{context}.csv", "confirmatory"
        )
        write_table(stages(profile, machine, context), folder / f"stages-{context}.csv", "stages")
    if name in ONLY_CONFIRMATORY:
        return folder
    write_table(fit(profile, machine), folder / "cost-fit.csv", "cost-fit")
    for phase in PHASES:
        table = mechanism(profile, machine, phase)
        if len(table):
            write_table(table, folder / f"{phase}.csv", "mechanism")
    write_table(predictions(profile, machine), folder / "predictions.csv", "predictions")
    write_table(traces(profile), folder / "traces.csv", "traces")
    write_table(costs(profile, machine), folder / "costs.csv", "costs")
    write_table(break_even(profile), folder / "break-even.csv", "break-even")
    write_table(numerics(profile), folder / "numerics.csv", "numerics")
    return folder


def bits(profile: Profile, family: str, context: int) -> list[bool]:
    """The passes of a cell: i.i.d. at the published alpha."""
    drawn = Variant("x", trace="iid", setting=ALPHAS[context])
    return passes_of(drawn, [False] * profile.new_tokens, family, context)


def tallies(counts: Counts | None, seconds: float) -> dict[str, Any]:
    """A run's counts and time as columns; None is AR."""
    c = counts
    return {
        "new_tokens": 64, "decode_s": seconds, "rounds_n": c.rounds if c else 0,
        "proposed_tokens": c.proposed if c else 0,
        "accepted_tokens": c.accepted if c else 0, "rejections_n": c.rejections if c else 0,
        "target_calls_n": c.target_calls if c else 63, "draft_calls_n": c.draft_forwards if c else 0,
    }  # fmt: skip


def confirmatory(profile: Profile, machine: Machine, context: int) -> pd.DataFrame:
    rows = []
    for job in plan(profile, context):
        for run in job.runs:
            made = counts_from_trace(
                bits(profile, run.family, context),
                profile.k,
                profile.new_tokens,
                profile.formulation,
                profile.bonus,
            )
            counts = made if run.arm == "spec" else None
            seconds = machine.seconds(counts) if counts else machine.step * 63
            rows.append(
                base(profile, context) | {"pair": profile.pair, "dtype": "bf16", "device": "cuda", "mode": profile.mode}
                | {name: getattr(run, name) for name in ("family", "arm", "block", "repeat", "position")}
                | tallies(counts, seconds)
                | {
                    "isolation": "context", "threads": 4, "job": job.name, "prefill_s": 0.1,
                    "draft_prefill_s": 0.05 if counts else None, "host_reads_n": 1, "tokens_sha256": "a" * 64,
                    "first_divergence_tokens": None, "others_cpu_share": 0.0, "peak_rss_bytes": 10**9,
                    "natural_end": False, "repeated_ngram_share": 0.1, "device_event_s": seconds, "throttled": False,
                    "other_gpu_processes_n": 0,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def base(profile: Profile, context: int) -> dict[str, Any]:
    return {"profile": profile.name, "design_hash": HASH, "context_tokens": context}


def stages(profile: Profile, machine: Machine, context: int) -> pd.DataFrame:
    """What the machine's own line says of each stage; the catch-up of the reference formulation is in its repair."""
    rows = []
    for family in profile.families:
        made = counts_from_trace(
            bits(profile, family, context), profile.k, profile.new_tokens, profile.formulation, profile.bonus
        )
        caught_up = (made.rounds - 1) * (profile.formulation == "reference")
        spent = {
            "draft": (made.draft_forwards - caught_up) * machine.c,
            "verify": sum(n * (machine.base + machine.row * rows) for rows, n in made.blocks.items()),
            "accept": made.rounds * machine.overhead, "repair": made.repairs * machine.repair + caught_up * machine.c,
            "other": 0.0,
        }  # fmt: skip
        total = sum(spent.values()) * machine.step
        rows += [
            base(profile, context)
            | {
                "family": family,
                "arm": "spec",
                "stage": stage,
                "stage_s": steps * machine.step,
                "total_s": total,
            }
            for stage, steps in spent.items()
        ]
    return pd.DataFrame(rows)


def fit(profile: Profile, machine: Machine) -> pd.DataFrame:
    parts: list[tuple[str, int | None, float]] = [
        ("ar step", None, 1.0), ("draft forward", None, machine.c), ("repair", None, machine.repair),
        ("round overhead", None, machine.overhead),
    ]  # fmt: skip
    parts += [("verification", k, machine.base + machine.row * (k + 1)) for k in range(1, 9)]
    rows = []
    for context in profile.contexts:
        for name, k, steps in parts:
            ends = {f"{part}{end}{unit}": steps * scale for end in ("", "_low", "_high")
                    for part, unit, scale in (("cost", "_s", machine.step), ("steps", "", 1.0))}  # fmt: skip
            rows.append(
                base(profile, context)
                | {"component": name, "k": k, "families_n": 4, "extrapolated": False}
                | ends
            )
    return pd.DataFrame(rows)


def runs(profile: Profile, phase: str) -> list[Variant]:
    """The variants that the profile's engine can run: a captured one has only repair-free rounds with bonus."""
    chosen = resolved(phase, profile.k, profile.new_tokens)
    captured = profile.mode != "eager"
    kept = [
        v
        for v in chosen
        if v.proposer == "none" or not captured or (v.formulation == "repair-free" and v.bonus)
    ]
    return [v for v in kept if v.proposer != "naive" or not captured]


def counted(v: Variant, profile: Profile, family: str, context: int) -> Counts:
    own = bits(profile, family, context)
    passes = [True] * profile.new_tokens if v.rule == "all" else passes_of(v, own, family, context)
    assert v.k
    made = counts_from_trace(passes, v.k, profile.new_tokens, v.formulation, v.bonus)
    return dataclasses.replace(made, draft_forwards=0) if v.proposer == "free" else made


def cells(profile: Profile) -> list[tuple[int, str]]:
    assert profile.mechanisms
    return [(c, f) for c, n in profile.mechanisms.families.items() for f in profile.families[:n]]


def settings(v: Variant) -> dict[str, Any]:
    plain = v.proposer == "none"
    return {"variant": v.name, "k": None if plain else v.k, "bonus": None if plain else v.bonus,
            "formulation": None if plain else v.formulation}  # fmt: skip


def mechanism(profile: Profile, machine: Machine, phase: str) -> pd.DataFrame:
    variants, rows = runs(profile, phase), []
    if len(variants) < 2:
        return pd.DataFrame()
    for context, family in cells(profile):
        for position, v in enumerate(variants):
            made = None if v.proposer == "none" else counted(v, profile, family, context)
            seconds = machine.seconds(made) if made else machine.step * 63
            traffic = {"host_reads_n": 1, "host_copies_n": 0, "host_bytes": 512}
            if made and phase == "control-plane":
                traffic = expected_traffic(v.name, int(made.proposed), int(made.accepted), int(made.rounds))
                seconds *= 1.1 if v.name == "naive" else 1.0
            for repeat in (1, 2):
                rows.append(
                    base(profile, context) | settings(v) | tallies(made, seconds) | traffic
                    | {
                        "pair": profile.pair, "dtype": "bf16", "device": "cuda", "mode": profile.mode, "threads": 4,
                        "family": family, "phase": phase, "label": v.label, "setting": v.setting, "repeat": repeat,
                        "position": position, "job": "j",
                        "block_rows_tokens": int(sum(r * n for r, n in made.blocks.items())) if made else 0,
                        "tokens_sha256": "a" * 64, "first_divergence_tokens": None, "equal_share": 1.0,
                        "others_cpu_share": 0.0, "cpu_mhz": None, "peak_rss_bytes": 10**9, "prediction_sha256": None,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def predictions(profile: Profile, machine: Machine) -> pd.DataFrame:
    rows = []
    for context, family in cells(profile):
        for v in runs(profile, "cost-model")[1:]:
            made = counted(v, profile, family, context)
            seconds = machine.seconds(made)
            rows.append(
                base(profile, context) | settings(v)
                | {
                    "family": family, "label": v.label, "pass_share": 0.75, "rounds_n": made.rounds,
                    "counts_from": "trace", "rounds_by_trace_n": made.rounds,
                    "draft_calls_n": made.draft_forwards, "target_calls_n": made.target_calls,
                    "ar_predicted_s": machine.step * 63, "spec_predicted_s": seconds,
                    "R_predicted": machine.step * 63 / seconds, "R_predicted_low": None, "R_predicted_high": None,
                    "extrapolated": False,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def traces(profile: Profile) -> pd.DataFrame:
    rows = []
    for context, family in cells(profile):
        own = bits(profile, family, context)
        made = counts_from_trace(own, profile.k, profile.new_tokens)
        rows.append(
            base(profile, context)
            | {
                "family": family, "passes": "".join("01"[bit] for bit in own), "pass_share": sum(own) / len(own),
                "rounds_n": made.rounds, "rounds_by_trace_n": made.rounds, "acceptance": made.accepted / made.proposed,
                "alpha": 0.75, "identical": True,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def costs(profile: Profile, machine: Machine) -> pd.DataFrame:
    engine = Variant("repair-free", bonus=True, formulation="repair-free")
    variants = [Variant("ar", proposer="none")]
    variants += [dataclasses.replace(engine, name=f"repair-free, k = {k}", k=k) for k in range(1, 9)]
    variants += [Variant("reference", k=profile.k)] * (profile.mode == "eager")
    rows = []
    for context in profile.contexts:
        for family in ("dev-poem", "dev-log"):
            for v in variants:
                made = None if v.proposer == "none" else counted(v, profile, family, context)
                seconds = machine.seconds(made) if made else machine.step * 63
                spent = {"draft_s": 0.6, "verify_s": 0.3, "accept_s": 0.02, "repair_s": 0.05, "other_s": 0.03}
                rows.append(
                    base(profile, context) | settings(v) | tallies(made, seconds)
                    | {"family": family, "repeat": 1,
                       "block_rows_tokens": int(sum(r * n for r, n in made.blocks.items())) if made else 0}
                    | {name: share * seconds for name, share in spent.items()}
                )  # fmt: skip
    return pd.DataFrame(rows)


def break_even(profile: Profile) -> pd.DataFrame:
    return pd.DataFrame(
        base(profile, context)
        | {
            "formulation": "repair-free", "bonus": True, "k": profile.k, "c_steps": 0.4, "v_steps": 1.1, "alpha": 0.75,
            "break_even_alpha": 0.5, "best_k": 1, "R_at_best_k": 1.1, "extrapolated": False,
        }
        for context in profile.contexts
    )  # fmt: skip


def numerics(profile: Profile) -> pd.DataFrame:
    from specdec_lib.variants import OPERATIONS

    rows = []
    for family in profile.families[:2]:
        for width in (2, 5):
            for operation in OPERATIONS:
                head, first = operation == "head", operation == "qkv"
                rows.append(
                    base(profile, 2048)
                    | {
                        "family": family, "dtype": "bf16", "width": width, "operation": operation,
                        "chained_max": 0.2, "alone_max": 0.1 * first, "alone_layers_n": 3 * first, "layers_n": 28,
                        "first_to_differ": first, "first_layer": 0 if first else None, "flips_n": 1 if head else None,
                        "flip_margin_max": 0.1 if head else None, "deterministic": True, "group_width": min(width, 2),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
