"""Published, GPU and CPU regimes side by side: known cost lines, labels wherever numbers are, findings that flip."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from specdec_lib import errors, graph_phase
from specdec_lib.costmodel import predicted_R
from specdec_lib.errors import TableError
from specdec_lib.paths import measuring_hash
from specdec_lib.records import read_table, write_table
from specdec_lib.report import (
    answer,
    audit,
    carried,
    compare,
    controlplane,
    costline,
    dial,
    environment,
    falls,
    figures,
    folders,
    host,
    ladder,
    landing,
    launches,
    leftout,
    mechanisms,
    models,
    plane,
    published,
    regimes,
    repeated,
    residuals,
    results,
    style,
    text,
    timeuse,
    validity,
    waterfall,
)
from specdec_lib.report.regimes import Engine
from tests.regime_tables import MACHINES, PROFILES, Machine, make_project

ROOT = Path(__file__).parent.parent

BOOK = Path(__file__).parent.parent / "book"
SYNTHETIC = ("gpu-eager", "gpu-graphs", "gpu-compiled")
EXPLAINED = ("index", "results", "regimes", "validity", "time", "cost-model", "all-accept", "draft-free", "dial",
             "synthesis")  # fmt: skip
PAGES = ("index", "results", "time", "control-plane", "all-accept", "draft-free", "dial", "formulations", "numerics",
         "cost-model", "synthesis", "regimes", "correctness", "acceptance", "relaxed", "audit")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four folders with every table that their engine has. Read only."""
    return make_project(tmp_path_factory.mktemp("regimes"))


@pytest.fixture
def no_ink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and their words kept, but nothing is drawn: that is slow, and other tests do it."""
    monkeypatch.setattr(
        "specdec_lib.report.style._figure_html",
        lambda fig, alt, caption, csv: (
            f'<figure class="study-figure">{html.escape(f"{alt} {caption}")}</figure>'
        ),
    )


def run_page(page: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_ROOT", str(root))
    names: dict[str, Any] = {}
    for cell in (BOOK / f"{page}.md").read_text().split("```{code-cell} ipython3\n")[1:]:
        exec("\n".join(line for line in cell.split("```")[0].splitlines() if line[:1] != ":"), names)


def one_of(root: Path, name: str) -> folders.Results:
    return next(one for one in folders.all_folders(root) if one.name == name)


# -- which folders stand beside each other, and their labels


def test_scripted_weights_join_and_others_do_not(made: Path) -> None:
    found = {one.name: one for one in folders.all_folders(made)}
    assert [name for name, one in found.items() if one.joins] == list(PROFILES)
    assert [one.name for one in folders.measured(made, real_only=True)] == ["gpu-text"]
    assert found["gpu-compiled"].label == "gpu-compiled (synthetic)"
    assert found["gpu-compiled"].hardware == "Example GPU, BF16, compiled, 8 GiB cap"
    assert found["gpu-compiled"].setup == "repair-free, bonus, k = 1, acceptance imposed"
    assert found["gpu-text"].named == "`gpu-text`" and found["gpu-eager"].named == "`gpu-eager` (synthetic)"


def test_a_synthetic_folder_has_nothing_real(made: Path) -> None:
    assert set(mechanisms.by_family(one_of(made, "gpu-eager"), "formulations")["label"]) == {"synthetic"}
    assert set(mechanisms.by_family(one_of(made, "gpu-text"), "formulations")["label"]) == {"real"}
    assert "oracle" in set(mechanisms.by_family(one_of(made, "gpu-eager"), "draft-free")["label"])
    assert [one.name for one in mechanisms.having("relaxed", made)] == ["gpu-text"], "its text means nothing"


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_every_regime_with_its_label(
    made: Path, shown: list[str], no_ink: None, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(page, made, monkeypatch)
    told = html.unescape("\n".join(shown))
    told = re.sub(r"base64,[^\"]*|href=\"[^\"]*\"|PROFILE=[\w-]+|profile `[\w-]+`", "", told)
    for name in SYNTHETIC:
        for place in re.finditer(re.escape(name), told):
            after = told[place.end() : place.end() + 14].lstrip("`*")
            assert after.startswith((" (synthetic", "\n(synthetic")), (
                f"{page}: {told[place.start() - 60 : place.end() + 60]}"
            )
    if page not in ("audit", "acceptance", "relaxed", "correctness"):
        assert any(name in told for name in SYNTHETIC), page


@pytest.mark.parametrize("page", EXPLAINED)
def test_a_page_says_once_what_synthetic_means_and_only_where_it_shows_some(
    made: Path, shown: list[str], no_ink: None, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "validity":  # no made-up folder has A/A runs
        monkeypatch.setattr(folders, "all_with", lambda *_: [one_of(made, "gpu-eager")])
        monkeypatch.setattr("specdec_lib.report.validity._show_aa", lambda one: None)
        validity.show_aa(made)
    else:
        run_page(page, made, monkeypatch)
    told = "\n".join(shown)
    assert told.count("shapes, random weights: which proposals pass is scripted") == 1, page
    assert models.synthetic_told([one_of(made, "gpu-text")]) == ""


def test_random_pairs_are_told_by_who_decides(made: Path) -> None:
    """Only a scripted acceptance is an assumption; that of random models which decide themselves is chance."""
    one = one_of(made, "gpu-eager")
    profile = one.profile.model_copy(update={"pair": "tiny-llama", "scripted": None})
    chance: Any = folders.Results(one.name, one.folder, one.design, one.provenance)
    chance.__dict__["profile"] = profile
    alone, both = models.synthetic_told([chance]), models.synthetic_told([one, chance])
    random = "two random Llama layers: the random models decide which proposals pass, so the acceptance means nothing."
    assert random in alone and "scripted" not in alone and "assumption" not in alone
    assert random in both and "shapes, random weights: which proposals pass is scripted (imposed), so" in both
    assert "its" not in both.split()


def test_every_source_names_its_models(made: Path) -> None:
    """R is of a pair as much as of a machine: the article's alone was named once."""
    found = compare.sources(made)
    for told in (compare.headline(found), landing.caption(found).split(" families in inference")):
        for source, words in zip(found, told, strict=False):
            assert models.named(source.results) in words if source.results else "Qwen2.5-0.5B" in words
    by = {source.label: source.hardware for source in found}
    assert by["gpu-compiled (synthetic)"].endswith("8 GiB cap, Qwen2.5 shapes, random weights")
    assert by["gpu-text"].endswith(", SmolLM2-135M-Instruct with a 4-layer draft of the same width")


def test_the_figure_of_the_families_names_only_lines_that_it_has(made: Path) -> None:
    source = next(source for source in compare.sources(made) if source.label == "gpu-text")
    contexts = source.summary["context_tokens"]
    for without, says in (
        ([], "families in inference."),
        ([2048], "families in inference (at 4K and 8K only)."),
        (list(contexts), "No line: no family is in inference."),
    ):
        summary = source.summary.assign(R_GM=source.summary["R_GM"].mask(contexts.isin(without)))
        changed = dataclasses.replace(source, summary=summary)
        assert results.line_told(changed).endswith(says)
        axes = figures.forest(changed).axes[0]
        lines = sum(line.get_alpha() == 0.6 for line in axes.get_lines())
        assert lines == len(contexts) - len(without)


