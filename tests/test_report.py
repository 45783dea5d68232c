"""The report's helpers: what a page shows comes from data, and sentences follow it."""

from __future__ import annotations

import ast
import html
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specdec_lib import errors
from specdec_lib.records import read_table, write_table
from specdec_lib.report import (
    audit,
    compare,
    correctness,
    costline,
    drawing,
    flips,
    folders,
    landing,
    launches,
    leftout,
    method,
    picture,
    published,
    quality,
    results,
    style,
    text,
    timeuse,
    validity,
    worked,
)
from specdec_lib.schemas import STAGES
from tests.synthetic_runs import DESIGN_HASH, make_runs

pytestmark = pytest.mark.usefixtures("nothing_committed")

REPOSITORY = Path(__file__).parent.parent
SHARES = {"draft": 0.6, "verify": 0.3, "accept": 0.02, "repair": 0.06, "other": 0.02}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The design, the published tables and the prompts' lists; no results."""
    shutil.copyfile(REPOSITORY / "design.toml", tmp_path / "design.toml")
    shutil.copytree(REPOSITORY / "data" / "published", tmp_path / "data" / "published")
    return tmp_path


def add(
    root: Path, name: str, profile: str, ratio: float, sd: float = 0.02, contexts: int = 3, seed: int = 0
) -> Path:
    """A folder of made-up results with a known R, for the first ``contexts`` context lengths."""
    folder = root / "data" / name
    folder.mkdir()
    runs = make_runs(profile, ratio, sd, noise=0.001, seed=seed)
    for context, part in list(runs.groupby("context_tokens"))[:contexts]:
        write_table(part, folder / f"confirmatory-{context}.csv", "confirmatory")
        rows = [
            {"profile": profile, "design_hash": DESIGN_HASH, "family": family,
             "context_tokens": context, "arm": "spec",
             "stage": stage, "stage_s": 4 * SHARES[stage], "total_s": 4.0}
            for family in part["family"].unique() for stage in STAGES
        ]  # fmt: skip
        write_table(pd.DataFrame(rows), folder / f"stages-{context}.csv", "stages")
    provenance(folder, profile)
    return folder


def provenance(folder: Path, profile: str, **more: Any) -> None:
    record = {
        "profile": profile,
        "design_hash": DESIGN_HASH,
        "machine": {"cpu": "Example CPU", "threads_used": 2},
        "device": {"device": "cpu", "dtype": "fp32", "read_bandwidth_bytes_per_s": 2e10},
        "models": {
            "target": {"step_bytes": 3e8, "kv_bytes_per_token": 20_000, "layers": 30},
            "draft": {"step_bytes": 1e8, "kv_bytes_per_token": 3_000, "layers": 4},
        },
    }
    (folder / "provenance.json").write_text(json.dumps(record | more))


# -- numbers come from data


def test_a_changed_time_changes_every_number_made_of_it(project: Path) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=2)
    before = compare.sources(project)
    table = pd.read_csv(folder / "confirmatory-2048.csv")
    table.loc[table["arm"] == "spec", "decode_s"] /= 4
    write_table(table, folder / "confirmatory-2048.csv", "confirmatory")
    after = compare.sources(project)
    assert compare.headline(before)[1] != compare.headline(after)[1]
    assert before[1].rows[0]["R_GM"] * 4 == pytest.approx(after[1].rows[0]["R_GM"])
    assert before[1].rows[1]["R_GM"] == after[1].rows[1]["R_GM"], "the other contexts are as they were"
    shown = compare.table(after, compare.VERDICTS)
    assert text.number(after[1].rows[0]["R_GM"]) in list(shown[compare.IN_INFERENCE])
    assert landing.alt(before) != landing.alt(after)


def test_a_changed_published_number_changes_the_audit(project: Path) -> None:
    before = audit.arithmetic(project)
    path = project / "data" / published.CSV
    path.write_text(path.read_text().replace(",0.531,", ",0.431,").replace(",0.54,", ",0.64,"))
    after = audit.arithmetic(project)
    assert "0.531" in before[-1] and "0.431" in after[-1] and "0.531" not in after[-1]
    assert before[2] != after[2]


def test_the_audit_says_where_its_prediction_came_true(project: Path) -> None:
    found, given = audit.rows(project), published.confirmatory(project)
    told = audit.fit_sentence(found, given)
    assert "at 1 of 3 contexts" in told and "at 2 of 3, not at 4K" in told and "in part" in told
    exact = [row | {"R_predicted": row["R_published"]} for row in found]
    assert "3 of 3: the tables fit together." in audit.fit_sentence(exact, given)
    wrong = [row | {"R_predicted": 9.0} for row in found]
    assert "do **not** fit" in audit.fit_sentence(wrong, given)


def test_the_audit_shows_the_cost_lines_own_numbers(project: Path) -> None:
    row = audit.rows(project)[0]
    steps = " ".join(audit.arithmetic(project))
    for value in (row["v_steps"], row["c_steps"], row["alpha"], row["R_predicted"]):
        assert text.number(value) in steps
    assert audit.ratios() == {"layers": 24 / 28, "bytes": pytest.approx(988_065_536 / 3_087_428_608)}
    given = published.confirmatory(project)
    launch = " ".join(audit.findings(audit.rows(project), given, project))
    assert "consistent with a **launch-bound** draft" in launch and "2K and 8K" in launch
    assert "a hypothesis" in launch and launches.UNTESTED in launch, "no GPU folder here"
    cheap = [row | {"c_steps": 0.33} for row in audit.rows(project)]
    cheap_told = " ".join(audit.findings(cheap, given, project))
    assert "bound by memory bandwidth" in cheap_told and launches.UNTESTED not in cheap_told


