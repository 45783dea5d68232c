"""The GPU engine's figures against their floors and aims, from the table that ``benchmarks/gpu_engine.py`` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.paths import project_root
from specdec_lib.records import read_table
from specdec_lib.report import style, text
from specdec_lib.report.style import number

FILE, PROVENANCE = "gpu_engine.csv", "gpu_engine.json"
COMMAND = "python benchmarks/gpu_engine.py FOLDER"
# By verdict: of one figure, of several. The verdict "floor" is of figures that miss their aim.
WORDS = {
    "aim": ("reaches its aim", "reach their aim"), "floor": ("reaches only its floor", "reach only their floor"),
    "missed": ("misses its floor", "miss their floor"),
}  # fmt: skip
MORE = ("more only its floor", "more only their floor")  # the same where some reach their aim


def show(root: Path | None = None) -> None:
    """Per folder with the table: every figure that has a floor and an aim, and how many reach which."""
    folders = measured(root)
    for folder in folders:
        table = read_table(folder / FILE, "gpu-engine")
        style.table(limits_table(table), caption=caption(folder), csv=f"{folder.name}/{FILE}")
        text.say(sentence(table), bandwidth_sentence(table))
    if not folders:
        text.say(text.not_measured("the GPU engine's figures, which need a CUDA device", COMMAND))


def measured(root: Path | None = None) -> list[Path]:
    """The folders under ``data/`` that hold the table, by name."""
    return sorted(path.parent for path in ((root or project_root()) / "data").glob(f"*/{FILE}"))


def caption(folder: Path) -> str:
    """GPU, precision, models and packages, from the provenance beside the table."""
    path = folder / PROVENANCE
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    gpu = (known.get("gpu_before") or {}).get("name", "GPU not recorded")
    packages = ", ".join(f"{name} {version}" for name, version in known.get("packages", {}).items())
    precision = str(known.get("dtype", "precision not recorded")).upper()
    pair = known.get("pair", "pair not recorded")
    return f"{folder.name}: {gpu}, {precision}, {pair}; {packages}. Medians; range: smallest to largest of n."


def limits_table(table: Any) -> pd.DataFrame:
    """Figures with a floor and an aim."""
    rows = []
    for row in table[table["floor"].notna()].to_dict("records"):
        several = row["low"] == row["low"] and row["low"] is not None
        rows.append(
            {
                "figure": _named(row["figure"]),
                "setting": _text(row["setting"]) or "all",
                "measured": number(row["value"], _text(row["unit"])),
                "range": f"{number(row['low'])} to {number(row['high'])}" if several else "one value",
                "n": int(row["n"]),
                "floor": number(row["floor"]),
                "aim": number(row["aim"]),
                "reached": row["verdict"],
            }
        )
    return pd.DataFrame(rows, dtype=object)


def sentence(table: Any) -> str:
    """How many figures reach their aim, how many more only their floor, and which miss both."""
    held = table[table["floor"].notna()]
    counts = held["verdict"].value_counts()
    words = WORDS | {"floor": MORE} if "aim" in counts else WORDS
    told = ", ".join(
        f"{number(int(counts[name]))} {one if counts[name] == 1 else many}"
        for name, (one, many) in words.items()
        if name in counts
    )
    missed = text.listed(dict.fromkeys(map(_named, held.loc[held["verdict"] == "missed", "figure"])))
    return f"Of {text.counted(len(held), 'figure')} {told}." + (f" Missed: {missed}." if missed else "")


def bandwidth_sentence(table: Any) -> str:
    """Which bandwidth the shares are of, and which one the rest of the report uses; "" where either is not there."""
    known = {row["figure"]: row for row in table.to_dict("records")}
    copied, read = known.get("copy bandwidth"), known.get("read bandwidth")
    if not copied or not read:
        return ""
    told = [
        f"{number(row['value'], _text(row['unit']))} "
        f"({_text(row['setting'])}, {text.counted(int(row['n']), 'reading')})"
        for row in (copied, read)
    ]
    return (
        f"Shares here are of the *copy* bandwidth, {told[0]}. The same run measured a *read* bandwidth of {told[1]}, "
        "by the definition of the roofline in the page *Where the time goes*: the same step has "
        f"{number(copied['value'] / read['value'])} times the share of it."
    )


def _named(figure: str) -> str:
    """The figure with the study's label for perfect proposals, which the table was measured before; one row is no
    "1 rows"."""
    return figure.replace("draft-free (synthetic)", "draft-free (oracle)").replace(" 1 rows ", " 1 row ")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
