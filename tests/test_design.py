"""The frozen design: named errors, hashes that change with the right things only, the planned jobs."""

from __future__ import annotations

import codecs
import copy
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.design import Design, Profile, load_design, parse_design
from specdec_lib.errors import InvalidDesign, InvalidSetting, UnknownProfile
from specdec_lib.plan import plan

ROOT = Path(__file__).parent.parent
RAW = tomllib.loads((ROOT / "design.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def design() -> Design:
    return load_design(ROOT / "design.toml")


def changed(path: str, value: Any) -> dict[str, Any]:
    """The file's content with one key set, by dotted path."""
    content = copy.deepcopy(RAW)
    *sections, key = path.split(".")
    place = content
    for section in sections:
        place = place[section]
    place[key] = value
    return content


def hashes(content: dict[str, Any], profile: str = "cpu-full") -> tuple[str, str]:
    design = parse_design(content)
    return design.measurement_hash(profile, "prompts", "pair"), design.analysis_hash()


def test_the_frozen_values(design: Design) -> None:
    frozen = design.measurement
    assert (frozen.new_tokens, frozen.k, frozen.formulation, frozen.bonus) == (64, 4, "reference", False)
    assert (frozen.prefill_chunk, frozen.contexts, frozen.repeats) == (2048, (2048, 4096, 8192), 5)
    assert len(frozen.families) == 16 and len(frozen.development) >= 4


def test_families_are_those_of_the_prompts(design: Design) -> None:
    listed = tomllib.loads((ROOT / "data/prompts/families.toml").read_text(encoding="utf-8"))["family"]
    names = {
        kind: tuple(f["name"] for f in listed if f["set"] == kind) for kind in ("held-out", "development")
    }
    assert design.measurement.families == names["held-out"]
    assert design.measurement.development == names["development"]
    for quick in ("smoke", "cpu"):
        assert design.profile(quick).families == names["held-out"][:4]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("measurement.new_token", 3, ["measurement.new_token", "'new_tokens'", "prefill_chunk"]),
        ("profiles.cpu.famillies", ["x"], ["profiles.cpu.famillies", "'families'", "isolation"]),
        ("analysis.checks.gpu.ordr", 0.1, ["analysis.checks.gpu.ordr", "'order'", "dispersion"]),
        ("analysis.interval.seeds", 1, ["analysis.interval.seeds", "'seed'", "resamples"]),
        ("extra", {}, ["unknown key extra", "measurement, analysis, profiles"]),
        ("measurement.repeats", "5", ["measurement.repeats", "'5'"]),
        ("measurement.k", True, ["measurement.k", "True"]),
        ("measurement.k", 0, ["measurement.k", "greater than or equal to 1"]),
        ("analysis.checks.cpu.order", 5, ["analysis.checks.cpu.order", "less than 1"]),
        ("measurement.development", ["story"], ["never used to tune", "story"]),
        ("measurement.families", ["story", "story"], ["story", "named twice"]),
        ("profiles.cpu.families", ["novel"], ["profiles.cpu", "novel"]),
        ("profiles.cpu.contexts", [64], ["profiles.cpu", "64"]),
        ("profiles.cpu.minutes", {"smoke": 1.0}, ["profiles.cpu", "minutes", "correctness"]),
        (
            "profiles.smoke.phases",
            [*RAW["profiles"]["smoke"]["phases"], "smoke"],
            ["['smoke'] is named twice"],
        ),
        ("profiles.smoke.k", 512, ["profiles.smoke: k = 512 proposals a round, for"]),
        ("measurement.development", ["dev-poem", "dev-poem"], ["['dev-poem'] is named twice"]),
        ("analysis.exclude_on", ["order", "order"], ["['order'] is named twice"]),
        ("profiles", {}, ["there is no profile", "[profiles.<name>]"]),
        (
            "profiles.cpu.mechanisms",
            None,
            ["profiles.cpu.mechanisms.families", "all-accept", "first n families"],
        ),
        ("profiles.cpu.mechanisms.families", {}, ["profiles.cpu.mechanisms.families", "give at least one"]),
        ("profiles.cpu.mechanisms.repeats_of", {"dial": 2}, ["profiles.cpu", "dial", "its phases are"]),
        (
            "profiles.cpu.mechanisms",
            {"families": {2048: 1}, "repeats": 1, "variants_of": {"cost-model": ["k = 99"]}},
            ["profiles.cpu", "k = 99", "repair-free, bonus, k = 4"],
        ),
    ],
)
def test_a_wrong_key_or_value_is_named(path: str, value: Any, says: list[str]) -> None:
    with pytest.raises(InvalidDesign) as caught:
        parse_design(changed(path, value), "design.toml")
    message = str(caught.value)
    assert all(part in message for part in ["design.toml", "Remedy", *says]), message


