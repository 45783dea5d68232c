"""The phase "graphs": its job on a CPU, its table with what was published, and its pages on made-up GPU rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from specdec_lib import graph_phase, graph_tables, per_position
from specdec_lib.cache import KVCache
from specdec_lib.design import load_design
from specdec_lib.errors import OutOfDeviceMemory
from specdec_lib.graph_phase import Rows, measure
from specdec_lib.graph_tables import ALPHAS, graphs_table, predicted
from specdec_lib.pairs import Pair
from specdec_lib.per_position import KINDS, ConcatenatingCache, Pools, chain, placed, verify
from specdec_lib.records import read_table, validate, write_table
from specdec_lib.report import gpuengine, graphs, pools
from specdec_lib.study import Study
from tests.engine_tools import PROMPT, cache_of

ROOT = Path(__file__).parent.parent
SPEC: dict[str, Any] = {
    "contexts": [96, 160], "new_tokens": 16, "k": 4, "ks": [1, 4], "alphas": list(ALPHAS), "cap_bytes": 8 << 30,
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("nothing_committed")


class FakeStudy(Study):
    """A study whose job gives what it is told to."""

    result: dict[str, Any]
    asked: dict[str, Any]

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        type(self).asked = spec
        return type(self).result


def study(result: dict[str, Any], profile: str = "smoke") -> FakeStudy:
    design = load_design(ROOT / "design.toml")
    models = {role: {"kv_bytes_per_token": 2048} for role in ("target", "draft")}
    FakeStudy.result = result
    machine = {"device": "cuda", "dtype": "bf16", "models": models}
    return FakeStudy(design, design.profile(profile), "0123456789abcdef", Path(), machine)


def gpu_rows() -> Rows:
    """What a GPU might say: preallocated pools fit, expanded ones are the published sizes and run out."""
    rows = Rows()
    rows.part = "local"
    for name, ratio in (("draft chain", 5.0), ("verification", 4.0)):
        rows.put(name, "s", [0.04, 0.05], mode="eager", variant="eager", context=2048, k=4)
        for mode, gain in (("graphs", ratio), ("compiled", 20.0)):
            rows.put(name, "s", 0.045 / gain, mode=mode, context=2048, k=4)
            rows.put(f"{name}, speed-up over eager", "ratio", gain, mode=mode, context=2048, k=4)
    rows.part = "per position"
    for kind, size, captured in ((KINDS[0].name, 0.01, 26), (KINDS[3].name, 1.0, 4)):
        outcome = "measured" if captured == 26 else "out of memory"
        given: dict[str, Any] = dict(mode="graphs", variant=kind, context=8192, k=4, outcome=outcome)
        rows.put("graphs needed", "count", 26, **given)
        rows.put("graphs captured", "count", captured, **given)
        rows.put("pool of a graph, draft chain", "GiB", [2 * size, 2 * size], **given)
        rows.put("pool of a graph, verification", "GiB", size, **given)
        rows.put("graphs that fit under the cap", "count", 300 if captured == 26 else 4, **given)
        rows.put("all graphs together", "GiB", 39 * size, **given)
    rows.part = "position-independent"
    for k, best in ((1, 1.3), (4, 1.1)):
        for context in (2048, 8192):
            shown: dict[str, Any] = dict(mode="compiled", context=context, k=k, label="synthetic")
            rows.put("R", "ratio", [1.6, 1.8], variant="all-accept", **shown)
            rows.put("R", "ratio", best, variant="alpha 0.77", **shown)
            rows.put("replays, all-accept", "count", 13, **shown)
        rows.put("graphs captured", "count", 2, mode="compiled", k=k)
        rows.put("pool of all graphs", "MiB", 2.0, mode="compiled", k=k)
    return rows


def test_on_a_cpu_the_logic_runs_and_nothing_is_timed(tiny_pair: Pair) -> None:
    """Every context from the same two functions; the counts are those of an all-accept run."""
    rows = pd.DataFrame(measure(SPEC, tiny_pair)["rows"])
    assert set(rows["outcome"]) == {"logic only"} and set(rows["part"]) == {"position-independent"}
    assert set(rows["unit"]) == {"count", "share"}, "no seconds, no R"
    by = rows.groupby("quantity")["value"].agg(["min", "max"])
    expected = {
        "rounds, all-accept": 4, "replays, all-accept": 4, "replays in vain, all-accept": 0,
        "host reads, all-accept": 1, "token copies to the device, all-accept": 0, "graphs captured": 2,
        "plain output equal to eager's": 1,
    }  # fmt: skip
    assert {name: (row["min"], row["max"]) for name, row in by.iterrows()} == {
        name: (value, value) for name, value in expected.items()
    }
    assert sorted(rows["context_tokens"].dropna().unique()) == SPEC["contexts"]


def test_single_steps_are_timed_in_pairs(tiny_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Target and draft in turn, one row each; a ratio per pair, so that a pace which doubles half-way moves none."""
    ran: list[str] = []
    clock = {"now": 0.0, "pace": 1.0}

    def forward(self: Any, ids: torch.Tensor, cache: KVCache, *, last_only: bool = False) -> torch.Tensor:
        assert ids.shape == (1,) and cache.length in (80, 144)
        ran.append("target" if self is tiny_pair.target else "draft")
        clock["pace"] = 1.0 if len(ran) < 100 else 2.0
        clock["now"] += clock["pace"] * (4.0 if ran[-1] == "target" else 3.0)
        cache.advance(1)
        return torch.zeros(1, self.config.vocab)

    monkeypatch.setattr("specdec_lib.model.DecoderModel.forward", forward)
    monkeypatch.setattr(graph_phase, "now", lambda device: clock["now"])
    rows = Rows()
    rows.part = "steps"
    graph_phase._steps(rows, tiny_pair, SPEC)
    table = pd.DataFrame(rows)
    assert ran[:4] == ["target", "target", "draft", "draft"], "one run of each is not counted"
    assert ran[4:8] == ["target", "draft"] * 2
    ratios = table[table["quantity"] == graph_phase.IN_STEPS]
    assert list(ratios["context_tokens"]) == [96, 160] and set(ratios["n"]) == {graph_phase.PAIRS}
    assert set(ratios["value"]) == {0.75} and set(ratios["unit"]) == {"ratio"}
    steps = table[(table["quantity"] == "plain step") & (table["context_tokens"] == 96)]
    assert (steps["low"].item(), steps["high"].item()) == (4.0, 8.0), "the pace did double"


