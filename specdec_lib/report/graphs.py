"""The graphs chapter: what capturing gives, what it costs per position, and what it costs with the position on the
device."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from specdec_lib.report import folders, pools, style, text
from specdec_lib.report.pools import DRAFT, GRAPHS, Table, counts_span, pick
from specdec_lib.report.style import number

PHASE, FILE = "graphs", "graphs.csv"
NAMES = {"graphs": "captured", "compiled": "captured, fused kernels"}


def show_local(root: Path | None = None) -> None:
    """Draft chain and verification, eager against captured."""
    for one, table in measured(root):
        local = table[table["part"].eq("local") & table["quantity"].isin(GRAPHS)]
        k = text.listed(
            number(int(k)) for k in sorted(table.loc[table["part"].eq("local"), "k"].dropna().unique())
        )
        caption = (
            f"{told(one, local)} k = {k}; medians of {counts_span(local['n'])} runs, host clock, device idle before "
            f"and after. {spread(table)}"
        )
        style.table(local_table(table), caption=caption, csv=one.csv(FILE))
    say_missing(root)


def show_pools(root: Path | None = None) -> None:
    """One graph per round and position: the figure and the table of pools."""
    style.use_style()
    for one, table in measured(root):
        position = table[table["part"].eq("per position")]
        caption = (
            f"{told(one, position)} Pools of graphs captured per round and position, under a cap of 8 GiB."
        )
        style.figure(pools.figure(table), alt=pools.words(table), caption=caption, csv=one.csv(FILE))
        style.table(
            pools.pools_table(table), csv=one.csv(FILE),
            caption=f"{caption} Would fit: where memory ran out, what had been captured; else by the mean pool and "
            "the room beside weights and caches; published: by the two pools alone, with nothing beside them.",
        )  # fmt: skip
    say_missing(root)


def show_independent(root: Path | None = None) -> None:
    """Position on the device: what all graphs take together, and R."""
    part = "position-independent"
    for one, table in measured(root):
        captured, ratios = (told(one, pick(table, part, quantity)) for quantity in ("graphs captured", "R"))
        style.table(
            footprint_table(table), csv=one.csv(FILE),
            caption=f"{captured} All contexts from the same graphs, inside the same cap.",
        )  # fmt: skip
        style.table(
            ratios_table(table), csv=one.csv(FILE),
            caption=f"{ratios} R against the same mode's own plain decoding, acceptance imposed (synthetic): "
            "geometric means, smallest to largest of the runs.",
        )  # fmt: skip
    say_missing(root)


def show_finding(root: Path | None = None) -> None:
    """What the data say to the three questions."""
    for one, table in measured(root):
        text.say(f"**{one.label}.**", *(f"- {sentence}" for sentence in finding(table)))
    say_missing(root)


def measured(root: Path | None = None) -> list[tuple[folders.Results, Table]]:
    """The folders whose graphs were measured on a GPU; the logic alone (on a CPU) has no times to show."""
    found = []
    for one in folders.all_folders(root):
        if one.has(FILE):
            table = one.table(FILE, PHASE)
            if bool(table["outcome"].ne("logic only").any()):
                found.append((one, table))
    return found


def say_missing(root: Path | None = None) -> None:
    """How to measure, where nothing is."""
    if not measured(root):
        profiles = folders.read_design(root).profiles
        having = [name for name, entry in profiles.items() if PHASE in entry.phases and entry.device != "cpu"]
        command = (
            f"make runs PROFILE={having[0]}" if having else "python benchmarks/graph_experiment.py FOLDER"
        )
        text.say(text.not_measured("graphs, which need a CUDA device", command))


def told(one: folders.Results, rows: Table) -> str:
    """Caption: whose numbers, on what, and in which modes the shown rows were measured: the profile's own mode, which
    the folder's hardware names, says nothing of them."""
    machine = [piece for piece in one.hardware.split(", ") if piece != one.mode]
    modes = [mode for mode in ("eager", *NAMES) if bool(rows["mode"].eq(mode).any())]
    in_modes = f", mode{'s' * (len(modes) > 1)} {text.listed(modes)}" if modes else ""
    return f"{one.label}: {', '.join(machine)}{in_modes}, pair {one.profile.pair}."