@pytest.mark.parametrize(
    "name", ["prompts", "models", "../notebooks", "my-own", "cpu-lab", "a b", "h200-engine", "A"]
)
def test_a_profile_is_not_called_like_another_folder(name: str) -> None:
    """`clean` removes data/<profile>: under such a name texts, weights or notebooks would go."""
    content = tomllib.loads((ROOT / "design.toml").read_text())
    content["profiles"][name] = content["profiles"]["cpu"]
    with pytest.raises(InvalidDesign, match="cannot be called"):
        parse_design(content, "design.toml")


def test_an_absurd_number_of_threads_is_refused_and_a_large_machines_is_not() -> None:
    """Up to how many run here is the measuring machine's matter: committed profiles name another one's cores."""
    assert parse_design(changed("profiles.cpu-full.threads", 1024)).profile("cpu-full").threads == 1024
    for value in (1025, -1, True, 2.0):
        with pytest.raises(InvalidDesign, match=r"profiles\.cpu-full\.threads"):
            parse_design(changed("profiles.cpu-full.threads", value))


def test_a_missing_key_is_named() -> None:
    content = copy.deepcopy(RAW)
    del content["analysis"]["margin"]
    with pytest.raises(InvalidDesign, match=r"analysis\.margin is missing(.|\n)*exclude_on"):
        parse_design(content)


def test_a_misspelt_required_key_is_named_as_it_stands_in_the_file() -> None:
    content = copy.deepcopy(RAW)
    content["measurement"]["repeets"] = content["measurement"].pop("repeats")
    with pytest.raises(InvalidDesign, match=r"unknown key measurement\.repeets(.|\n)*did you mean 'repeats'"):
        parse_design(content)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDesign, match="no design file"):
        load_design(tmp_path / "design.toml")
    (tmp_path / "design.toml").write_text("a = [", encoding="utf-8")
    with pytest.raises(InvalidDesign, match="not valid TOML"):
        load_design(tmp_path / "design.toml")


def test_a_byte_that_is_no_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "design.toml"
    for lines in (1, 3, 5000):
        path.write_bytes(b"# \xc3\xa4\n" * (lines - 1) + b'title = "\xe4"\n')
        with pytest.raises(InvalidDesign, match=f"design.toml, line {lines}:") as raised:
            load_design(path)
        assert "Remedy: " in str(raised.value)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path, ending: bytes) -> None:
    """Notepad on Windows puts one first. Lines are counted as without it."""
    path, text = tmp_path / "design.toml", (ROOT / "design.toml").read_bytes().replace(b"\n", ending)
    path.write_bytes(codecs.BOM_UTF8 + text)
    assert load_design(path) == load_design(ROOT / "design.toml")
    path.write_bytes(codecs.BOM_UTF8 + b"a = 1" + ending + b"\xe4 = 2")
    with pytest.raises(InvalidDesign, match=r"design.toml, line 2:"):
        load_design(path)


def test_an_unknown_profile_lists_the_known(design: Design) -> None:
    with pytest.raises(UnknownProfile, match=r"smoke, cpu, cpu-full(.|\n)*did you mean 'cpu-full'"):
        design.profile("cpu-ful")


def test_a_profile_is_resolved_from_the_measurement(design: Design) -> None:
    smoke, full = design.profile("smoke"), design.profile("cpu-full")
    assert (smoke.contexts, smoke.new_tokens, smoke.repeats, smoke.k) == ((512,), 16, 2, 4)
    assert (full.contexts, full.new_tokens, full.repeats) == ((2048, 4096, 8192), 64, 5)
    assert full.families == design.measurement.families and full.committed and not smoke.committed


def test_a_new_profile_is_one_table_entry() -> None:
    entry = RAW["profiles"]["cpu-full"] | {"pair": "qwen2.5-shapes", "device": "cuda", "isolation": "context"}
    jobs = plan(parse_design(changed("profiles.h200-shapes", entry)).profile("h200-shapes"))
    assert len(jobs) == 6 and sum(len(job.runs) for job in jobs) == 480


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("measurement.k", 5),
        ("measurement.bonus", True),
        ("measurement.formulation", "repair-free"),
        ("measurement.prefill_chunk", 1024),
        ("measurement.warmup_repeats", 2),
        ("measurement.families", RAW["measurement"]["families"][::-1]),
        ("profiles.cpu-full.repeats", 7),
        ("profiles.cpu-full.contexts", [2048, 4096, 8192, 16384]),
        ("profiles.cpu-full.threads", 1),
        ("profiles.cpu-full.isolation", "cell"),
        ("profiles.cpu-full.pair", "qwen2.5"),
    ],
)
def test_the_measurement_hash_follows_the_measurement(path: str, value: Any) -> None:
    before, after = hashes(RAW), hashes(changed(path, value))
    assert before[0] != after[0] and before[1] == after[1]