def test_the_table_has_the_published_numbers_beside_ours() -> None:
    table = graphs_table(study({"rows": gpu_rows()}))
    assert FakeStudy.asked["kind"] == FakeStudy.asked["name"] == "graphs"
    assert FakeStudy.asked["ks"] == [1, 2, 4] and "memory_cap_bytes" not in FakeStudy.asked

    def sides(quantity: str, **where: Any) -> set[tuple[float, float]]:
        part = table[table["quantity"] == quantity]
        for column, value in where.items():
            part = part[part[column] == value]
        return set(zip(part["published_low"], part["published_high"], strict=True))

    assert sides("draft chain, speed-up over eager") == {(3.7, 6.0)}
    assert sides("pool of a graph, verification") == {(0.89, 0.89)} and sides("graphs needed") == {(26, 26)}
    assert sides("R", variant="all-accept", context_tokens=2048) == {(0.912, 0.912)}
    assert sides("R", variant="alpha 0.77", context_tokens=2048) == {(0.531, 0.531)}
    assert (
        table.loc[(table["variant"] == "alpha 0.77") & (table["context_tokens"] == 8192), "published_low"]
        .isna()
        .all()
    )
    assert set(table["label"]) == {"synthetic"}, "random weights: nothing is real"
    assert table.loc[table["quantity"] == "draft chain", "value"].iloc[0] == pytest.approx(0.045)


def test_a_job_that_ran_out_of_memory_is_one_row() -> None:
    table = graphs_table(study({"out_of_memory": "capturing: CUDA out of memory"}))
    assert list(table["outcome"]) == ["out of memory"]
    assert bool(table["value"].isna().all()) and table["n"].item() == 0
    assert graphs.finding(table) == ["The part all ran out of memory and is not complete."]


def test_a_part_that_runs_out_of_memory_keeps_its_rows_and_the_others() -> None:
    rows = Rows()
    for name in ("local", "per position"):
        with graph_phase._part(rows, name):
            rows.put("graphs needed", "count", 26, mode="graphs")
            if name == "local":
                raise OutOfDeviceMemory("8 GiB are full", expected="room", remedy="eager")
    assert [(r["part"], r["quantity"], r["n"]) for r in rows] == [
        ("local", "graphs needed", 1), ("local", "ended early", 0), ("per position", "graphs needed", 1)
    ]  # fmt: skip
    assert rows[1]["variant"] == "8 GiB are full" and rows[1]["outcome"] == "out of memory"
    with pytest.raises(ZeroDivisionError), graph_phase._part(rows, "local"):
        _ = 1 / 0