# -- verdicts follow the data


@pytest.mark.parametrize(
    ("ratio", "sd", "overview", "sentence"),
    [(0.6, 0.05, "does not pay at 2K and 4K", "does not pay"),
     (1.6, 0.05, "pays at 2K and 4K", "decoding pays"),
     (1.0, 0.3, "is undecided at 2K and 4K", "the interval contains 1")],
)  # fmt: skip
def test_the_verdict_is_chosen_by_the_data(
    project: Path, ratio: float, sd: float, overview: str, sentence: str
) -> None:
    add(project, "cpu-full", "cpu-full", ratio, sd, contexts=2)
    found = compare.sources(project)
    assert overview in compare.headline(found)[1]
    assert sentence in results.verdicts(found)[1]
    said = compare.agreement(found)
    assert ("repeats the published verdict" in said) == (ratio < 1)
    assert ("comes to the other verdict" in said) == (ratio > 1)
    assert ("undecided at 2K and 4K, where" in said and "nothing here contradicts" in said) == (ratio == 1)


def test_a_quick_look_has_no_verdict_and_says_so(project: Path) -> None:
    add(project, "cpu", "cpu", 1.5)
    found = compare.sources(project)
    assert [source.label for source in found] == ["published", "cpu (this machine, quick look)"]
    assert "no verdict" in compare.headline(found)[1] and "a quick look" in compare.headline(found)[1]
    assert "2 repeats each" in results.verdicts(found)[1]
    (told,) = results.acceptance_sentences(found)
    assert "enough" not in told and "tokens: R_GM over all families is 1.48 to 1.52." in told
    assert leftout.left_out(found) == []
    path = project / "data" / "cpu" / "confirmatory-4096.csv"
    table: Any = pd.read_csv(path)
    table.loc[table["family"] == "continue-code", "others_cpu_share"] = 0.4
    write_table(table, path, "confirmatory")
    (told,) = leftout.left_out(compare.sources(project))
    assert "1 of 12 cells failed a timing check" in told and "run again on an idle machine" in told
    assert set(compare.table(found, compare.VERDICTS)["interval"]) >= {"none"}
    assert compare.agreement(found) == ""
    assert ("Not computable with 2 repeats") in quality.exclusion_sentence(found[1].results)  # type: ignore[arg-type]


def test_a_cell_that_failed_is_named_with_its_check(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=2)
    table = pd.read_csv(folder / "confirmatory-4096.csv")
    table.loc[(table["family"] == "story") & (table["repeat"] == 2), "others_cpu_share"] = 0.4
    write_table(table, folder / "confirmatory-4096.csv", "confirmatory")
    found = compare.sources(project)
    one = found[1].results
    assert one is not None
    row = quality.exclusions(one).iloc[0]
    assert (row["context"], row["family"], row["check"]) == ("4K", "story", "undisturbed")
    assert (row["value"], row["limit"]) == ("40.0\u00a0%", "3.0\u00a0%"), "per cent, as the note"
    assert quality.apart(0.10008, 0.1) == ("10.01\u00a0%", "10.00\u00a0%"), "beyond the limit, and seen to be"
    assert quality.apart(0.1 + 1e-9, 0.1) == quality.apart(0.1, 0.1) == ("10.0\u00a0%", "10.0\u00a0%")
    table.loc[(table["family"] == "story") & (table["repeat"] == 2), "others_cpu_share"] = 0.0303
    write_table(table, folder / "confirmatory-4096.csv", "confirmatory")
    (near,) = quality.exclusions(folders.all_folders(project)[0]).to_dict("records")
    assert (near["value"], near["limit"]) == ("3.03\u00a0%", "3.00\u00a0%")
    (told,) = leftout.left_out(found)
    assert told.endswith("without changing a verdict: 1 of 32 cells in `cpu-full`.")
    assert "31 of 32 cells" in quality.exclusion_sentence(
        one
    ) and "undisturbed (1)" in quality.exclusion_sentence(one)
    assert list(compare.table(found, compare.VERDICTS)["families in inference"]).count("15 of 16") == 1
    monkeypatch.setattr(leftout, "_SEEN", -1.0)
    (moved,) = leftout.left_out(found)
    assert " with them at 4K, " in moved and " without" in moved


def test_an_overview_says_what_pays_and_why_there_is_no_verdict() -> None:
    rows = [
        {"context_tokens": 2048, "verdict": "pays", "n": 16, "n_in_inference": 16},
        {"context_tokens": 4096, "verdict": "no interval", "n": 16, "n_in_inference": 3},
        {"context_tokens": 8192, "verdict": "no interval", "n": 16, "n_in_inference": 0},
    ]
    assert text.verdict_overview(rows) == (
        "pays (decoding alone) at 2K; gets no verdict (3 of 16 families passed the timing checks) at 4K; "
        "gets no verdict (none of 16 families passed the timing checks) at 8K"
    )
    few = {"context_tokens": 2048, "verdict": "no interval", "n": 2, "n_in_inference": 0}
    assert text.verdict_overview([rows[0], few], "") == (
        "pays at 2K; gets no verdict (too few repeats or families) at 2K"
    )


