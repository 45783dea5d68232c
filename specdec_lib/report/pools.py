"""Pools of graphs captured per round and position: the table, the figure, and what they say of the published ones."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from specdec_lib.report import figures, folders, style, text
from specdec_lib.report.style import number

Table = folders.Table
DRAFT, VERIFY = "draft chain", "verification"
GRAPHS = (DRAFT, VERIFY)
CAP_GIB = 8  # the published GPU's memory


def pools_table(table: Table) -> pd.DataFrame:
    """One row per kind of cache and context, and what was published."""
    rows = []
    part = table[table["part"] == "per position"]
    for (variant, context), here in part.groupby(["variant", "context_tokens"], sort=False):
        by = {row["quantity"]: row for row in here.to_dict("records")}
        rows.append(
            {"cache": str(variant), "context": text.context_name(context)}
            | {f"GiB per graph, {name}": _size(_value(by, f"pool of a graph, {name}")) for name in GRAPHS}
            | {
                "captured": f"{number(int(_value(by, 'graphs captured') or 0))} of "
                f"{number(int(_value(by, 'graphs needed') or 0))}",
                "would fit": _size(whole(_value(by, "graphs that fit under the cap"))),
                "all together, GiB": _size(_value(by, "all graphs together")),
                "outcome": here["outcome"].iloc[0],
            }
        )
    stated = {row["quantity"]: row["published_low"] for row in part.to_dict("records")}
    if stated:
        rows.append(
            {"cache": "published (about)", "context": "not stated"}
            | {f"GiB per graph, {name}": number(stated.get(f"pool of a graph, {name}")) for name in GRAPHS}
            | {
                "captured": f"{number(whole(stated.get('graphs that fit under the cap')))} of "
                f"{number(whole(stated.get('graphs needed')))}",
                "would fit": number(_by_pools(table)),
                "all together, GiB": number(stated.get("all graphs together")),
                "outcome": "out of memory",
            }
        )
    return pd.DataFrame(rows, dtype=object)


def memory(table: Table) -> list[str]:
    """Sentences: which kinds of cache exhaust the cap, after how many graphs, and whose pools are most like those
    published."""
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
            f"{number(whole(least))} would fit."
        )
    for kind, rows in full.groupby("variant", sort=False):
        at = zip(rows["value"], rows["context_tokens"], strict=True)
        where = text.listed(f"{number(int(n))} at {text.context_name(context)}" for n, context in at)
        told.append(f"With this cache memory runs out: {kind}; after {where}.")
    told += _published(table)
    near = nearest(table)
    if near:
        pools = text.listed(f"{number(near[name])} GiB per {name}" for name in GRAPHS)
        told.append(
            f"Nearest to the published pools come those of this cache: {near['variant']}, at "
            f"{text.context_name(near['context'])} ({pools})."
        )
    return told


def _by_pools(table: Table) -> int | None:
    """How many graphs of the published pools, taken at their word, the cap holds: nothing else is counted."""
    pools = [pick(table, "per position", f"pool of a graph, {name}")["published_low"] for name in GRAPHS]
    if not all(len(pool) for pool in pools):
        return None
    return int(CAP_GIB / (sum(float(pool.iloc[0]) for pool in pools) / len(pools)))


def _published(table: Table) -> list[str]:
    """What the published pools come to under the cap, beside what was captured."""
    by_pools = _by_pools(table)
    stated = pick(table, "per position", "graphs that fit under the cap")["published_low"]
    if by_pools is None or stated.empty:
        return []
    captured = int(stated.iloc[0])
    agree = "" if by_pools >= captured else ": more than its own pools, stated as about, would leave room for"
    return [
        f"The published pools, taken at their word, fill the cap with {number(by_pools)} graphs before any "
        f"weights are counted; the article captured {number(captured)}{agree}."
    ]


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
            cache = {"variant": str(variant), "context": int(str(context)), "factor": math.exp(off)}
            best = off, cache | {name: float(p["value"]) for name, p in pools.items()}
    return best[1] if best else None


def figure(table: Table) -> figures.Figure:
    """Kinds of cache on y, GiB per graph on a log x axis, a marker per graph; lines where the published pools lie.
    Without pools (no GPU): what a run counts."""
    part = table[table["part"] == "per position"]
    if part.empty:
        return _counts(table)
    kinds = list(dict.fromkeys(part["variant"]))
    fig, ax = figures.axes(3.4)
    for index, name in enumerate(GRAPHS):
        look = style.SERIES[index]
        rows = pick(table, "per position", f"pool of a graph, {name}")
        rows = rows[rows["value"] > 0]
        at = [kinds.index(kind) + (index - 0.5) * 0.3 for kind in rows["variant"]]
        label = f"{name}, per context"
        ax.plot(rows["value"], at, look.marker, color=look.colour, linestyle="none", label=label)
        if len(rows):
            stated = float(rows["published_low"].iloc[0])
            ax.axvline(stated, color=look.colour, linestyle=look.line, marker="", label=f"{name}, published")
    ax.set_xscale("log")
    ax.set_yticks(range(len(kinds)), [kind.replace(", ", ",\n") for kind in kinds])
    ax.set_ylim(len(kinds) - 0.5, -0.5)
    ax.set_xlabel("GiB per graph, log scale")
    return figures.finished(fig, ncols=2)


def _counts(table: Table) -> figures.Figure:
    rows = _counted(table)
    fig, ax = figures.axes(2.6)
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


def pick(table: Table, part: str, quantity: str, **where: Any) -> Table:
    """The rows of one quantity that have a value, narrowed by other columns."""
    rows = table[(table["part"] == part) & (table["quantity"] == quantity) & table["value"].notna()]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows


def counts_span(values: Any) -> str:
    """The range of whole numbers; "not measured" for none."""
    known = sorted(int(value) for value in values.dropna())
    return " to ".join(map(number, dict.fromkeys((known[0], known[-1])))) if known else style.NOT_MEASURED


def whole(value: float | None) -> int | None:
    return None if value is None or value != value else int(value)


def _value(by: dict[str, dict[str, Any]], quantity: str) -> float | None:
    value = by.get(quantity, {}).get("value")
    return None if value is None or value != value else float(value)


def _size(value: float | None) -> str:
    return "none captured" if value is None else number(value)
