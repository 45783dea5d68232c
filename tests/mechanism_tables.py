"""Made-up tables of mechanism phases with known answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.design import load_design
from specdec_lib.records import validate, write_table
from specdec_lib.report.controlplane import expected_traffic
from specdec_lib.variants import OPERATIONS, resolved

REPOSITORY = Path(__file__).parent.parent
DESIGN_HASH = "0123456789abcdef"
FAMILIES = load_design(REPOSITORY / "design.toml").measurement.families
CELLS = {2048: 8, 4096: 2}
Ratio = Callable[[str, int], float]


def make_project(root: Path) -> Path:
    """The design and the published tables; no results."""
    shutil.copyfile(REPOSITORY / "design.toml", root / "design.toml")
    shutil.copytree(REPOSITORY / "data" / "published", root / "data" / "published")
    return root


def make_folder(root: Path, name: str = "cpu-full", profile: str = "cpu-full", device: str = "cpu") -> Path:
    """A folder of results with a provenance file."""
    folder = root / "data" / name
    folder.mkdir()
    record = {
        "profile": profile,
        "design_hash": DESIGN_HASH,
        "machine": {"cpu": "Example CPU", "threads_used": 2},
        "device": {"device": device, "device_name": "Example", "dtype": "bf16"},
        "models": {
            "target": {"step_bytes": 3e8, "kv_bytes_per_token": 20_000, "layers": 30},
            "draft": {"step_bytes": 1e8, "kv_bytes_per_token": 3_000, "layers": 4},
        },
    }
    (folder / "provenance.json").write_text(json.dumps(record))
    return folder


def made_runs(phase: str, ratio: Ratio, profile: str = "cpu-full", **changes: Any) -> pd.DataFrame:
    """AR takes 2 s, a variant 2 s / ratio(variant, number of the family), in two equal repeats."""
    rows = []
    for context, n in CELLS.items():
        for number, family in enumerate(FAMILIES[:n]):
            for v in resolved(phase, 4, 64):
                plain = v.proposer == "none"
                counts = {"proposed": 0, "accepted": 0, "rounds": 0} if plain else {
                    "proposed": 92, "accepted": 41, "rounds": 23
                }  # fmt: skip
                traffic = {"host_reads_n": 1, "host_copies_n": 0, "host_bytes": 512}
                if not plain:
                    traffic = expected_traffic(v.name if phase == "control-plane" else "device", **counts)
                for repeat in (1, 2):
                    rows.append(
                        {
                            "profile": profile, "design_hash": DESIGN_HASH, "pair": "smol", "dtype": "bf16",
                            "device": "cpu", "mode": "eager", "threads": 2, "family": family, "context_tokens": context,
                            "phase": phase, "variant": v.name, "label": v.label, "k": None if plain else v.k,
                            "bonus": None if plain else v.bonus, "formulation": None if plain else v.formulation,
                            "setting": v.setting, "repeat": repeat, "position": 0, "job": "j", "new_tokens": 64,
                            "decode_s": 2.0 if plain else 2.0 / ratio(v.name, number), "rounds_n": counts["rounds"],
                            "proposed_tokens": counts["proposed"], "accepted_tokens": counts["accepted"],
                            "rejections_n": 0 if plain else 16, "target_calls_n": 63 if plain else 39,
                            "draft_calls_n": 0 if plain else 91, "block_rows_tokens": counts["proposed"], **traffic,
                            "tokens_sha256": "a" * 64, "first_divergence_tokens": None, "equal_share": 1.0,
                            "others_cpu_share": 0.0, "cpu_mhz": None, "peak_rss_bytes": 10**9,
                            "prediction_sha256": None,
                        }
                        | changes
                    )  # fmt: skip
    return validate(pd.DataFrame(rows), "mechanism")


def put(folder: Path, phase: str, ratio: Ratio, **changes: Any) -> pd.DataFrame:
    """Write a phase's table of made-up runs into a folder, and return it."""
    profile = json.loads((folder / "provenance.json").read_text())["profile"]
    table = made_runs(phase, ratio, profile, **changes)
    write_table(table, folder / f"{phase}.csv", "mechanism")
    return table


def made_quality(log_probability: Mapping[str, float], kept: bool = True, equal: float = 0.5) -> pd.DataFrame:
    """Text quality of the phase "relaxed"; ``log_probability`` by variant. Every other family's form is checked."""
    rows = []
    for context, n in CELLS.items():
        for number, family in enumerate(FAMILIES[:n]):
            for v in resolved("relaxed", 4, 64):
                plain, exact = v.proposer == "none", not v.setting
                rows.append(
                    {
                        "profile": "cpu-full", "design_hash": DESIGN_HASH, "family": family, "context_tokens": context,
                        "phase": "relaxed", "variant": v.name, "label": v.label, "k": None if plain else v.k,
                        "bonus": None if plain else v.bonus, "formulation": None if plain else v.formulation,
                        "setting": v.setting, "first_divergence_tokens": None if exact else 3,
                        "equal_share": 1.0 if exact else equal, "format": "json" if number % 2 else None,
                        "mean_log_probability": log_probability.get(v.name, -1.0),
                        "format_kept": (exact or kept) if number % 2 else None,
                    }
                )  # fmt: skip
    return validate(pd.DataFrame(rows), "quality")


def made_numerics(
    alone: Mapping[str, float],
    flips: int = 0,
    margin: float | None = None,
    group: int = 1,
    repeats: bool = True,
) -> pd.DataFrame:
    """Widths 2 and 5 of two cells in BF16; ``alone`` gives the difference of an operation, the first is first."""
    rows = []
    first = next((name for name in OPERATIONS if alone.get(name)), None)
    for family in FAMILIES[:2]:
        for width in (2, 5):
            for operation in OPERATIONS:
                head, off = operation == "head", alone.get(operation, 0.0)
                rows.append(
                    {
                        "profile": "cpu-full", "design_hash": DESIGN_HASH, "family": family, "context_tokens": 2048,
                        "dtype": "bf16", "width": width, "operation": operation, "chained_max": 2 * off,
                        "alone_max": off, "alone_layers_n": 30 if off else 0, "layers_n": 30,
                        "first_to_differ": operation == first, "first_layer": 0 if operation == first else None,
                        "flips_n": flips if head else None, "flip_margin_max": margin if head else None,
                        "deterministic": repeats, "group_width": 1 if width == 2 else group,
                    }
                )  # fmt: skip
    return validate(pd.DataFrame(rows), "numerics")