def test_the_dial_says_which_confirmatory_runs_have_its_rounds(made: Path) -> None:
    told = dial.engine_sentence(mechanisms.having("dial", made))
    same, _, other = told.partition("; other ones in ")
    assert "the same rounds in `gpu-compiled` (synthetic) (repair-free, bonus, k = 1" in same
    assert "`gpu-text` (reference, k = 4)" in other and "`gpu-eager`" in other
    assert dial.engine_sentence([]) == ""
    alone = "The confirmatory runs have other rounds than the dial in `gpu-text` (reference, k = 4)."
    assert dial.engine_sentence([one_of(made, "gpu-text")]) == alone


def test_text_chapters_leave_random_weights_out(
    made: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page("correctness", made, monkeypatch)
    assert "gpu-text" in "".join(shown) and not any(name in "".join(shown) for name in SYNTHETIC)


# -- figures


def test_the_headline_grows_longer_and_not_denser(made: Path) -> None:
    few, many = compare.sources(made)[:2], compare.sources(made)
    heights = [figures.headline(found).get_figheight() for found in (few, many)]
    assert heights[1] > heights[0]
    fig = figures.headline(many)
    names = [words.get_text().partition(":")[0] for words in fig.axes[0].texts]
    assert names.count("gpu-eager (synthetic)") == 3 and names.count("published") == 3
    assert len(figures.forest(many[-1]).axes) == 1


def test_no_name_of_the_headline_lies_on_the_line_at_1() -> None:
    """Of the committed results: where the line is depends on the ratios that are drawn."""
    style.use_style()
    fig = figures.headline(compare.sources(BOOK.parent, committed_only=True))
    ax = fig.axes[0]
    fig.draw_without_rendering()
    line = ax.transData.transform((1, 0))[0]
    for words in ax.texts[:-2]:  # the last two say which side is which
        box = words.get_window_extent()
        assert box.x1 < line or box.x0 > line, words.get_text()


def test_the_headline_is_whole_on_a_phone(made: Path) -> None:
    """390 pixels, less the page's margins and the card's, at the smallest scale at which letters can be read."""
    style.use_style()
    markup = style._figure_html(figures.headline(compare.sources(made)), "R of every source", "", None)
    width = re.search(r"min-width: (\d+)px", markup)
    assert width and int(width.group(1)) <= 336


def test_a_folder_none_of_whose_cells_passed_is_drawn_hollow(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    path = root / "data" / "gpu-eager" / "confirmatory-2048.csv"
    write_table(read_table(path, "confirmatory").assign(throttled=True), path, "confirmatory")
    source = next(one for one in compare.sources(root) if one.label.startswith("gpu-eager"))
    row = source.rows[0]
    assert row["n_in_inference"] == 0 and row["R_GM"] != row["R_GM"]
    fig = figures.headline([source])
    faces = [line.get_markerfacecolor() for line in fig.axes[0].lines if line.get_marker() == "o"]
    assert faces.count("white") == 1 and len(faces) == 3
    shown: Any = regimes.overview([source], root)
    assert shown["R_GM, all families"][0] == pytest.approx(row["R_GM_all"])


def test_the_results_name_the_engine_of_each_source(made: Path, shown: list[str]) -> None:
    results.show_verdicts(compare.sources(made), made)
    table = next(part for part in shown if "study-table" in part)
    for setup in ("repair-free, bonus, k = 1, acceptance imposed", "reference, k = 4"):
        assert f"<td>{setup}</td>" in table or setup in table
    results.show_acceptance(compare.sources(made))
    assert "Acceptance was imposed." in shown[-1] and "4-grams" in shown[-1]


def test_variants_stand_side_by_side(made: Path) -> None:
    found = mechanisms.having("all-accept", made)
    given = mechanisms.published_frame({"all accepted": "all-accept"}, made)
    table: Any = mechanisms.side_by_side(found, "all-accept", given)
    assert list(table.columns) == ["context", "variant", "published", "gpu-text", "gpu-eager (synthetic)"]
    row = table.set_index(["context", "variant"]).loc[("2K", "all accepted (synthetic)")]
    assert row["published"] == "0.860" and row["gpu-eager (synthetic)"].startswith("0.8")
    captured = mechanisms.side_by_side(mechanisms.having("cost-model", made), "cost-model", given)
    assert set(captured[captured["variant"].str.startswith("reference (")]["gpu-compiled (synthetic)"]) == {
        "not run"
    }


def test_the_published_study_stands_in_where_the_time_goes(made: Path, shown: list[str]) -> None:
    found = compare.sources(made)
    timeuse.show_roofline(found)
    timeuse.show_predictions(found)
    tables = [part for part in shown if "study-table" in part]
    assert len(tables) == 2 and all(
        "published</td>" in table and "gpu-compiled (synthetic)" in table for table in tables
    )


# -- the cost line


def test_points_are_the_fitted_costs(made: Path) -> None:
    found = {(point.source, point.context): point for point in regimes.points(made)}
    eager, compiled = found["gpu-eager (synthetic)", 2048], found["gpu-compiled (synthetic)", 2048]
    machine = MACHINES["gpu-eager"]
    assert eager.c == pytest.approx(machine.c) and eager.layers == pytest.approx(24 / 28)
    assert eager.v == pytest.approx(machine.base + 4 * machine.row + machine.overhead), "a block of k rows"
    assert compiled.v == pytest.approx(1.0 + 2 * 0.02 + 0.01) and compiled.engine == Engine(
        "repair-free", True, 1
    )
    assert found["published", 2048].c == pytest.approx(0.8868, abs=1e-3)
    assert eager.has_repair and not compiled.has_repair


@pytest.mark.parametrize("engine", [Engine("reference", False, 4), Engine("repair-free", True, 1)])
def test_the_edge_is_where_R_is_one(engine: Engine) -> None:
    v = regimes.edge(engine, 0.75, 64)
    for c in (0.1, 0.3):
        R = predicted_R(c, v(c), engine.k, 0.75, engine.formulation, engine.bonus, new_tokens=64)
        assert pytest.approx(1.0) == R


def test_the_plane_says_on_which_side_a_regime_lies(made: Path) -> None:
    told = {line.split("*")[1]: line for line in plane.sentences(regimes.points(made), made)}
    assert (
        "c alone is nearer to its layers" in told["gpu-eager (synthetic)"]
        and "below 1 at every" in told["gpu-eager (synthetic)"]
    )
    assert (
        "c alone is nearer to its bytes" in told["gpu-compiled (synthetic)"]
        and "above 1 at every" in told["gpu-compiled (synthetic)"]
    )
    found = regimes.points(made)
    drawn = plane.figure(found, 0.75)
    named = [said.get_text() for said in drawn.legends[0].get_texts()]
    engines = {str(point.engine) for point in found}
    assert set(named[5:]) == {
        f"{words}: {engine}" for words in ("R = 1", "all accepted") for engine in engines
    }
    assert len(named) == 5 + 2 * 2, "sources and engines"
    upright = {said.get_text().partition("\n")[0] for said in drawn.axes[0].texts}
    assert upright == {"layers", "bytes"}, "a name inside the plot would cross a line or another name"
    lines = {line.get_label(): line for line in drawn.axes[0].get_lines()}
    for engine in engines:
        usual, ideal = lines[f"R = 1: {engine}"], lines[f"all accepted: {engine}"]
        assert usual.get_linestyle() == ideal.get_linestyle() and usual.get_color() != ideal.get_color()
    later = [line for line in drawn.axes[0].get_lines() if line.get_markerfacecolor() == "none"]
    assert len(later) == len(found) - 5, "of the contexts after the first the marks are open"


def test_the_plane_judges_no_quick_look(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders.Results, "quick", True)
    published, *ours = plane.sentences(regimes.points(made), made)
    assert "c alone is nearer" in published and len(ours) == len(MACHINES)
    for line in ours:
        assert "quick look" in line and "nearer" not in line and "every context" not in line


@pytest.mark.parametrize("name", list(PROFILES))
def test_a_fall_explains_a_machine_that_follows_its_line(made: Path, name: str) -> None:
    found = [fall for fall in falls.falls(made) if fall.source.startswith(name)]
    assert [fall.context for fall in found] == [2048, 4096, 8192]
    for fall in found:
        assert fall.n == 16 and 1 + sum(fall.parts.values()) == pytest.approx(fall.spec)
        assert fall.parts[waterfall.REST] == pytest.approx(0, abs=0.004), "the last round's shorter block"
    assert (found[0].parts[waterfall.REPAIR] > 0) == (MACHINES[name].repair > 0)


def test_falls_have_a_panel_each(made: Path) -> None:
    shown = [fall for fall in falls.falls(made) if fall.context == 2048]
    assert [fall.source for fall in shown][0] == "published"
    assert len(falls.figure(shown).axes) == len(shown) == 5
    assert "draft forwards" in falls.sentence(shown[2]) and "more than is saved" in falls.sentence(shown[2])
    assert "from mean times of all families; not" in falls.sentence(shown[2])
    assert "mean times" not in falls.sentence(shown[0]), "medians as published"


def test_the_tables_of_the_regimes_begin_with_what_decides(made: Path) -> None:
    """A wide table scrolls: what it is read for may not be at its far end."""
    first: Any = regimes.overview(compare.sources(made), made)
    assert list(first.columns)[:4] == ["context", "source", "R_GM", "verdict"]
    line: Any = regimes.cost_table(regimes.points(made), made)
    assert list(line.columns)[2:5] == ["R by the line", "break-even alpha", "best k, R there"]
    assert list(falls.table(falls.falls(made)).columns)[2] == "R"
    for frame in (first, line, falls.table(falls.falls(made))):
        assert frame.columns[-1] == "SpecDec", "the widest"
    assert 'class="name"' in style._cell("gpu-eager (synthetic)", 3, "source"), "may break on a phone"
    assert "class" not in style._cell("0.926 [0.909, 0.943]", 3, "R_GM")


def test_folders_that_differ_in_the_machine_alone_are_named_as_such(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    assert regimes.twin_sentences(root) == []
    shutil.copytree(root / "data" / "gpu-text", root / "data" / "my-gpu-text")
    for path in (root / "data" / "my-gpu-text").glob("confirmatory-*.csv"):
        table = read_table(path, "confirmatory")
        table.loc[table["arm"].eq("spec") & table["family"].eq(table["family"].iloc[0]), "decode_s"] /= 1.5
        write_table(table, path, "confirmatory")
    told = regimes.twin_sentences(root)
    assert "`gpu-text` and `my-gpu-text` ran the same pair" in told[0]
    assert "differs by 0 to 50.0\u00a0% from" in told[0]
    assert "and k in two runs" in told[0], "the same hardware"
    record = root / "data" / "my-gpu-text" / "provenance.json"
    record.write_text(record.read_text().replace("Example GPU", "Another GPU"))
    assert "each on its own hardware" in regimes.twin_sentences(root)[0]


# -- findings


def test_the_findings_on_the_made_up_machines(made: Path) -> None:
    layers = carried.layer_sentences(made)
    assert len(layers) == 2 and "`gpu-eager` (synthetic): **yes**" in layers[1]
    reference = carried.reference_sentences(made)
    assert all("**yes**" in line for line in reference) and "+0.0\u00a0% at 2K" in reference[1]
    gain = carried.gain_sentences(made)
    assert len(gain) == 1 and "`gpu-compiled` (synthetic): **yes**" in gain[0]
    assert all("**yes**" in line for line in carried.check_sentences(made))
    assert "0.0\u00a0% in `gpu-eager` (synthetic)" in carried.line_sentence(made)
    assert carried.absent(made) == []


def test_single_steps_in_pairs_come_first(tmp_path: Path) -> None:
    """A draft forward by pairs, where they were timed, decides; what the stages and the fit say stands beside it."""
    root = make_project(tmp_path)
    one = one_of(root, "gpu-eager")
    assert regimes.IN_STEPS == graph_phase.IN_STEPS and regimes.paired(one) == {}
    ratio = {
        "part": "steps",
        "quantity": regimes.IN_STEPS,
        "unit": "ratio",
        "mode": "eager",
        "variant": "eager",
    }
    row = {
        **{name: one.provenance[name] for name in ("profile", "design_hash")},
        "pair": one.profile.pair, "dtype": "bf16", "device": "cuda", **ratio, "k": None, "label": "synthetic",
        "outcome": "measured", "n": 100, "low": 0.4, "high": 0.6, "published_low": None, "published_high": None,
    }  # fmt: skip
    rows = [row | {"context_tokens": c, "value": v} for c, v in ((2048, 0.5), (4096, 0.505), (8192, 0.51))]
    rows.append(rows[0] | {"quantity": "plain step", "unit": "s", "value": 0.02})
    write_table(pd.DataFrame(rows), one.folder / "graphs.csv", "graphs")
    one = one_of(root, "gpu-eager")
    assert regimes.paired(one) == {2048: 0.5, 4096: 0.505, 8192: 0.51}
    told = next(line for line in carried.layer_sentences(root) if "gpu-eager" in line)
    assert "**no**. c is 0.500 at 2K (-" in told and "by single steps in pairs" in told
    assert "By the stages of its runs it is 0.8" in told and "The fit on development texts gives" in told
    (moved,) = launches.sentences(root)
    assert "(0.500 to 0.510 by single steps in pairs)" in moved and "the draft **was** launch-bound" in moved
    write_table(pd.DataFrame(rows).assign(value=0.46), one.folder / "graphs.csv", "graphs")
    (moved,) = launches.sentences(root)
    falls_by = text.listed([text.signed(0.45 / 0.86 - 1)] * 3)
    rule = (
        f"by the stages it changes by {falls_by} at 2K, 4K and 8K, but from the single steps in pairs by "
        f"{text.listed([text.signed(0.45 / 0.46 - 1)] * 3)}, and a fall counts from 5\u00a0% on, by both"
    )
    assert f"no change of the draft's cost can be told: {rule}." in moved
    assert (
        f"AR steps (0.460 by single steps in pairs), no change that can be told ({rule})"
        in launches.tested(root)
    )


def test_the_answer_sorts_the_folders_by_their_verdicts(made: Path, tmp_path: Path) -> None:
    """Lost, gained, described as slower, open: each folder once; and how often the bytes' half came true."""
    told = answer.sentences(made)
    assert (
        told[0].startswith(
            "As in the published study, though by another amount, speculative decoding does not pay in"
        )
        and "`gpu-eager` (synthetic) (eager on a GPU," in told[0]
    )
    gain = next(line for line in told if line.startswith("It becomes a gain, of decoding alone"))
    assert "`gpu-compiled` (synthetic) (compiled on a GPU, " in gain
    above = "`gpu-graphs` (synthetic) and `gpu-compiled` (synthetic)"
    assert told[-1].endswith(
        f"came true in 0 of 2 folders without launches: c lies above that share in {above}."
    )
    for one in folders.measured(made):
        assert sum(one.named in line for line in told[:-1]) == (0 if one.quick else 1)
    root = make_project(tmp_path, {"gpu-compiled": Machine(step=0.001, c=0.33, repair=0.0)})
    for path in (root / "data" / "gpu-eager").glob("confirmatory-*.csv"):
        write_table(read_table(path, "confirmatory").assign(throttled=True), path, "confirmatory")
    told = answer.sentences(root)
    below = next(line for line in told if line.startswith("R is below 1 at every context, but too few"))
    assert "gpu-eager" in below
    missed = (
        "came true in 1 of 2 folders without launches: c lies above that share in `gpu-graphs` (synthetic)."
    )
    assert told[-1].endswith(missed)


def test_a_missed_share_says_on_which_side(tmp_path: Path) -> None:
    root = make_project(tmp_path, {"gpu-compiled": Machine(step=0.001, c=0.1, repair=0.0)})
    told = answer.sentences(root)[-1]
    assert (
        "c lies above that share in `gpu-graphs` (synthetic), and below that share in `gpu-compiled`" in told
    )
    (tmp_path / "held").mkdir()
    root = make_project(
        tmp_path / "held",
        {name: Machine(step=0.001, c=0.33, repair=0.0) for name in ("gpu-graphs", "gpu-compiled")},
    )
    assert answer.sentences(root)[-1].endswith("came true in 2 of 2 folders without launches.")


def test_means_of_all_families_stand_apart_from_those_of_the_inference(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    path = root / "data" / "gpu-eager" / "confirmatory-4096.csv"
    write_table(read_table(path, "confirmatory").assign(throttled=True), path, "confirmatory")
    source = next(one for one in compare.sources(root) if one.label.startswith("gpu-eager"))
    by_context = {row["context_tokens"]: row for row in source.rows}
    told = answer._named(source)
    inside = text.span(by_context[context]["R_GM"] for context in (2048, 8192))
    whole = text.span([by_context[4096]["R_GM_all"]])
    assert f": {inside} in inference at 2K and 8K and {whole} of all families at 4K)" in told


def test_the_first_page_begins_with_one_sentence(made: Path, tmp_path: Path) -> None:
    told = answer.in_short(compare.sources(made))
    assert told.startswith("**In short**, at every context measured: it pays, of decoding alone, in ")
    pays, lost, neither = told.split("; ")
    assert "`gpu-compiled`" in pays and "it does not pay as published" in lost and "`gpu-eager`" in lost
    for one in folders.measured(made):
        assert one.quick or told.count(one.named) == 1, "each folder once"
    alone = [source for source in compare.sources(made) if source.results is None]
    assert answer.in_short(alone) == "**In short**, at every context measured: it does not pay as published."
    root = make_project(tmp_path)
    for path in (root / "data" / "gpu-eager").glob("confirmatory-*.csv"):
        write_table(read_table(path, "confirmatory").assign(throttled=True), path, "confirmatory")
    assert neither == "neither is shown in `gpu-text`."
    assert "neither is shown in `gpu-text` and in `gpu-eager`" in answer.in_short(compare.sources(root))


def test_the_findings_flip(made: Path, tmp_path: Path) -> None:
    root = make_project(
        tmp_path, {"gpu-eager": Machine(c=0.5), "gpu-compiled": Machine(step=0.001, c=0.9, repair=0.0)}
    )
    assert "`gpu-eager` (synthetic): **no**" in carried.layer_sentences(root)[1]
    gain = carried.gain_sentences(root)[0]
    assert "**no**" in gain and "Because, by the cost line" in gain and "the best k is 1" in gain
    path = root / "data" / "gpu-eager" / "cost-model.csv"
    table = read_table(path, "mechanism")
    table.loc[table["variant"] == "reference", "decode_s"] *= 1.2
    write_table(table, path, "mechanism")
    assert "**no**" in carried.reference_sentences(root)[1]
    path = root / "data" / "gpu-eager" / "confirmatory-2048.csv"
    table = read_table(path, "confirmatory")
    for family in table["family"].unique()[:3]:
        table.loc[table["family"] == family, "throttled"] = True
    write_table(table, path, "confirmatory")
    yes, no = carried.check_sentences(root)
    assert "**no** in `gpu-eager` (synthetic) (13 of 16, " in no and "gpu-eager" not in yes


def test_launches_were_or_were_not_the_cause(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PENDING", SYNTHETIC)
    told = launches.sentences(made)
    assert len(told) == 1 and "the draft **was** launch-bound" in told[0]
    assert (
        "From `gpu-eager` (synthetic) to `gpu-graphs` (synthetic)" in told[0]
        and "20.0\u00a0ms before and 4.00\u00a0ms after" in told[0]
    )
    assert "Spread of a family's times" in told[0] and "also differ in the round" in told[0]
    root = make_project(tmp_path, {"gpu-graphs": Machine(step=0.004, c=0.9, repair=0.0)})
    assert "without its launches the draft is **not** cheaper" in launches.sentences(root)[0]
    shutil.rmtree(root / "data" / "gpu-graphs")
    assert "launches and kernels change at once" in launches.sentences(root)[0]


def test_the_audit_s_hypothesis_is_followed_by_its_test(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches alone, and fused kernels as well, each with the verdict of its runs; what was not run is not said."""
    monkeypatch.setattr(folders, "PENDING", SYNTHETIC)
    for told in (
        launches.tested(made),
        audit.findings(audit.rows(made), published.confirmatory(made), made)[1],
    ):
        assert "`gpu-graphs` (synthetic)" in told and "c goes from 0.860 to 0.450 AR steps, and" in told
        assert (
            "There captured graphs, without fused kernels, were enough for R above 1, with rounds that differ too "
            "(reference, k = 4 against repair-free, bonus, k = 1); with fused kernels it was enough." in told
        )
        assert launches.UNTESTED not in told and "gpu-text" not in told, "another pair's layers"
    dear = Machine(step=0.004, c=0.9, repair=0.0)
    root = make_project(tmp_path, {"gpu-graphs": dear})
    told = launches.tested(root)
    assert (
        "to 0.900 AR steps, which is no fall, and speculative decoding does not pay at 2K, 4K and 8K" in told
    )
    assert "were **not** enough for R above 1, with rounds that differ too" in told
    shutil.rmtree(root / "data" / "gpu-graphs")
    assert "Launches were not removed alone there; with fused kernels it was enough." in launches.tested(root)
    shutil.rmtree(root / "data" / "gpu-compiled")
    assert launches.tested(root) == launches.UNTESTED
    assert "is open there." in launches.concluded(
        {"graphs": {"undecided", "pays"}, "compiled": {"no interval"}}
    )


def test_a_draft_is_cheaper_only_beyond_the_spread_of_its_families(tmp_path: Path) -> None:
    root = make_project(tmp_path, {"gpu-graphs": Machine(step=0.004, c=0.84, repair=0.0)})
    assert "the draft costs less, but its c is still nearer" in launches.sentences(root)[0]
    path = root / "data" / "gpu-eager" / "confirmatory-2048.csv"
    table = read_table(path, "confirmatory")
    slow = (table["family"] == table["family"].iloc[0]) & (table["arm"] == "ar")
    for name in ("decode_s", "device_event_s"):
        table.loc[slow, name] *= 1.1  # that family's draft is then a smaller share of its AR step
    write_table(table, path, "confirmatory")
    assert "can be told: its families overlap at 2K." in launches.sentences(root)[0]


def test_a_line_that_misses_its_cells_tells_no_factor_from_the_next(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    modes = regimes.ladders(root)[0]
    assert "does not tell it from" not in ladder.ladder_sentence(modes, 2048, root)
    path = root / "data" / "gpu-eager" / "cost-model.csv"
    table = read_table(path, "mechanism")
    table.loc[table["variant"] != "ar", "decode_s"] *= 3
    table.loc[(table["variant"] != "ar") & (table["family"] == table["family"].iloc[0]), "decode_s"] *= 2
    write_table(table, path, "mechanism")
    told = ladder.ladder_sentence(regimes.ladders(root)[0], 2048, root)
    cells = residuals.of_folder(one_of(root, "gpu-eager"))["residual"].abs()
    assert cells.median() < cells.max()
    assert (
        f"the line of `gpu-eager` (synthetic) is off by {text.percent(cells.median())} in the median of "
        f"{len(cells)} held-out cells and by {text.percent(cells.max())} at most, and two Rs off by the median do not"
    ) in told


def test_a_factor_between_a_fit_and_stages_is_told_by_one_way_as_well(made: Path, tmp_path: Path) -> None:
    """Two ways of estimating c lie between such rungs: what they differ by is no effect of the launches."""
    root = make_project(tmp_path)
    path = root / "data" / "gpu-eager" / "cost-fit.csv"
    table = read_table(path, "cost-fit")
    table.loc[table["component"] == "draft forward", "steps"] *= 1.2
    write_table(table, path, "cost-fit")

    def told(project: Path) -> tuple[str, str]:
        modes = regimes.ladders(project)[0]
        rows = {str(row["change"]): row for row in ladder.steps(modes, 2048, project)}
        factor = str(rows["launches removed: captured graphs"]["times the rung before"])
        return factor, ladder.ladder_sentence(modes, 2048, project)

    factor, sentence = told(made)
    assert "(" not in factor and "two ways" not in sentence, "the fit and the stages agree"
    plain, _, staged = told(root)[0].partition(" (")
    assert staged == f"{factor})" and float(plain) > float(factor)
    assert (
        f"by the stages on both sides it is {factor} for *launches removed: captured graphs*" in told(root)[1]
    )


def test_the_one_factor_of_a_ladder_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PENDING", SYNTHETIC)
    root = make_project(tmp_path)
    shutil.rmtree(root / "data" / "gpu-graphs")
    (root / "data" / "gpu-eager" / "cost-fit.csv").unlink()
    (modes,) = regimes.ladders(root)
    (_, last) = ladder.steps(modes, 2048, root)
    told = ladder.ladder_sentence(modes, 2048, root)
    assert "the one factor is" in told and told.count(str(last["change"])) == 1


def test_a_small_spread_is_not_rounded_to_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PENDING", SYNTHETIC)
    root = make_project(tmp_path)
    for path in (root / "data" / "gpu-graphs").glob("confirmatory-*.csv"):
        table = read_table(path, "confirmatory")
        for name in ("decode_s", "device_event_s"):
            table[name] *= 1 + 0.0001 * table["repeat"]
        write_table(table, path, "confirmatory")
    spread = float(one_of(root, "gpu-graphs").families["dispersion_value"].median())
    assert 0 < spread < 0.0005
    assert f"and {text.number(spread * 100, digits=2)}\u00a0% in `gpu-graphs`" in launches.sentences(root)[0]


def test_the_ladder_goes_from_the_published_engine_to_the_best_k(made: Path, tmp_path: Path) -> None:
    modes = regimes.ladders(made)[0]
    assert [one.name for one in modes] == ["gpu-eager", "gpu-graphs", "gpu-compiled"]
    rows = ladder.steps(modes, 2048, made)
    assert [row["SpecDec"] for row in rows[:2]] == ["reference, k = 4", "repair-free, bonus, k = 4"]
    assert {row["SpecDec"] for row in rows[2:]} == {"repair-free, bonus, k = 1"}, "the last regime's best k"
    assert [row["source"] for row in rows[2:]] == [one.label for one in modes]
    assert rows[0]["times the rung before"] == "first"
    measured = [str(row["R measured"]) for row in rows]
    assert ["at its own acceptance" in cell for cell in measured] == [False, True, True, False, False]
    assert "not run" not in measured and "(4 cells; predicted there" in measured[1], (
        "the cost line's test ran them"
    )
    assert rows[0]["R against the best AR"] == pytest.approx(float(str(rows[0]["R by the line"])) / 20)
    told = ladder.ladder_sentence(modes, 2048, made)
    assert (
        "(synthetic, by the cost line, or the stages of the runs where none was fitted)" in told
        and "20.0 times as fast" in told
    )
    root = make_project(tmp_path, {"gpu-compiled": Machine(step=0.001, c=0.05, repair=0.0)})
    names = [row["source"] for row in ladder.steps(regimes.ladders(root)[0], 2048, root)]
    assert "gpu-graphs (synthetic)" not in names, "it ran at another k than the last regime's best"


def test_a_rung_names_all_that_changes_with_it(tmp_path: Path) -> None:
    """An eager folder without a cost line tells nothing of other rounds: these change with the launches then."""
    root = make_project(tmp_path)
    (root / "data" / "gpu-eager" / "cost-fit.csv").unlink()
    rows = ladder.steps(regimes.ladders(root)[0], 2048, root)
    assert [row["change"] for row in rows[:2]] == [
        "eager, as published",
        "launches removed: captured graphs, and repair-free, bonus, k = 1 instead of reference, k = 4",
    ]
    assert all("instead of" not in str(row["change"]) for row in rows[2:])


def test_the_last_regimes_own_k_stands_where_its_line_does_not_tell_it_from_the_best(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = regimes.ladders(made)[0]
    last = next(point for point in regimes.folder_points(modes[-1]) if point.context == 2048)
    alpha, own = regimes.alpha_at(2048, made), last.engine
    found = last.best(alpha, "repair-free", True)
    assert found
    better = regimes.Engine("repair-free", True, own.k + 1)
    for gain, k in ((1.01, own.k), (1.5, own.k + 1)):
        R = last.R(alpha, own) * gain
        monkeypatch.setattr(regimes.Point, "best", lambda *_, R=R: (better, R))
        monkeypatch.setattr(ladder, "residual_of", lambda one: 0.02)
        assert ladder.rungs(modes, 2048, made)[-1][2].k == k


def test_a_rung_whose_cells_failed_says_so_and_shows_their_range(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    path = root / "data" / "gpu-eager" / "confirmatory-2048.csv"
    write_table(read_table(path, "confirmatory").assign(throttled=True), path, "confirmatory")
    rows = ladder.steps(regimes.ladders(root)[0], 2048, root)
    cells: Any = one_of(root, "gpu-eager").families
    spread = text.span(cells[cells["context_tokens"] == 2048]["R"])
    assert str(rows[0]["R measured"]).endswith(f"(all\u00a0families): {spread}; 0 of 16 passed the checks")
    (root / "data" / "gpu-eager" / "cost-model.csv").unlink()
    rows = ladder.steps(regimes.ladders(root)[0], 2048, root)
    assert rows[1]["R measured"] == "not run", "another engine than the run's"
    point = next(p for p in regimes.points(root) if p.source == "gpu-text" and p.context == 2048)
    assert point.results is not None
    own = ladder.own_R(point.results, 2048)
    assert ladder._measured(point, regimes.engine_of(point.results)) == f"{own} at its own acceptance"


def test_the_first_page_says_whether_what_pays_still_pays_with_prefill(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    for prefill, says in ((0.1, "**does not pay at 2K, 4K and 8K**"), (1e-6, "**pays at 2K, 4K and 8K**")):
        for path in (root / "data" / "gpu-compiled").glob("confirmatory-*.csv"):
            table = read_table(path, "confirmatory").assign(prefill_s=prefill)
            table["draft_prefill_s"] *= prefill / 0.1
            write_table(table, path, "confirmatory")
        source = next(one for one in compare.sources(root) if one.label.startswith("gpu-compiled"))
        assert {row["verdict"] for row in source.rows} == {"pays"}
        told = compare.headline([source])[0]
        assert "That is decoding alone. With the prefill" in told and says in told
        assert told.count("[") == 6, "decoding and the whole, with an interval at every context"
        assert results.prefill_verdicts([source]) == [f"**{source.label}.** {told.split('alone. ')[1]}"]
    source = next(one for one in compare.sources(root) if one.label.startswith("gpu-eager"))
    assert {row["verdict"] for row in source.rows} == {"does not"}
    assert "prefill" not in compare.headline([source])[0], "nothing to lose, and no other verdict"


def test_both_halves_of_the_prediction_are_judged(made: Path, tmp_path: Path) -> None:
    told = carried.byte_sentences(made)
    assert len(told) == 2 and all("**no**" in line for line in told)
    point = regimes.folder_points(one_of(made, "gpu-compiled"))[0]
    assert f"{(point.c / point.share - 1) * 100:.1f}" in told[1] and "(compiled)" in told[1]
    root = make_project(tmp_path, {"gpu-compiled": Machine(step=0.001, c=0.33, repair=0.0)})
    assert "**yes**" in carried.byte_sentences(root)[1]


def test_a_check_that_could_not_be_computed_is_not_said_to_pass(made: Path) -> None:
    one = one_of(made, "gpu-eager")
    assert leftout.computable(one) == ""
    few: Any = SimpleNamespace(
        families=one.families.assign(order_passed=None), design=one.design, profile=one.profile
    )
    told = leftout.computable(few)
    assert told.startswith("5 of 6 checks can be computed with") and told.endswith(", not order")
    assert "at 2K, 4K and 8K)" in carried.check_sentences(made)[0]
    (source,) = (source for source in compare.sources(made) if source.label == "gpu-eager (synthetic)")
    rows = source.summary.assign(n_in_inference=source.summary["n"])
    few.named, few.quick = "here", False
    for folder, says in ((one, "check."), (few, f"check ({told}).")):
        (line,) = leftout.left_out([dataclasses.replace(source, summary=rows, results=folder)])
        assert line.endswith(f"no cell failed a timing {says}")


def test_every_gpu_folder_has_its_margin_on_the_first_page(made: Path) -> None:
    told = regimes.margin_sentences(made)
    assert [line.split("`")[1] for line in told] == [one.name for one in regimes.fitted(made) if one.cuda]
    compiled = next(line for line in told if "gpu-compiled" in line)
    points = regimes.folder_points(one_of(made, "gpu-compiled"))
    assert (
        f"pays from alpha = {text.span(at for p in points if (at := p.break_even()) is not None)} on"
        in compiled
    )
    assert "the runs imposed" in compiled


def test_the_hosts_pace_is_the_cause_only_where_eager_times_follow_it(tmp_path: Path) -> None:
    file = tmp_path / "data" / host.HOST_PACE
    assert host.pace_sentence(tmp_path) == ""
    loop = [0.030, 0.031, 0.040, 0.036, 0.034, 0.045]
    seconds = {
        "loop": loop,
        "eager": [12 * value for value in loop],
        "graphs": [0.17, 0.171, 0.17, 0.169, 0.17, 0.168],
    }
    file.parent.mkdir(parents=True)
    for eager, cause in (
        (seconds["eager"], "a likely reason"),
        ([0.5, 0.4, 0.3, 0.5, 0.5, 0.3], "not explain"),
    ):
        known = {"device": "GPU", "cpu_time_per_wall": 1.0, "seconds": seconds | {"eager": eager}}
        file.write_text(json.dumps(known))
        assert cause in host.pace_sentence(tmp_path)
    assert "largest time of a fixed Python loop is 50\u00a0% above its smallest" in host.pace_sentence(
        tmp_path
    )


COLLECTIONS = """collection,measured,commit,context_tokens,c_staged,c_fit,c_paired,reference_residual
1,2026-01-01,a,2048,{0},,,{3}
2,2026-01-02,b,2048,{1},,,{4}
3,2026-01-03,c,2048,{2},,0.5,{5}
"""


@pytest.mark.parametrize(
    ("residuals", "verdict"),
    [((0.01, 0.0, -0.01), "**yes**: the mean is off by +0.0"),
     ((0.2, -0.2, 0.03), "**undecided**: the mean is off by +1.0"),
     ((0.2, 0.1, 0.15), "**undecided**: the mean is off by +15.0"),
     ((0.16, 0.14, 0.15), "**no**: the mean is off by +15.0"),
     ((-0.16, -0.14, -0.15), "**no**: the mean is off by -15.0")],
)  # fmt: skip
def test_a_claim_over_repeated_collections(
    tmp_path: Path, residuals: tuple[float, ...], verdict: str
) -> None:
    file = tmp_path / "data" / repeated.COLLECTIONS
    assert repeated.sentences(tmp_path) == []
    file.parent.mkdir(parents=True)
    file.write_text(COLLECTIONS.format(0.857, 0.86, 0.855, *residuals))
    layers, predicted = repeated.sentences(tmp_path)
    assert "by the stages (known in all 3) **yes**" in layers and "by the fit" not in layers
    pairs = (
        "by single steps in pairs (known in 1 of them) **undecided**: the mean is off by -41.7\u00a0% at 2K"
    )
    assert f"{pairs} (0 of 1 within)" in layers
    assert verdict in predicted and "of 3 within)" in predicted
    low, high = min(residuals) * 100, max(residuals) * 100
    assert f"single ones {low:+.1f} to {high:+.1f}" in predicted


def test_two_collections_have_no_interval(tmp_path: Path) -> None:
    file = tmp_path / "data" / repeated.COLLECTIONS
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(COLLECTIONS.format(0.857, 0.86, 0.855, 0.0, 0.01, 0.0).splitlines()[:3]))
    predicted = repeated.sentences(tmp_path)[1]
    assert "**undecided**" in predicted and "[" not in predicted


def test_the_committed_collections_are_those_of_the_newest_folder_too() -> None:
    """The last rows say what the page says of the folder itself: both are of today's data."""
    one = one_of(ROOT, "h200-shapes-eager")
    found: Any = pd.read_csv(ROOT / "data" / repeated.COLLECTIONS)
    last = found[found["collection"] == found["collection"].max()].set_index("context_tokens")
    assert one.provenance["git"]["commit"].startswith(last["commit"].iloc[0])
    for context in one.contexts:
        staged = regimes.staged(one, context)["draft forward"]
        assert last.loc[context, "c_staged"] == pytest.approx(staged, rel=1e-5)
    known = last["reference_residual"].dropna().to_dict()
    assert known == pytest.approx(carried.reference_residuals(one), rel=1e-5)


def test_what_choosing_a_core_gives(tmp_path: Path) -> None:
    file = tmp_path / "data" / host.FREE_CORE
    assert host.core_sentence(tmp_path) == ""
    file.parent.mkdir(parents=True)
    seconds = {"any core": [0.5, 0.7, 0.9], "the fastest core": [0.4, 0.5, 0.6]}
    file.write_text(
        json.dumps({"device": "GPU", "core_paces_s": [[0.002, 0.003], [0.005, 0.002]], "seconds": seconds})
    )
    told = host.core_sentence(tmp_path)
    assert "2.50 times" in told and "2 virtual cores in turn, 2 times" in told
    assert "1 of the cores were at times within 10\u00a0%" in told, "the other was never the fastest"
    assert "any core 0.700 s (middle half 0.600 to 0.800, slowest 0.900)" in told


def test_whether_graphs_captured_later_change_the_times_of_the_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "data" / host.LATER_GRAPHS
    assert host.later_graphs_sentence(tmp_path) == ""
    file.parent.mkdir(parents=True)

    def told(ar: list[float], spec: list[float]) -> str:
        rows = [
            {"context_tokens": 2048, "pool": "one", "phase": phase, "ar_s": a, "spec_s": s * n, "rounds_n": n}
            for phase, a, s, n in zip(
                ["before", "before", "after", "after"], ar, spec, [1, 2, 1, 2], strict=True
            )
        ]
        file.write_text(json.dumps({"device": "GPU", "pair": "p", "repeats": 2, "rows": rows}))
        return host.later_graphs_sentence(tmp_path)

    still = told([1.0, 1.1, 1.02, 1.05], [2.0, 2.2, 2.1, 2.0])
    assert "no, the medians moved by -2.4\u00a0% to -1.4\u00a0%, within" in still and "yes" not in still
    both = told([1.0, 1.1, 1.2, 1.3], [2.0, 2.2, 2.1, 2.1])
    assert (
        "yes, AR runs by +19.0\u00a0% at 2K with one memory pool, beyond all runs before; the other" in both
    )
    assert "2 runs after against 2 before" in both and "SpecDec" not in both
    assert "SpecDec rounds by -26.2\u00a0%" in told([1.0, 1.1, 0.9, 0.95], [2.0, 2.2, 1.5, 1.6])


def test_a_table_that_a_page_alters_is_whole_for_the_next(made: Path) -> None:
    one = one_of(made, "gpu-eager")
    first: Any = mechanisms.by_family(one, "cost-model")
    R = list(first["R"])
    first["R"] = 0.0
    assert list(mechanisms.by_family(one, "cost-model")["R"]) == R


@pytest.mark.parametrize(("name", "captured"), [("gpu-eager", False), ("gpu-compiled", True)])
def test_each_folder_is_held_against_the_sources_of_its_own_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, captured: bool
) -> None:
    """Captured runs depend on more modules, so their jobs carry another hash of the same sources."""
    root, said = make_project(tmp_path), []
    for folder in PROFILES:
        file = root / "data" / folder / "provenance.json"
        by = {measuring_hash(captured): 3} if folder == name else {}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"measured_by": by}))
    monkeypatch.setattr(text, "say", lambda *lines: said.extend(lines))
    monkeypatch.setattr(style, "table", lambda *given, **more: None)
    monkeypatch.setattr(environment, "project_root", lambda: root)
    environment.show_provenance()
    assert [
        line for line in said if "today's is the same" in line and line.startswith(one_of(root, name).label)
    ]


@pytest.mark.parametrize(
    "content",
    ["", "{", "{}", "[]", "null", '{"profile": "nosuch", "design_hash": "a"}', '{"profile": "cpu-full"}',
     '{"profile": "cpu-full", "design_hash": "a", "device": "cpu"}'],
)  # fmt: skip
def test_a_damaged_provenance_is_named_with_its_folder(tmp_path: Path, content: str) -> None:
    root = make_project(tmp_path)
    (root / "data" / "gpu-eager" / "provenance.json").write_text(content)
    with pytest.raises(TableError, match=r"data/gpu-eager/provenance\.json is damaged"):
        folders.joining(root)


def test_a_readers_copy_of_a_table_is_no_context(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    folder = root / "data" / "gpu-eager"
    for name in ("confirmatory-old.csv", "confirmatory-2048 (copy).csv"):
        shutil.copy(folder / "confirmatory-2048.csv", folder / name)
    assert one_of(root, "gpu-eager").contexts == one_of(root, "gpu-graphs").contexts


def test_without_two_modes_nothing_is_claimed(
    tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PENDING", SYNTHETIC)
    root = make_project(tmp_path)
    for name in ("gpu-graphs", "gpu-compiled"):
        shutil.rmtree(root / "data" / name)
    assert regimes.ladders(root) == []
    launches.show(root)
    assert shown[-1].startswith("Not shown:")
    ladder.show_ladders(root)
    assert "make runs PROFILE=gpu-compiled" in "".join(shown[1:])
    assert [line.count("PROFILE=") for line in carried.absent(root)] == [1], "an eager one is there"


def test_latency_is_judged_on_a_gpu_only(made: Path, shown: list[str]) -> None:
    controlplane.show_latency(made)
    assert (
        "gpu-eager (synthetic)" in shown[-1] and "published" in shown[-1] and "gpu-compiled" not in shown[-1]
    )
    one = one_of(made, "gpu-eager")
    assert "a gain on a GPU, holds" in controlplane.latency_sentence(one, controlplane.latency(one), made)


def test_a_committed_profile_need_not_have_every_phase(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = folders.read_design(made)
    entry = design.profiles["gpu-text"].model_copy(update={"phases": ("numerics",)})
    changed = design.model_copy(update={"profiles": {**design.profiles, "gpu-text": entry}})
    folders._require("gpu-text", None, changed)
    monkeypatch.setattr(folders, "read_design", lambda root=None: changed)
    assert "gpu-text" not in compare.missing_committed([], made)


def test_the_line_without_a_repair_says_nothing_of_the_reference_engine(made: Path) -> None:
    rungs = ladder.rungs([one_of(made, "gpu-compiled")], 2048, made)
    assert [str(engine) for _, _, engine in rungs][0] == "repair-free, bonus, k = 4"


def test_costs_are_read_from_the_stages_where_nothing_was_fitted(made: Path) -> None:
    """The same costs as the machine's line, in both formulations; the folder without a fit has a point and a fall."""
    for name in ("gpu-graphs", "gpu-eager"):
        machine, known = MACHINES[name], regimes.staged(one_of(made, name), 2048)
        assert known["draft forward"] == pytest.approx(machine.c)
        assert known["overhead"] == pytest.approx(machine.overhead)
        assert known["verification"] == pytest.approx(machine.base + machine.row * 3, abs=0.05)
    found = [point for point in regimes.points(made) if point.source.startswith("gpu-graphs")]
    assert [point.context for point in found] == [2048, 4096, 8192] and not found[0].has_repair
    assert found[0].best(0.75, "repair-free", True) is None
    row = regimes.cost_table(found, made).iloc[0]
    assert row["context"] == "2K (by its stages)" and row["best k, R there"] == "one k known"


def test_captions_say_how_costs_were_estimated_and_of_how_many(
    tmp_path: Path, shown: list[str], no_ink: None
) -> None:
    """A folder may be read by two ways: its contexts with a fit by that, the others by the stages of its runs."""
    root = make_project(tmp_path)
    path = root / "data" / "gpu-eager" / "cost-fit.csv"
    table: Any = read_table(path, "cost-fit")
    write_table(table[table["context_tokens"] != 4096], path, "cost-fit")
    fit = "by the fit on 4 development texts"
    stages = "by the stages of the confirmatory runs, medians over 16 families"
    told = regimes.ways(regimes.points(root))
    assert "by the audit of the published medians: published at 2K, 4K and 8K" in told
    by_fit, by_stages = (told.split(f"{way}: ")[1].split(";")[0] for way in (fit, stages))
    assert "gpu-eager (synthetic) at 2K and 8K" in by_fit and "gpu-eager (synthetic) at 4K" in by_stages
    assert "gpu-graphs (synthetic) at 2K, 4K and 8K" in by_stages
    regimes.show_overview(root)
    plane.show(root)
    assert sum(html.escape(told) in part for part in shown) == 1, "under the table; the others point there"
    for source in compare.sources(root):
        assert f"{source.setup}; {source.spread}." in html.unescape(shown[0]), "families, repeats, interval"


def test_a_fit_whose_ar_step_is_not_that_of_the_runs_says_so(made: Path) -> None:
    one = one_of(made, "gpu-eager")
    fit: Any = one.table("cost-fit.csv", "cost-fit")
    assert costline.step_sentence(one, fit) == []
    slow = fit.assign(cost_s=fit["cost_s"] * 1.3)
    (told,) = costline.step_sentence(one, slow)
    assert "26.0 ms at 2K (20.0 ms in the confirmatory runs)" in told


def test_runs_without_their_stages_are_named(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    (root / "data" / "gpu-eager" / "stages-4096.csv").unlink()
    with pytest.raises(
        errors.TableMissing, match=r"data/gpu-eager/stages-4096.csv is not there(.|\n)*PROFILE=gpu-eager"
    ):
        regimes.staged_cells(one_of(root, "gpu-eager"), 4096)


def test_stages_without_a_row_of_specdec_are_named(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    file = root / "data" / "gpu-eager" / "stages-2048.csv"
    write_table(read_table(file, "stages").assign(arm="ar"), file, "stages")
    with pytest.raises(TableError, match=r"data/gpu-eager/stages-2048.csv has no row of the arm spec"):
        regimes.staged_cells(one_of(root, "gpu-eager"), 2048)


def test_a_rung_without_the_stages_of_its_context_has_no_factor_by_them(tmp_path: Path) -> None:
    """The fit has the context, the stages' table is gone: the ladder stands, and the context beside it is as it was."""
    root = make_project(tmp_path)
    fit_path = root / "data" / "gpu-eager" / "cost-fit.csv"
    fit: Any = read_table(fit_path, "cost-fit")
    fit.loc[fit["component"] == "draft forward", ["cost_s", "steps"]] *= 1.3
    write_table(fit, fit_path, "cost-fit")

    def factors(context: int) -> list[str]:
        found = ladder.rungs([one_of(root, "gpu-eager"), one_of(root, "gpu-graphs")], context, root)
        return [ladder.staged_factor(*pair, 0.75) for pair in pairwise(found)]

    assert any(factors(4096)) and any(factors(2048))
    (root / "data" / "gpu-eager" / "stages-4096.csv").unlink()
    assert not any(factors(4096)) and any(factors(2048))