def test_a_reading_of_a_prefill_counts_once_and_the_slowest_is_named(project: Path) -> None:
    path = add(project, "cpu-full", "cpu-full", 0.5, contexts=1) / "confirmatory-2048.csv"
    table: Any = read_table(path, "confirmatory")
    names = list(dict.fromkeys(table["family"]))
    table["prefill_s"] = [1 + 1e-6 * names.index(name) + 2 * (name == names[0]) for name in table["family"]]
    write_table(table, path, "confirmatory")
    one = folders.all_folders(project)[0]
    assert results.prefill_readings(one) == (
        "AR's prefill is 1,000\u00a0ms, the median of 16 readings per context; the slowest took 3.00 times the median."
    )
    assert list(one.families["ar_prefill_s"]) == pytest.approx([1 + 8.5e-6] * 16, abs=1e-9)


def test_every_R_says_of_which_families_it_is(project: Path, shown: list[str]) -> None:
    """One folder and context has several: of the families in inference, of all, and of those of the mechanisms."""
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    found = compare.sources(project)
    for columns in (compare.VERDICTS, compare.TIMES, compare.ACCEPTANCE):
        named = [heading for heading in compare.table(found, columns).columns if heading.startswith("R_GM")]
        assert named and set(named) <= {"R_GM, in inference", "R_GM, all families"}
    results.show_forest(found, project)
    assert "Lines: R_GM of the context's families in inference" in html.unescape(shown[0])
    assert "over 16 families in inference." in results.verdicts(found)[1]
    (told,) = results.prefill_sentences(found)
    assert "moves R_GM of the families in inference" in told
    timeuse.show_predictions(found)
    told = next(part for part in shown if "The cost line at each" in part)
    assert "R_GM of all families; published: as stated, of the families in its inference." in told


@pytest.mark.parametrize(
    ("plain", "prefill", "says"),
    [(0.8, 0.9, "towards 1"), (0.8, 0.7, "away from 1"), (1.03, 0.9, "across 1"), (1.2, 1.1, "towards 1")],
)  # fmt: skip
def test_what_the_prefill_does_to_R(plain: float, prefill: float, says: str) -> None:
    assert results._moved(plain, prefill) == says


def test_the_sensitivity_names_what_changes_a_verdict(project: Path) -> None:
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    one = folders.all_folders(project)[0]
    frame, told = quality.sensitivity(one)
    assert told == "No choice changes a verdict." and "leave one family out" in set(frame["choice"])


def test_no_verdict_is_not_changed_into_another_one(project: Path) -> None:
    """One family passes the checks at 2K: no interval there, though one over all cells."""
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=2)
    table = pd.read_csv(folder / "confirmatory-2048.csv")
    table.loc[(table["family"] != "story") & (table["repeat"] == 2), "others_cpu_share"] = 0.4
    write_table(table, folder / "confirmatory-2048.csv", "confirmatory")
    (one,) = folders.all_folders(project)
    gained = "Where the main choice gives no verdict, others give: all cells at 2K (does not pay)."
    assert quality.sensitivity(one)[1] == f"No choice changes a verdict. {gained}"
    (folder / "confirmatory-4096.csv").unlink()
    (one,) = folders.all_folders(project)
    assert quality.sensitivity(one)[1] == gained
    changed = quality._choices_told(["all cells at 2K (pays)"], [], True)
    assert changed == "Another verdict comes out with: all cells at 2K (pays)."
    assert quality._choices_told([], [], False) == "No choice gives a verdict."


def test_a_shift_that_all_families_share_is_no_chance_of_single_ones(project: Path) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    path = folder / "confirmatory-2048.csv"
    table = pd.read_csv(path)
    late = (table["block"] == "BA") & (table["arm"] == "spec")
    table.loc[late & (table["family"] == "story"), "decode_s"] *= 1.2
    write_table(table, path, "confirmatory")
    assert "in all" not in quality.exclusion_sentence(folders.all_folders(project)[0]), "one family only"
    table.loc[late & (table["family"] != "story"), "decode_s"] *= 1.05
    write_table(table, path, "confirmatory")
    told = quality.exclusion_sentence(folders.all_folders(project)[0])
    assert "SpecDec was slower in block BA than in block AB in all 16 families at 2K, by 4.7" in told
    order = quality.exclusions(folders.all_folders(project)[0]).query("check == 'order'")
    assert f"to {order['value'].item()}:" in told, "of the same median as the check's value in the table"
    assert "one shift between two processes" not in told, "in isolation block a block is several processes"


def test_a_shift_that_goes_with_the_host_says_so() -> None:
    """Families of different lengths: what counts is each run against the family's own median."""
    runs = pd.DataFrame(
        [(family, base, slow) for family, base in (("a", 1.0), ("b", 8.0), ("c", 2.0)) for slow in range(4)],
        columns=["family", "base", "slow"],
    )
    device = runs["base"] * (1 + runs["slow"] / 64)
    for added, says in ((1 + runs["slow"], "rank correlation 1.0"), (4 - runs["slow"], "")):
        seen = runs.assign(device_event_s=device, decode_s=device + runs["base"] * added / 128)
        told = quality._with_host(seen)
        assert says in told and bool(told) is bool(says)
    assert quality._with_host(seen.drop(columns="device_event_s")) == "", "no clock of the device: a CPU"