def test_the_measurement_hash_follows_prompts_and_models(design: Design) -> None:
    made = {
        design.measurement_hash("cpu", *digests)
        for digests in (("a", "b"), ("a", "c"), ("c", "b"), ("b", "a"))
    }
    assert len(made) == 4 and all(len(name) == 16 and int(name, 16) >= 0 for name in made)


@given(
    st.text(max_size=30),
    st.floats(0.01, 1e6),
    st.booleans(),
    st.sampled_from(["cpu-full", "cpu", "smoke"]),
    st.lists(st.sampled_from(["graphs", "dial", "relaxed"]), unique=True),
)
def test_prose_and_estimates_change_no_hash(
    title: str, minutes: float, committed: bool, profile: str, more: list[str]
) -> None:
    content = copy.deepcopy(RAW)
    entry = content["profiles"][profile]
    entry |= {
        "title": title,
        "committed": committed,
        "phases": list(dict.fromkeys([*entry["phases"], *more])),
    }
    entry["minutes"] = dict.fromkeys(entry["phases"], minutes)
    content["measurement"]["development"].append("dev-new")
    assert hashes(content, profile) == hashes(RAW, profile)


@given(st.floats(0.001, 0.5), st.sampled_from(["percentile", "bca"]), st.integers(0, 9), st.integers(2, 9))
def test_the_analysis_never_changes_the_measurement_hash(
    limit: float, method: str, seed: int, least: int
) -> None:
    content = changed("analysis.checks.cpu.order", limit)
    content["analysis"]["interval"] |= {"method": method, "seed": seed, "min_families": least}
    before, after = hashes(RAW), hashes(content)
    assert before[0] == after[0] and before[1] != after[1]


def test_the_order_of_keys_in_the_file_changes_no_hash() -> None:
    def reverse(value: Any) -> Any:
        return {k: reverse(value[k]) for k in reversed(value)} if isinstance(value, dict) else value

    assert hashes(reverse(RAW)) == hashes(RAW)


def test_the_whole_design_is_192_jobs_and_480_runs(design: Design) -> None:
    profile = design.profile("cpu-full")
    jobs = plan(profile)
    assert len(jobs) == 192 and sum(len(job.runs) for job in jobs) == 480
    assert [job.order for job in jobs] == list(range(192)) and len({job.name for job in jobs}) == 192
    cells = Counter((job.context, run.family, run.arm) for job in jobs for run in job.runs)
    assert len(cells) == 96 and set(cells.values()) == {5}
    sizes = Counter(len(job.runs) for job in jobs)
    assert sizes == {3: 96, 2: 96}


def test_blocks_are_in_opposite_orders_and_the_odd_repeat_alternates(design: Design) -> None:
    profile = design.profile("cpu-full")
    jobs = plan(profile, 4096)
    assert len(jobs) == 64 and {job.context for job in jobs} == {4096}
    for index, family in enumerate(profile.families):
        runs = [run for job in jobs if job.family == family for run in job.runs]
        shown = "".join("A" if run.arm == "ar" else "B" for run in runs)
        assert shown == ("AAABBBBBAA" if index % 2 == 0 else "AABBBBBAAA")
        for block, first in (("AB", "ar"), ("BA", "spec")):
            inside = [run for run in runs if run.block == block]
            assert [run.position for run in inside] == list(range(len(inside))) and inside[0].arm == first
        for arm in ("ar", "spec"):
            assert sorted(run.repeat for run in runs if run.arm == arm) == [1, 2, 3, 4, 5]


def test_a_quick_profile_runs_a_b_b_a_in_one_process(design: Design) -> None:
    jobs = plan(design.profile("cpu"))
    assert len(jobs) == 12
    for job in jobs:
        assert [(run.arm, run.block, run.repeat, run.position) for run in job.runs] == [
            ("ar", "AB", 1, 0), ("spec", "AB", 1, 1), ("spec", "BA", 2, 2), ("ar", "BA", 2, 3),
        ]  # fmt: skip


@given(st.integers(1, 9), st.sampled_from(["cell", "block", "context"]), st.integers(1, 16))
def test_every_plan_is_balanced(repeats: int, isolation: str, families: int) -> None:
    design = parse_design(RAW)
    update = {"repeats": repeats, "isolation": isolation, "families": design.measurement.families[:families]}
    profile: Profile = design.profile("cpu-full").model_copy(update=update)
    jobs = plan(profile)
    cells = Counter((job.context, run.family, run.arm, run.repeat) for job in jobs for run in job.runs)
    assert len(cells) == 3 * families * 2 * repeats and set(cells.values()) == {1}
    for job in jobs:
        blocks = Counter((run.family, run.arm, run.block) for run in job.runs)
        assert max(blocks.values()) <= (repeats + 1) // 2
    assert len({job.name for job in jobs}) == len(jobs)


def test_an_unknown_context_is_named(design: Design) -> None:
    with pytest.raises(InvalidSetting, match="1024(.|\n)*2048, 4096, 8192"):
        plan(design.profile("cpu"), 1024)
