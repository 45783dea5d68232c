"""The graphs chapter: what capturing gives, what it costs per position, and what it costs with the position on the
device."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from specdec_lib.records import read_table
from specdec_lib.report import figures, folders, style, text
from specdec_lib.report.style import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = folders.Table
PHASE, FILE = "graphs", "graphs.csv"
DRAFT, VERIFY = "draft chain", "verification"
GRAPHS = (DRAFT, VERIFY)
NAMES = {"graphs": "captured", "compiled": "captured, fused kernels"}


def show_local(root: Path | None = None) -> None:
    """Draft chain and verification, eager against captured."""
    for one, table in measured(root):
        setting = (
            f"k = {_only(table, 'k')}; medians of {_runs(table)}, host clock, device idle before and after."
        )
        caption = f"{told(one)} {setting}"
        style.table(local_table(table), caption=caption, csv=one.csv(FILE))
    say_missing(root)


def show_pools(root: Path | None = None) -> None:
    """One graph per round and position: the figure and the table of pools."""
    style.use_style()
    for one, table in measured(root):
        caption = f"{told(one)} Pools of graphs captured per round and position, under a cap of 8 GiB."
        style.figure(figure(table), alt=words(table), caption=caption, csv=one.csv(FILE))
        style.table(pools_table(table), caption=caption, csv=one.csv(FILE))
    say_missing(root)


def show_independent(root: Path | None = None) -> None:
    """Position on the device: what all graphs take together, and R."""
    for one, table in measured(root):
        style.table(
            footprint_table(table), csv=one.csv(FILE),
            caption=f"{told(one)} All contexts from the same graphs, inside the same cap.",
        )  # fmt: skip
        style.table(
            ratios_table(table), csv=one.csv(FILE),
            caption=f"{told(one)} R against the same mode's own plain decoding, acceptance imposed (synthetic): "
            "geometric means, smallest to largest of the runs.",
        )  # fmt: skip
    say_missing(root)


def show_finding(root: Path | None = None) -> None:
    """What the data say to the three questions."""
    for one, table in measured(root):
        text.say(f"**{one.label}.** " + " ".join(finding(table)))
    say_missing(root)


def measured(root: Path | None = None) -> list[tuple[folders.Results, Table]]:
    """The folders whose graphs were measured on a GPU; the logic alone (on a CPU) has no times to show."""
    found = []
    for one in folders.all_folders(root):
        if (one.folder / FILE).is_file():
            table = read_table(one.folder / FILE, PHASE, str(one.provenance["design_hash"]))
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


def told(one: folders.Results) -> str:
    """Caption: whose numbers, on what."""
    return f"{one.label}: {one.hardware}."


def pick(table: Table, part: str, quantity: str, **where: Any) -> Table:
    """The rows of one quantity that have a value, narrowed by other columns."""
    rows = table[(table["part"] == part) & (table["quantity"] == quantity) & table["value"].notna()]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows


def local_table(table: Table) -> pd.DataFrame:
    """One row per stage and context: times, speed-ups over eager, and the published range."""
    rows = []
    for name in GRAPHS:
        for context, part in pick(table, "local", name).groupby("context_tokens", sort=True):
            ratios = pick(table, "local", f"{name}, speed-up over eager", context_tokens=context)
            eager = part.loc[part["mode"] == "eager", "value"]
            row = {"stage": name, "context": text.context_name(int(str(context)))}
            row["eager, ms"] = number(1e3 * float(eager.iloc[0])) if len(eager) else "not measured"
            for mode, shown in NAMES.items():
                ms = part.loc[part["mode"] == mode, "value"]
                gain = ratios.loc[ratios["mode"] == mode, "value"]
                row[f"{shown}, ms"] = number(1e3 * float(ms.iloc[0])) if len(ms) else "not measured"
                row[f"{shown}, speed-up"] = number(float(gain.iloc[0])) if len(gain) else "not measured"
            first = ratios.head(1).to_dict("records")
            row["published speed-up"] = (
                text.span([first[0]["published_low"], first[0]["published_high"]]) if first else ""
            )
            rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def pools_table(table: Table) -> pd.DataFrame:
    """One row per kind of cache and context, and what was published."""
    rows = []
    part = table[table["part"] == "per position"]
    for (variant, context), here in part.groupby(["variant", "context_tokens"], sort=False):
        by = {row["quantity"]: row for row in here.to_dict("records")}
        rows.append(
            {"cache": str(variant), "context": text.context_name(int(str(context)))}
            | {f"GiB per graph, {name}": number(_value(by, f"pool of a graph, {name}")) for name in GRAPHS}
            | {
                "captured": f"{number(int(_value(by, 'graphs captured') or 0))} of "
                f"{number(int(_value(by, 'graphs needed') or 0))}",
                "would fit": number(_whole(_value(by, "graphs that fit under the cap"))),
                "all together, GiB": number(_value(by, "all graphs together")),
                "outcome": here["outcome"].iloc[0],
            }
        )
    stated = {row["quantity"]: row["published_low"] for row in part.to_dict("records")}
    if stated:
        rows.append(
            {"cache": "published (about)", "context": "not stated"}
            | {f"GiB per graph, {name}": number(stated.get(f"pool of a graph, {name}")) for name in GRAPHS}
            | {
                "captured": f"{number(_whole(stated.get('graphs that fit under the cap')))} of "
                f"{number(_whole(stated.get('graphs needed')))}",
                "would fit": number(_whole(stated.get("graphs that fit under the cap"))),
                "all together, GiB": number(stated.get("all graphs together")),
                "outcome": "out of memory",
            }
        )
    return pd.DataFrame(rows, dtype=object)


def footprint_table(table: Table) -> pd.DataFrame:
    """One row per mode and k: graphs, memory, capture time, and replays of one all-accept run."""
    rows = []
    part = table[table["part"] == "position-independent"]
    for (mode, k), here in part[part["quantity"] == "graphs captured"].groupby(["mode", "k"], sort=False):
        own = part[(part["mode"] == mode) & (part["k"] == k)]
        contexts = sorted(int(c) for c in own["context_tokens"].dropna().unique())

        def value(quantity: str, own: Table = own) -> str:
            values = own.loc[own["quantity"] == quantity, "value"]
            whole = bool(own.loc[own["quantity"] == quantity, "unit"].eq("count").all())
            return _counts_span(values) if whole else text.span(values)

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
            "mode": row["mode"], "k": int(row["k"]), "context": text.context_name(int(row["context_tokens"])),
            "acceptance": f"{row['variant']} ({row['label']})", "R": number(row["value"]),
            "range": f"{number(row['low'])} to {number(row['high'])}", "runs": int(row["n"]),
            "published R": _stated(row["published_low"]),
        }
        for row in pick(table, "position-independent", "R").to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame(rows, dtype=object)


def finding(table: Table) -> list[str]:
    """Sentences that the rows choose: the speed-ups, the memory, and the few graphs that do."""
    return [*_speedups(table), *_memory(table), *_independent(table), *_early(table)]


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
    return told


def _memory(table: Table) -> list[str]:
    part: Any = table[(table["part"] == "per position") & (table["quantity"] == "graphs captured")]
    if part.empty:
        return []
    full = part[part["outcome"] == "out of memory"]
    fits = [kind for kind in dict.fromkeys(part["variant"]) if kind not in set(full["variant"])]
    told = []
    if fits:
        room = pick(table, "per position", "graphs that fit under the cap")
        least = room.loc[room["variant"].isin(fits), "value"].min()
        told.append(
            f"One graph per round and position does not exhaust 8 GiB with this cache: {text.listed(fits)}; "
            f"{number(_whole(least))} would fit."
        )
    for kind, rows in full.groupby("variant", sort=False):
        where = text.listed(
            f"{number(int(row['value']))} at {text.context_name(int(row['context_tokens']))}"
            for row in rows.to_dict("records")
        )
        told.append(f"With this cache memory runs out: {kind}; after {where}.")
    near = nearest(table)
    if near:
        pools = text.listed(f"{number(near[name])} GiB per {name}" for name in GRAPHS)
        told.append(
            f"Nearest to the published pools come those of this cache: {near['variant']}, at "
            f"{text.context_name(near['context'])} ({pools})."
        )
    return told


def nearest(table: Table) -> dict[str, Any] | None:
    """The kind of cache and the context whose two pools are nearest to the published ones, by the larger factor."""
    best: tuple[float, dict[str, Any]] | None = None
    part = table[table["part"] == "per position"]
    for (variant, context), here in part.groupby(["variant", "context_tokens"], sort=False):
        by = {row["quantity"]: row for row in here.to_dict("records")}
        pools = {name: by.get(f"pool of a graph, {name}", {}) for name in GRAPHS}
        if not all(p.get("value") and p["value"] > 0 for p in pools.values()):
            continue
        off = max(abs(math.log(p["value"] / p["published_low"])) for p in pools.values())
        if best is None or off < best[0]:
            shown = {name: float(p["value"]) for name, p in pools.items()}
            best = (
                off,
                shown | {"variant": str(variant), "context": int(str(context)), "factor": math.exp(off)},
            )
    return best[1] if best else None


def _independent(table: Table) -> list[str]:
    graphs = pick(table, "position-independent", "graphs captured")
    if graphs.empty:
        return []
    pools = pick(table, "position-independent", "pool of all graphs")["value"]
    told = [
        f"With the position on the device {_counts_span(graphs['value'])} graphs serve every context"
        + (f", in {text.span(pools)} MiB." if len(pools) else ".")
    ]
    rows = pick(table, "position-independent", "R", mode="compiled")
    if len(rows):
        every = rows[rows["variant"] == "all-accept"]
        told.append(
            f"From the same graphs R is {text.span(every['value'])} where all is accepted (synthetic)"
            + "".join(
                f"; {_best(rows, name)}" for name in dict.fromkeys(rows["variant"]) if name != "all-accept"
            )
            + "."
        )
    return told


def _best(rows: Table, variant: str) -> str:
    """The smallest and largest over contexts of R at the best k."""
    best = rows[rows["variant"] == variant].groupby("context_tokens")["value"].max()
    return f"at {variant} and the best k {text.span(best)} (synthetic)"


def _early(table: Table) -> list[str]:
    """Parts that memory ended."""
    early = table[table["quantity"] == "ended early"]
    return [
        f"The part {part} ran out of memory and is not complete." for part in dict.fromkeys(early["part"])
    ]


def figure(table: Table) -> Figure:
    """Kinds of cache on y, GiB per graph on a log x axis, a marker per graph; lines where the published pools lie.
    Without pools (no GPU): what a run counts."""
    import matplotlib.pyplot as plt

    part = table[table["part"] == "per position"]
    if part.empty:
        return _counts(table)
    kinds = list(dict.fromkeys(part["variant"]))
    fig, ax = plt.subplots(figsize=(figures.WIDTH, 3.4))
    for index, name in enumerate(GRAPHS):
        look = style.SERIES[index]
        rows = pick(table, "per position", f"pool of a graph, {name}")
        rows = rows[rows["value"] > 0]
        at = [kinds.index(kind) + (index - 0.5) * 0.3 for kind in rows["variant"]]
        ax.plot(
            rows["value"], at, look.marker, color=look.colour, linestyle="none", label=f"{name}, per context"
        )
        if len(rows):
            stated = float(rows["published_low"].iloc[0])
            ax.axvline(stated, color=look.colour, linestyle=look.line, marker="", label=f"{name}, published")
    ax.set_xscale("log")
    ax.set_yticks(range(len(kinds)), [kind.replace(", ", ",\n") for kind in kinds])
    ax.set_ylim(len(kinds) - 0.5, -0.5)
    ax.set_xlabel("GiB per graph, log scale")
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
    fig.tight_layout()
    return fig


def _counts(table: Table) -> Figure:
    import matplotlib.pyplot as plt

    rows = _counted(table)
    fig, ax = plt.subplots(figsize=(figures.WIDTH, 2.6))
    ax.barh(list(rows), list(rows.values()), color=style.SPEC.colour)
    ax.invert_yaxis()
    ax.set_xlabel("count, the largest over contexts")
    fig.tight_layout()
    return fig


def _counted(table: Table) -> dict[str, int]:
    rows = table[(table["part"] == "position-independent") & (table["unit"] == "count")]
    return {str(name): int(part["value"].max()) for name, part in rows.groupby("quantity", sort=False)}


def words(table: Table) -> str:
    """The figure for a reader who cannot see it."""
    part = table[table["part"] == "per position"]
    if part.empty:
        return "What a run counts: " + "; ".join(f"{k} {v}" for k, v in _counted(table).items()) + "."
    told = []
    for kind in dict.fromkeys(part["variant"]):
        pools = "; ".join(
            f"{name} {text.span(pick(table, 'per position', f'pool of a graph, {name}', variant=kind)['value'])}"
            for name in GRAPHS
        )
        told.append(f"{kind}: {pools}.")
    return "Pool per graph in GiB, over contexts. " + " ".join(told)


def _value(by: dict[str, dict[str, Any]], quantity: str) -> float | None:
    value = by.get(quantity, {}).get("value")
    return None if value is None or value != value else float(value)


def _stated(value: float) -> str:
    return number(value) if value == value else "not stated"


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value else int(value)


def _only(table: Table, column: str) -> str:
    return text.listed(
        number(int(v)) for v in sorted(table.loc[table["part"] == "local", column].dropna().unique())
    )


def _runs(table: Table) -> str:
    rows = table[(table["part"] == "local") & table["quantity"].isin(GRAPHS)]
    return _counts_span(rows["n"]) + " runs"


def _counts_span(values: Any) -> str:
    """The range of whole numbers; "not measured" for none."""
    known = sorted({int(value) for value in values.dropna()})
    return (
        text.span(known)
        if not known
        else " to ".join(number(v) for v in dict.fromkeys((known[0], known[-1])))
    )