def local_table(table: Table) -> pd.DataFrame:
    """One row per stage and context: times, speed-ups over eager, and the published range."""
    rows = []
    for name in GRAPHS:
        for context, part in pick(table, "local", name).groupby("context_tokens", sort=True):
            ratios = pick(table, "local", f"{name}, speed-up over eager", context_tokens=context)
            ms, gains = (
                values.drop_duplicates("mode").set_index("mode")["value"] for values in (part, ratios)
            )
            row = {"stage": name, "context": text.context_name(context), "eager, ms": _ms(ms.get("eager"))}
            for mode, shown in NAMES.items():
                row |= {f"{shown}, ms": _ms(ms.get(mode)), f"{shown}, speed-up": number(gains.get(mode))}
            row["published speed-up"] = ""
            if len(ratios):
                row["published speed-up"] = text.span(ratios[["published_low", "published_high"]].iloc[0])
            rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def spread(table: Table) -> str:
    """How far the runs of a time lie apart, largest less smallest over the median, eager and captured: for captions."""
    rows = table[table["part"].eq("local") & table["quantity"].isin(GRAPHS) & table["value"].notna()]
    each = []
    for mode, shown in {"eager": "eager", **NAMES}.items():
        part = rows[rows["mode"] == mode]
        if len(part):
            each.append(f"{shown} {text.span((part['high'] - part['low']) / part['value'] * 100)} %")
    return f"Spread of the runs (largest less smallest, of the median): {'; '.join(each)}."


def factor(table: Table, name: str, mode: str, context: int) -> tuple[float, float] | None:
    """The range of a speed-up: the fastest eager run over the slowest captured one, to the slowest over the fastest."""
    eager, fast = (
        pick(table, "local", name, mode=m, context_tokens=context).to_dict("records") for m in ("eager", mode)
    )
    if not eager or not fast:
        return None
    return eager[0]["low"] / fast[0]["high"], eager[0]["high"] / fast[0]["low"]


def chain_gains_more(table: Table) -> list[str]:
    """The chapter's first prediction, per way to capture and context, by the ranges of both factors."""
    told = []
    for mode, shown in NAMES.items():
        found: dict[str, list[str]] = {}
        for context in sorted({int(c) for c in pick(table, "local", DRAFT, mode=mode)["context_tokens"]}):
            chain, block = (factor(table, name, mode, context) for name in GRAPHS)
            if chain is None or block is None:
                continue
            side = "holds" if chain[0] > block[1] else "does not hold" if chain[1] < block[0] else "lost"
            both = " against ".join(f"{number(low)} to {number(high)}" for low, high in (chain, block))
            found.setdefault(side, []).append(f"{text.context_name(context)} ({both})")
        words = {"holds": "holds at", "does not hold": "**does not hold** at", "lost": "cannot be told at"}
        if found:
            each = "; ".join(
                f"{word} {text.listed(found[side])}" for side, word in words.items() if side in found
            )
            told.append(f"{shown}, it {each}")
    if not told:
        return []
    return [
        "The prediction that a captured draft chain gains more than a captured verification, by the ranges of both "
        f"factors over the runs of either side: {'; '.join(told)}."
    ]


def footprint_table(table: Table) -> pd.DataFrame:
    """One row per mode and k: graphs, memory, capture time, and replays of one all-accept run."""
    rows = []
    part = table[table["part"] == "position-independent"]
    for (mode, k), here in part[part["quantity"] == "graphs captured"].groupby(["mode", "k"], sort=False):
        own = part[(part["mode"] == mode) & (part["k"] == k)]
        contexts = sorted(int(c) for c in own["context_tokens"].dropna().unique())

        def value(quantity: str, own: Table = own) -> str:
            rows = own[own["quantity"] == quantity]
            return (counts_span if rows["unit"].eq("count").all() else text.span)(rows["value"])

        rows.append(
            {
                "mode": str(mode), "k": int(str(k)), "graphs": number(int(here["value"].iloc[0])),
                "contexts": text.listed(map(text.context_name, contexts)),
                "pool of all, MiB": value("pool of all graphs"),
                "capture, s": value("warm-up, compilation and capture"),
                "peak reserved, GiB": value("peak reserved, both models, all caches"),
                "replays (synthetic)": value("replays, all-accept"),
                "in vain": value("replays in vain, all-accept"),
                "host reads": value("host reads, all-accept"),
            }
        )  # fmt: skip
    return pd.DataFrame(rows, dtype=object)