HARDLY = "A run takes 24.0 to 30.0 ms here (medians by context and arm), so that this part of the check can hardly fail"
PARTLY = "so that others may take 22.2 to 33.3 % of it unseen: what speaks is the spread"
ALL = "so that others may take 33.3 to 100 % of it unseen"  # no run has more than all of its time


@pytest.mark.parametrize(
    ("device", "ar", "spec", "says"),
    [
        ("cuda", 0.03, 0.024, HARDLY),
        ("cuda", 0.06, 0.09, PARTLY),
        ("cuda", 0.06, 0.015, ALL),
        ("cuda", 3.0, 2.0, ""),
        ("cpu", 0.03, 0.024, ""),
    ],
)
def test_runs_set_aside_are_counted_and_short_ones_say_what_ticks_hide(
    project: Path, device: str, ar: float, spec: float, says: str
) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    provenance(folder, "cpu-full", device={"device": device})
    table = pd.read_csv(folder / "confirmatory-2048.csv").assign(set_aside_n=0)
    table["decode_s"] = [ar if arm == "ar" else spec for arm in table["arm"]]
    table.loc[3, "set_aside_n"] = 2
    write_table(table, folder / "confirmatory-2048.csv", "confirmatory")
    told = quality.exclusion_sentence(folders.all_folders(project)[0])
    assert "2 runs that something else slowed (others' CPU time above" in told and says in told
    assert "were set aside and measured again" in told and "keep them." in told
    assert ("A run takes" in told) == bool(says)
    assert ("not counted: ticks" in told) == (device == "cuda"), "on a CPU every tick counts"
    gpu = "or, by later sources, a GPU that throttled or had another process)"
    assert (gpu in told) == ("GPU" in told) == (device == "cuda")
    table.loc[3, "set_aside_n"] = 1
    write_table(table, folder / "confirmatory-2048.csv", "confirmatory")
    told = quality.exclusion_sentence(folders.all_folders(project)[0])
    assert "1 run that " in told and ") was set aside and" in told and "keep it." in told


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_peak_memory_is_the_host_s(project: Path, shown: list[str], device: str) -> None:
    provenance(add(project, "cpu-full", "cpu-full", 0.5, contexts=1), "cpu-full", device={"device": device})
    quality.show_memory(compare.sources(project))
    assert "peak host memory, GiB" in shown[0]
    assert ("GPU memory" in shown[0]) == (device == "cuda")


def test_tables_say_a_verdict_in_words_of_its_own(project: Path, shown: list[str]) -> None:
    """The data keep "does not" and "no interval", which in a cell of its own ask for one word more."""
    results.show_verdicts([compare.from_article(project)], project)
    assert "<td>does not pay</td>" in "".join(shown) and "<td>does not</td>" not in "".join(shown)
    style.table(pd.DataFrame({"verdict": ["no interval"], "interval": ["no interval"]}))
    assert "<td>no verdict</td><td>no interval</td>" in shown[-1]


def test_the_table_of_equal_tokens_names_the_pairs(project: Path, shown: list[str]) -> None:
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    flips.show_equality_table(project)
    assert "2 threads, FP32, SmolLM2-135M-Instruct with a 4-layer draft" in shown[0]
    assert shown[0].count("Qwen2.5-0.5B") == 1, "the article's hardware names its pair already"


def test_how_it_works_says_in_how_many_cells_the_text_stayed(project: Path, shown: list[str]) -> None:
    """Greedy output is unchanged in exact arithmetic; in BF16 it is counted."""
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    table = pd.read_csv(folder / "confirmatory-2048.csv")
    parts = table["family"].isin(["story", "rewrite"]) & table["arm"].eq("spec")
    table.loc[parts, "tokens_sha256"] = "c" * 64
    table.loc[parts, "first_divergence_tokens"] = 7
    write_table(table, folder / "confirmatory-2048.csv", "confirmatory")
    flips.show_equal_in_short(project)
    given = published.confirmatory(project)
    stated = f"{given['identical_families_n'].sum()} of {given['n'].sum()} cells as published (BF16)"
    assert f"{stated} and 14 of 16 cells in `cpu-full` (FP32)." in shown[-1]
    page = " ".join((REPOSITORY / "book" / "how-it-works.md").read_text().split())
    assert (
        "in exact arithmetic greedy output does not change" in page and "flips.show_equal_in_short()" in page
    )
    assert "(numerics.md)" in page.partition("## Which row")[0]


# -- what is missing


def test_nothing_measured_reads_not_measured_here(project: Path, shown: list[str]) -> None:
    landing.show(project)
    found = compare.sources(project)
    results.show_verdicts(found, project)
    for page in (
        results.show_acceptance,
        quality.show_exclusions,
        timeuse.show_stages,
        timeuse.show_roofline,
    ):
        page(found)
    worked.show("reference", project)
    validity.show_aa(project)
    correctness.show_layer("numerical", project)
    told = "\n".join(shown)
    assert told.count("**Not measured here:**") >= 8
    assert "`make book`" in told and "`make runs PROFILE=cpu-full`" in told
    assert "0.531" in told, "the published numbers stand all the same"