def test_the_prediction_follows_from_shapes() -> None:
    frame = predicted(study({}))
    assert (
        frame["graphs per position"].item() == 8 and frame["replays, all-accept"].item() == 4
    )  # 16 tokens, k = 4
    assert frame["target_copy_mib"].item() == 1.0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_cache_gives_the_same_logits(kind: Any, tiny_pair: Pair) -> None:
    model, heads = tiny_pair.target, tiny_pair.target.config.heads
    plain, base = (cache_of(model, PROMPT, 40)[0] for _ in range(2))
    other: KVCache = ConcatenatingCache(base, heads, kind) if kind.concatenates else base
    block = torch.tensor([5, 6, 7])
    wanted, found = model.forward(block, plain), model.forward(block, other)
    assert torch.allclose(found, wanted, atol=1e-4)
    if isinstance(other, ConcatenatingCache):
        assert other.held[0][0].shape[0] == (heads if kind.expands else model.config.kv_heads)
        assert len(other.kept or []) == (model.config.layers if kind.keeps else 0)


def test_a_chain_and_a_verification_leave_the_cache_as_it_was(tiny_pair: Pair) -> None:
    cache, _ = cache_of(tiny_pair.draft, PROMPT, 40)
    rows = torch.tensor([5, 6])
    token, expected = chain(tiny_pair.draft, cache, rows, 3), rows
    assert cache.length == len(PROMPT) == int(cache.position)
    for _ in range(3):
        expected = tiny_pair.draft.forward(expected, cache, last_only=True).argmax(-1)
    assert torch.equal(token, expected)
    placed(cache, 7)
    assert verify(tiny_pair.draft, cache, rows).shape == (2,) and cache.length == 7 == int(cache.position)


def test_pools_average_over_both_kinds_of_graph_alike() -> None:
    found = Pools({per_position.DRAFT: [30, 10], per_position.VERIFY: [6]})
    assert found.captured == 3 and found.mean == 13.0
    assert Pools().mean != Pools().mean and Pools().captured == 0


def test_the_chapter_says_what_the_rows_say() -> None:
    table = graphs_table(study({"rows": gpu_rows()}))
    told = " ".join(graphs.finding(table))
    for part in (
        "speeds the draft chain up 5.00 times (captured)", "published 3.70 to 6.00; plain capture lies within that",
        "published 1.40 to 2.60; plain capture gains more here",
        "does not exhaust 8 GiB with this cache: preallocated; 300 would fit", "after 4 at 8K",
        "fill the cap with 5 graphs before any weights are counted; the article captured 8: more than its own pools",
        "every step kept, at 8K (2.00 GiB per draft chain and 1.00 GiB per verification)",
        "2 graphs serve every context",
        "at alpha 0.77 and the best k 1.30 (synthetic)",
    ):  # fmt: skip
        assert part in told, (part, told)
    shown = pools.pools_table(table)
    assert shown["would fit"].iloc[-1] == "5", "by the published pools; 8 is what the article captured"
    assert list(shown["captured"]) == ["26 of 26", "4 of 26", "8 of 26"]
    assert shown["outcome"].iloc[1] == "out of memory"
    assert len(graphs.local_table(table)) == 2 and len(graphs.footprint_table(table)) == 2
    assert list(graphs.ratios_table(table)["published R"])[:2] == ["0.912", "0.531"]
    assert "every step kept" in pools.words(table) and len(pools.figure(table).axes) == 1
    closer = table.assign(value=table["value"].where(table["unit"] != "GiB", table["value"] / 10))
    near = pools.nearest(closer)
    assert near and near["factor"] == pytest.approx(10.0), "the same kind, further away"


def test_whether_a_chain_gains_more_is_told_by_both_ranges() -> None:
    table = graphs_table(study({"rows": gpu_rows()}))

    def told(low: float, high: float) -> str:
        """With the runs of the eager chain between these."""
        made, chain = table.copy(), table["quantity"].eq("draft chain") & table["mode"].eq("eager")
        made.loc[chain, ["low", "high"]] = low, high
        return " ".join(graphs.finding(made))

    assert "a captured verification, by the ranges of both" in told(0.044, 0.05)
    assert "captured, it holds at 2K (4.89 to 5.56 against 3.56 to 4.44)" in told(0.044, 0.05)
    assert "captured, it cannot be told at 2K (3.33 to 5.56" in told(0.03, 0.05)
    assert "captured, it **does not hold** at 2K (2.22 to 3.33" in told(0.02, 0.03)
    assert "of the median): eager 22.2 %; captured 0 %" in graphs.spread(table)


def test_a_best_k_is_named_only_where_there_was_a_choice() -> None:
    table = graphs_table(study({"rows": gpu_rows()}))
    told = " ".join(graphs.finding(table[table["k"].isna() | table["k"].eq(4)]))
    assert "at k = 4, the only one measured, R is" in told and "; at alpha 0.77 1" in told
    assert "best k" not in told