def ratios_table(table: Table) -> pd.DataFrame:
    """One row per mode, k, context and imposed acceptance."""
    rows = [
        {
            "mode": row["mode"], "k": int(row["k"]), "context": text.context_name(row["context_tokens"]),
            "acceptance": f"{row['variant']} ({row['label']})", "R": number(row["value"]),
            "range": text.span([row["low"], row["high"]]), "runs": int(row["n"]),
            "published R": "not stated" if pd.isna(row["published_low"]) else number(row["published_low"]),
        }
        for row in pick(table, "position-independent", "R").to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame(rows, dtype=object)


def finding(table: Table) -> list[str]:
    """Sentences that the rows choose: the speed-ups, the memory, and the few graphs that do."""
    early = dict.fromkeys(table[table["quantity"] == "ended early"]["part"])
    ended = [f"The part {part} ran out of memory and is not complete." for part in early]
    return [
        *_speedups(table), *chain_gains_more(table), *pools.memory(table), *_independent(table), *ended,
    ]  # fmt: skip


def _speedups(table: Table) -> list[str]:
    told = []
    for name in GRAPHS:
        rows = pick(table, "local", f"{name}, speed-up over eager")
        if len(rows):
            low, high = float(rows["published_low"].iloc[0]), float(rows["published_high"].iloc[0])
            each = text.listed(
                f"{text.span(rows.loc[rows['mode'] == mode, 'value'])} times ({shown})"
                for mode, shown in NAMES.items() if bool((rows["mode"] == mode).any())
            )  # fmt: skip
            plain = rows.loc[rows["mode"] == "graphs", "value"]
            place = (
                "" if plain.empty else "; plain capture lies within that"
                if bool(plain.between(low, high).all()) else "; plain capture gains more here"
                if bool((plain > high).all()) else "; plain capture gains less here"
                if bool((plain < low).all()) else "; plain capture lies partly outside that"
            )  # fmt: skip
            told.append(
                f"Capturing speeds the {name} up {each}; published {number(low)} to {number(high)}{place}."
            )
    if told:
        told.append(
            "These factors are as steady as their eager side; the regimes' findings tell how far that follows the host."
        )
    return told


def _independent(table: Table) -> list[str]:
    graphs = pick(table, "position-independent", "graphs captured")
    if graphs.empty:
        return []
    told = [f"With the position on the device {counts_span(graphs['value'])} graphs serve every context."]
    for mode, shown in NAMES.items():
        sizes = pick(table, "position-independent", "pool of all graphs", mode=mode)["value"]
        rows = pick(table, "position-independent", "R", mode=mode)
        if rows.empty:
            continue
        every = rows[rows["variant"] == "all-accept"]
        ks = sorted({int(k) for k in rows["k"]})
        where = [f"in {text.span(sizes)} MiB"] if len(sizes) else []
        where += [f"at k = {ks[0]}, the only one measured"] if len(ks) == 1 else []
        place = f", {' and '.join(where)}," if where else ""
        parts = [
            f"{shown.capitalize()}{place} R is {text.span(every['value'])} where all is accepted (synthetic)"
        ]
        parts += [_best(rows, name) for name in dict.fromkeys(rows["variant"]) if name != "all-accept"]
        told.append(f"{'; '.join(parts)}.")
    return told


def _best(rows: Table, variant: str) -> str:
    """The smallest and largest over contexts of R at the best k; of one k none is the best."""
    best = rows[rows["variant"] == variant].groupby("context_tokens")["value"].max()
    return f"at {variant}{' and the best k' * (rows['k'].nunique() > 1)} {text.span(best)} (synthetic)"


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1e3 * seconds)