def test_a_committed_profile_that_is_missing_fails_with_the_command(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tuple(name for name in folders.read_design(project).profiles if name != "cpu-full")
    monkeypatch.setattr(folders, "PENDING", others)
    with pytest.raises(errors.TableMissing, match="cpu-full") as raised:
        folders.all_folders(project)
    assert "make runs PROFILE=cpu-full" in str(raised.value)
    folder = add(project, "cpu-full", "cpu-full", 0.5)
    assert len(folders.all_folders(project)) == 1
    (folder / "confirmatory-4096.csv").unlink()
    with pytest.raises(errors.TableMissing, match="confirmatory-4096.csv"):
        compare.sources(project)


def test_rows_of_another_design_are_refused(project: Path) -> None:
    folder = add(project, "cpu", "cpu", 1.5)
    provenance(folder, "cpu", design_hash="f" * 16)
    with pytest.raises(errors.MixedDesign):
        compare.sources(project)


# -- which folders join


def test_a_readers_own_folder_joins_by_itself(project: Path) -> None:
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    add(project, "my-laptop", "cpu", 1.2)
    add(project, "cpu-lab", "cpu", 1.2)
    add(project, "smoke", "smoke", 0.3)
    labels = [source.label for source in compare.sources(project)]
    assert labels == ["published", "cpu-full", "my-laptop (this machine, quick look)"]
    everything = [one.label for one in folders.all_folders(project)]
    assert "smoke (this machine, synthetic, quick look)" in everything and "cpu-lab" not in str(everything)
    assert [source.label for source in compare.sources(project, committed_only=True)] == [
        "published",
        "cpu-full",
    ]


def test_acceptance_never_stands_alone(project: Path) -> None:
    add(project, "cpu", "cpu", 1.5)
    frame = compare.table(compare.sources(project), compare.ACCEPTANCE)
    ratios = {"R_GM, all families", "R_GM, in inference"}
    assert {"acceptance", "alpha", "tokens per round", "rounds", "target calls"} | ratios <= set(
        frame.columns
    )


# -- where the time goes


def test_stages_roofline_and_prediction(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.9, contexts=1)
    one = folders.all_folders(project)[0]
    assert (
        "the largest part of the SpecDec time is draft at 2K (60.0\u00a0%, then "
        in timeuse.stage_sentence(one)
    )
    timed = one.runs[one.runs["arm"] == "spec"]["decode_s"].median()
    marked: Any = one.stages
    assert f"takes {text.number(marked['total_s'].iloc[0] / timed)} times" in timeuse.marks_sentence(one)
    assert timeuse.unstaged(one) == ""
    path = folder / "stages-2048.csv"
    fewer: Any = read_table(path, "stages")
    write_table(fewer[fewer["family"] != "dialogue"], path, "stages")
    assert timeuse.unstaged(folders.all_folders(project)[0]).startswith(" Without stages: `dialogue` at 2K;")
    row = timeuse.roofline(one).iloc[0]
    read = 3e8 + 20_000 * (2048 - 32)
    assert row["bytes per step, MB"] == pytest.approx(read / 1e6)
    assert row["achieved, GB/s"] == pytest.approx(read / (one.summary["ar_median_s"][0] / 63) / 1e9)
    assert "nearer to the prediction from" in timeuse.prediction_sentence(one, timeuse.predictions(one))
    row = timeuse.roofline(one)
    for rates, says in (
        ([1e-9], "at the one context"), ([1e-9] * 2, "at both contexts"), ([1e9, 1e-9], "at 1 of 2 contexts"),
    ):  # fmt: skip
        found = pd.concat([row] * len(rates)).assign(**{"achieved, GB/s": rates})
        monkeypatch.setattr(timeuse, "roofline", lambda _, found=found: found)
        assert f"less than half {says}:" in timeuse.roofline_sentence(one)
    monkeypatch.undo()
    guessed = pd.concat([timeuse.predictions(one)] * 2, ignore_index=True)
    assert " at every context." in timeuse.prediction_sentence(one, guessed)
    assert " at 2K." in timeuse.prediction_sentence(one, guessed.head(1))
    provenance(folder, "cpu-full", models={}, device={})
    bare = folders.all_folders(project)[0]
    assert timeuse.roofline(bare).empty and timeuse.predictions(bare).empty


def test_which_machine_it_is_follows_the_measured_ratio(project: Path) -> None:
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    one = folders.all_folders(project)[0]
    made = {"context": "2K", "R if time follows bytes": 0.9, "R if time follows layers": 1.2}
    for value, nearer in ((0.91, "from bytes"), (1.3, "from layers"), (1.04, "tells neither")):
        told = timeuse.prediction_sentence(one, pd.DataFrame([made | {timeuse.MEASURED: value}]))
        assert nearer in told and "the whole R" in told


def test_a_quick_look_is_described_and_not_judged(project: Path, shown: list[str]) -> None:
    judged = ("nearer to", "not a weak one", "says as much", "tells neither")
    for name, profile in (("cpu-full", "cpu-full"), ("here", "cpu")):
        folder = add(project, name, profile, 0.5, contexts=1)
        shown.clear()
        for show in (
            timeuse.show_predictions,
            timeuse.show_stages,
            timeuse.show_roofline,
            timeuse.show_finding,
        ):
            show(
                [
                    source
                    for source in compare.sources(project)
                    if source.label.startswith((name, "published"))
                ]
            )
        told = " ".join(part for part in shown if "<table" not in part)
        assert any(words in told for words in judged) == (name == "cpu-full")
        assert ("4 families per context, 2 repeats" in told) == (name == "here")
        assert "%" in told and "the largest part" in told, "what was measured is said of both"
        shutil.rmtree(folder)


def test_every_answer_of_bytes_or_layers_says_what_it_compares(project: Path) -> None:
    """The whole R and c alone may lean to different sides: two answers must not read as a contradiction."""
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    one = folders.all_folders(project)[0]
    made = {"context": "2K", "R if time follows bytes": 0.9, "R if time follows layers": 1.2}
    other = {"context": "4K", "R if time follows bytes": 0.9, "R if time follows layers": 1.2}
    mixed = pd.DataFrame([made | {timeuse.MEASURED: 0.9}, other | {timeuse.MEASURED: 1.2}])
    assert "the whole R" in timeuse.prediction_sentence(one, mixed)
    for c in (0.3, 0.8, 0.5, 0.55, 0.9, 0.1):
        assert "c alone" in costline.c_follows([c], 0.8, [0.3])
    assert "c follows" in costline.c_follows([0.3], 0.32, [0.3])
    found = audit.rows(project)
    assert "By c alone" in " ".join(audit.findings(found, published.confirmatory(project), project))


def test_one_name_with_two_bandwidths_is_remarked_on(project: Path) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    other = add(project, "here", "cpu", 0.5, contexts=1)
    having = [one for one in folders.all_folders(project)]
    assert timeuse.bandwidth_sentences(having) == []
    provenance(other, "cpu", device={"device": "cpu", "dtype": "fp32", "read_bandwidth_bytes_per_s": 3e10})
    (told,) = timeuse.bandwidth_sentences(folders.all_folders(project))
    assert "20.0\u00a0GB/s in `cpu-full` and 30.0\u00a0GB/s in `here`" in told and folder.is_dir()


# -- the worked round


def seen_round(waiting: bool, accepted: int) -> dict[str, Any]:
    choices = [f"t{i}" if i < accepted else f"x{i}" for i in range(4)] + ["bonus"]
    end = 100 + accepted + 1 - waiting
    return {
        "committed": 100, "pending": [1] * waiting, "pending_text": ["p"] * waiting, "accepted": accepted,
        "proposals": [1, 2, 3, 4], "proposals_text": ["t0", "t1", "t2", "t3"], "choices_text": choices,
        "emitted": [0] * (accepted + 1), "emitted_text": choices[: accepted + 1],
        "start": {"target": 100 - waiting, "draft": 100 - waiting}, "verified": {"target": 104, "draft": 103},
        "end": {"target": end, "draft": end},
    }  # fmt: skip


def test_the_rows_are_aligned_as_the_engine_aligns_them() -> None:
    reference, free = (worked.rows(seen_round(waiting, 2)) for waiting in (False, True))
    assert list(reference["logits"]) == ["saved_next", "rows[0]", "rows[1]", "rows[2]", "rows[3]"]
    assert list(free["logits"]) == ["rows[0]", "rows[1]", "rows[2]", "rows[3]", "rows[4]"]
    frame: Any
    for frame in (reference, free):
        assert list(frame["outcome"]) == ["accepted"] * 2 + ["rejected: replaced"] + ["not used"] * 2
        assert frame["checks"][0].startswith("d1") and frame["checks"][4] == "nothing: the bonus"
    assert worked.rows(seen_round(True, 4))["outcome"].iloc[-1] == "bonus"


def test_the_finding_of_a_round_follows_the_round() -> None:
    assert "trimmed to 102" in worked.finding(seen_round(False, 2), "reference")
    assert "hold every committed token but the last" in worked.finding(seen_round(True, 2), "repair-free")
    assert "All 4 proposals" in worked.finding(seen_round(True, 4), "repair-free")


def test_a_round_with_a_rejection_in_it_is_chosen_and_drawn() -> None:
    rounds = [seen_round(True, a) for a in (2, 0, 4, 3)]
    number, chosen = worked.choose(rounds)
    assert number == 4, "not the first, and neither all nor nothing"
    assert len(drawing.figure(chosen).axes) == 1
    table: Any = worked.identities({"formulations": {"repair-free": rounds}})
    assert table["emitted"][0] == table["accepted + rounds - cut"][0] == 13
    assert table["cache length after every round"][0] == "as stated"
    rounds[1]["end"] = {"target": 104, "draft": 104}
    table = worked.identities({"formulations": {"repair-free": rounds}})
    assert table["cache length after every round"][0] == "NOT as stated"


# -- validity, correctness


def test_a_bias_in_aa_runs_is_said(project: Path) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    for ratio, says in ((1.0, "is 1 within its interval"), (0.8, "is not 1 within its interval")):
        runs: Any = make_runs("cpu-full", ratio, 0.0, 0.004, 1, ("ar", "ar-again"))
        write_table(runs[runs["context_tokens"] == 2048], folder / "aa.csv", "aa")
        one = folders.first_with("aa.csv", project)
        assert one is not None
        plain, planted, cells = validity.aa(one)
        told = validity.aa_sentence(plain, cells, one)
        assert says in told
        beside = "the measurement, of 20\u00a0%; the effects measured there are 50\u00a0% (|R_GM - 1|)"
        assert (beside in told) == (ratio != 1)
        assert "is found at 2K, the only context run." in validity.planted_sentence(planted)
        more = pd.concat([planted, planted.assign(context_tokens=8192)])
        assert validity.planted_sentence(more).endswith("is found at 2K and 8K.")
        told = " ".join(validity.finding_sentences(one, plain, planted, cells))
        assert (
            says in told
            and "0 of 4 A/A cells fail" in told.replace("16", "4")
            and "could not be decided" not in told
        )
    noisy: Any = make_runs("cpu-full", 1.0, 0.0, 0.004, 1, ("ar", "ar-again"))
    noisy.loc[noisy["family"] != "story", "others_cpu_share"] = 0.5
    write_table(noisy[noisy["context_tokens"] == 2048], folder / "aa.csv", "aa")
    one = folders.first_with("aa.csv", project)
    assert one is not None
    told = " ".join(validity.finding_sentences(one, *validity.aa(one)))
    assert "15 of 16 A/A cells fail a timing check: undisturbed (15)" in told
    assert (
        "the checks reject 15 of 16 cells for noise alone (exact 95 % interval 69.8 to 99.8\u00a0%)" in told
    )
    assert "could not be decided at 2K" in told and "found at" not in told, "one family has no interval"


def test_what_the_rule_s_limits_would_cost_is_told(project: Path) -> None:
    folder = add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    add(project, "here", "cpu-full", 0.5, contexts=1)
    rows = [
        {
            "device_kind": "cpu",
            "check": name,
            "cells_n": 8,
            "observed": 0.01,
            "default": 0.05,
            "threshold": limit,
        }
        for name, limit in (("dispersion", 1e-9), ("undisturbed", 0.03))
    ]
    write_table(pd.DataFrame(rows), folder / "thresholds.csv", "thresholds")
    one, here = folders.all_folders(project)
    assert validity.failures(here, {"dispersion": 1.0}).to_numpy().sum() == 0
    told = validity.consequence(one, project)
    assert told.startswith(
        "By the limits that the rule gives for the A/A runs of `cpu-full` (dispersion 0.0\u00a0% and "
    )
    assert ", `here` 0 of 16 cells (16 by the frozen limits; lost: dispersion 16)." in told
    table: Any = here.families.assign(undisturbed_passed=False, undisturbed_value=0.0)
    object.__setattr__(here, "families", table)
    failed: Any = validity.failures(here, {"undisturbed": 1.0})["undisturbed"]
    assert failed.all(), "throttled: no limit moves that"


def test_the_coverage_page_says_when_the_frozen_method_is_not_the_chosen_one() -> None:
    base = {"level": 0.95, "sigma": 0.3, "replications_n": 4000, "resamples_n": 9, "coverage_error": 0.004}
    cases = [("t-log", 16, 0.95, 0.3), ("t-log", 4, 0.95, 0.9), ("bca", 16, 0.92, 0.28), ("bca", 4, 0.8, 0.5)]
    table = pd.DataFrame(
        [base | {"method": m, "families_n": n, "coverage": c, "mean_width": w} for m, n, c, w in cases]
    )
    told = " ".join(validity.coverage_sentences(table, "t-log"))
    assert "which is the frozen one" in told and "by bca" in told and "3.00 times as wide" in told
    assert "but design.toml has bca" in validity.coverage_sentences(table, "bca")[0]


def test_a_failed_correctness_check_is_said(project: Path) -> None:
    folder = add(project, "cpu", "cpu", 1.5)
    row = {"profile": "cpu", "design_hash": DESIGN_HASH, "subject": "story", "model_kind": "llama",
           "formulation": None, "bonus": None, "k": 4, "dtype": "bf16", "check": "margin rule",
           "limit": 0.5}  # fmt: skip
    for value, says in ((0.1, "pass"), (0.7, "Outside the limit")):
        write_table(
            pd.DataFrame([row | {"value": value, "passed": value <= 0.5}]),
            folder / "correctness.csv",
            "correctness",
        )
        one = folders.first_with(correctness.FILE, project)
        assert one is not None
        assert says in correctness.layer_sentence(correctness.layer_table(one, "margin"), "margin", one)
    told = correctness.layer_sentence(correctness.layer_table(one, "margin"), "margin", one)
    assert "1 of 1: 0.700 logits, story, where the limit is 0.500" in told and "there is a bug" in told
    cells = correctness.divergence(one)
    assert set(cells["2K"]) == {"identical"}


# -- the design, the picture, the pages


def test_the_method_page_reads_the_design_file(project: Path) -> None:
    def k() -> str:
        return str(method.configuration(project).set_index("setting").loc["k", "value"])

    assert k() == "4"
    path = project / "design.toml"
    path.write_text(
        path.read_text().replace("k = 4 ", "k = 6 ").replace("dispersion = 0.10", "dispersion = 0.045")
    )
    assert k() == "6"
    assert "4.5\u00a0%" in list(method.checks(project)["CPU limit"])
    full = method.profiles(project).set_index("profile").loc["cpu-full"]
    assert (full["processes"], full["runs"]) == (192, 480)
    assert len(method.prompt_families(REPOSITORY)) == 20


def test_the_method_page_shows_what_a_profile_sets_for_itself(project: Path) -> None:
    path = project / "design.toml"
    path.write_text((REPOSITORY / "design.toml").read_text())
    frame = method.overrides(project).set_index("profile")
    assert "cpu-full" not in frame.index, "it is the frozen design"
    shown = ["mode", "formulation", "bonus", "k", "repeats"]
    assert list(frame.loc["h200-shapes", shown]) == ["compiled", "repair-free", "yes", "1", "as above"]
    assert list(frame.loc["h200-smol", shown]) == ["eager", "as above", "as above", "as above", "3"]
    assert frame.loc["h200-shapes", "alpha"] == "imposed: 0.735 to 0.770"
    assert "k = 1 of `h200-shapes` was" in method.k_sentence(project)
    assert "`h200-shapes-graphs` takes the same" in method.k_sentence(project)
    design = path.read_text()
    start, end = (design.index(f"[profiles.h200-{name}]") for name in ("shapes", "shapes-graphs"))
    ours = design[start:end]
    readers = ours.replace("h200-shapes", "mine").replace("committed = true\n", "")
    path.write_text(f"{design[:start]}{readers}{ours.replace('= 0.77,', '= 0.9,')}{design[end:]}")
    told = method.k_sentence(project)
    assert "k = 1 of `h200-shapes-graphs` was" in told, (
        "a reader's profile and other alphas have another history"
    )
    assert "mine" not in told and "`h200-shapes`" not in told
    path.write_text("\n".join(line for line in design.splitlines() if not line.startswith("k = 1")))
    assert method.k_sentence(project) == "" and method.overrides(project).set_index("profile").loc[
        "h200-shapes", "k"] == "as above"  # fmt: skip


def test_the_readmes_picture_is_that_of_the_committed_data() -> None:
    assert (REPOSITORY / picture.PICTURE).read_bytes() == picture.draw(REPOSITORY), (
        "draw it again: python -m specdec_lib.report.picture"
    )


def test_figures_have_words(project: Path, shown: list[str]) -> None:
    add(project, "cpu-full", "cpu-full", 0.5, contexts=1)
    found = compare.sources(project)
    results.show_forest(found, project)
    figures = [one for one in shown if "study-figure" in one]
    assert len(figures) == 1
    for one in figures:
        assert (
            'alt="R per family in cpu-full' in one
            and "Example CPU, 2 threads, FP32" in one
            and "5 repeats, 16 families" in one
        )


def test_a_figure_of_one_family_says_so(project: Path, shown: list[str]) -> None:
    file = add(project, "cpu-full", "cpu-full", 0.5, contexts=1) / "confirmatory-2048.csv"
    table: Any = pd.read_csv(file)
    write_table(table[table["family"] == "story"], file, "confirmatory")
    results.show_forest(compare.sources(project), project)
    assert "5 repeats, 1 family." in shown[0]


def test_pages_keep_their_logic_in_the_library() -> None:
    for page in (REPOSITORY / "book").glob("*.md"):
        for cell in page.read_text().split("```{code-cell} ipython3\n")[1:]:
            code = cell.split("```")[0]
            lines = [line for line in code.splitlines() if line.strip() and not line.startswith(":")]
            assert len(lines) <= 8, f"{page.name}: a long cell"
            numbers = [
                node.value for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Constant)
            ]
            assert not any(
                isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers
            ), page.name