def project(root: Path, rows: Rows | None) -> Path:
    shutil.copyfile(ROOT / "design.toml", root / "design.toml")
    shutil.copytree(ROOT / "data" / "published", root / "data" / "published")
    if rows is not None:
        folder = root / "data" / "mine"
        folder.mkdir()
        write_table(graphs_table(study({"rows": rows})), folder / "graphs.csv", "graphs")
        record = {
            "profile": "smoke",
            "design_hash": "0123456789abcdef",
            "device": {"device": "cuda", "dtype": "bf16"},
        }
        (folder / "provenance.json").write_text(json.dumps(record))
    return root


def shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    said: list[str] = []
    monkeypatch.setattr("specdec_lib.report.text.say", lambda *lines: said.extend(lines))
    monkeypatch.setattr(
        "specdec_lib.report.style.table", lambda frame, **given: said.append(given["caption"])
    )
    monkeypatch.setattr("specdec_lib.report.style.figure", lambda fig, **given: said.append(given["alt"]))
    for show in (graphs.show_local, graphs.show_pools, graphs.show_independent, graphs.show_finding):
        show(root)
    return " ".join(said)


def test_the_pages_with_and_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logic = measure_free_rows()
    for name, rows in (("none", None), ("logic", logic), ("gpu", gpu_rows())):
        root = tmp_path / name
        root.mkdir()
        said = shown(project(root, rows), monkeypatch)
        assert ("**Not measured here:** graphs, which need a CUDA device. To measure: `" in said) == (
            name != "gpu"
        )
        assert ("- Capturing speeds the draft chain up" in said) == (name == "gpu"), "a list"
        assert said.count(" - ") == (
            len(graphs.finding(graphs_table(study({"rows": rows})))) if name == "gpu" else 0
        )


def measure_free_rows() -> Rows:
    rows = Rows()
    rows.part = "position-independent"
    rows.put("graphs captured", "count", 2, mode="graphs", outcome="logic only")
    return rows


def test_the_engine_s_figures_stand_against_floor_and_aim() -> None:
    path = ROOT / "data" / "h200-engine" / gpuengine.FILE
    table = read_table(path, "gpu-engine")
    frame = gpuengine.limits_table(table)
    assert len(frame) == table["floor"].notna().sum() > 5
    assert (
        "R, draft-free (oracle)" in set(frame["figure"]) and "draft-free (synthetic)" not in frame.to_string()
    )
    assert "1 row over" in frame.to_string() and "1 rows" not in frame.to_string()
    made = table.head(3).assign(floor=1.0, aim=2.0, verdict=["aim", "missed", "missed"])
    told = gpuengine.sentence(validate(made, "gpu-engine"))
    assert told.startswith("Of 3 figures 1 reaches its aim, 2 miss their floor. Missed: ")
    made = made.assign(verdict=["aim", "floor", "floor"])
    assert gpuengine.sentence(made) == "Of 3 figures 1 reaches its aim, 2 more only their floor."
    alone = gpuengine.sentence(made.assign(verdict=["floor", "floor", "missed"]))
    assert alone.startswith("Of 3 figures 2 reach only their floor, 1 misses its floor. Missed: ")
    held: Any = table[table["floor"].notna() & (table["aim"] != table["floor"])]
    more = held["aim"] > held["floor"]  # of the others less is better
    met = (held["value"] >= held["aim"]).where(more, held["value"] <= held["aim"])
    assert list(held["verdict"].eq("aim")) == list(met), "a floor reached is an aim missed"


def test_the_figures_say_which_bandwidth_their_shares_are_of() -> None:
    table = read_table(ROOT / "data" / "h200-engine" / gpuengine.FILE, "gpu-engine")
    told = gpuengine.bandwidth_sentence(table)
    assert "*copy* bandwidth, 4.21\u00a0TB/s (2 GiB, read + written" in told
    assert "*read* bandwidth of 3.63\u00a0TB/s (512 MiB summed" in told and "1.16 times" in told
    assert gpuengine.bandwidth_sentence(table[table["figure"] != "copy bandwidth"]) == ""


def test_the_benchmark_measures_what_the_phase_does() -> None:
    """It cannot import the constants (no pandas where it runs)."""
    source = (ROOT / "benchmarks" / "graph_experiment.py").read_text()
    assert f"ALPHAS, KS, CAP_BYTES = {graph_tables.ALPHAS}, {graph_tables.KS}, 8 << 30" in source
    assert graph_tables.CAP_BYTES == 8 << 30