def test_the_report_needs_no_torch() -> None:
    modules = [path.stem for path in (REPOSITORY / "specdec_lib" / "report").glob("[a-z]*.py")]
    code = "import sys\n" + "".join(f"import specdec_lib.report.{name}\n" for name in modules)
    code += (
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules and 'matplotlib' not "
        "in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda: text.listed(["a"]), "a"), (lambda: text.listed(["a", "b", "c"]), "a, b and c"),
     (lambda: text.listed([]), ""),
     (lambda: text.context_name(8192), "8K"), (lambda: text.context_name(500), "500"),
     (lambda: text.span([0.5, 0.6]), "0.500 to 0.600"), (lambda: text.span([0.5, 0.5001]), "0.500"),
     (lambda: text.span([]), "not measured"), (lambda: text.percent(0.608), "60.8\u00a0%"),
     (lambda: text.percent(None), "not measured"), (lambda: text.families(1), "1 family")],
)  # fmt: skip
def test_words(call: Any, expected: str) -> None:
    assert call() == expected


def test_an_interval_beside_1_shows_on_which_side_it_lies() -> None:
    row = {"R_GM": 1.0003, "low": 1.0001, "high": 1.0006}
    assert text.estimate(row) == "1.0003\u00a0[1.0001,\u00a01.0006]"
    assert (
        text.estimate({"R_GM": 0.9998, "low": 0.9996, "high": 0.99991}) == "0.9998\u00a0[0.9996,\u00a00.9999]"
    )
    assert text.estimate({"R_GM": 1.0, "low": 0.9999, "high": 1.0001}) == "1.00\u00a0[1.000,\u00a01.00]"


def test_an_estimate_without_an_interval_says_what_it_is_over() -> None:
    """A mechanism row has no inference; a confirmatory one with too few families shows R of all of them."""
    bare = {"R_GM": 1.25, "low": float("nan"), "high": float("nan")}
    assert text.estimate(bare) == "1.25"
    few = bare | {"R_GM_all": 0.9, "n": 16, "n_in_inference": 1}
    assert text.estimate(few) == "0.900 (all\u00a0families)"
    assert text.estimate(few | {"n": 1}) == "1.25"
