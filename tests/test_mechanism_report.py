"""The mechanism chapters' report: known answers on made-up tables, and sentences that flip with the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specdec_lib import errors, guesses
from specdec_lib.records import read_table, validate, write_table
from specdec_lib.report import (
    chain,
    controlplane,
    flips,
    folders,
    formulations,
    graphs,
    mechanisms,
    numerics,
    oracles,
    phases,
    relaxed,
    style,
)
from tests.mechanism_tables import (
    FAMILIES,
    REPOSITORY,
    made_numerics,
    made_quality,
    made_runs,
    make_folder,
    make_project,
    put,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("nothing_committed")

OURS = ("control-plane", "relaxed", "formulations", "numerics")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def only(phase: str, project: Path) -> Any:
    found = mechanisms.having(phase, project)
    assert len(found) == 1
    return found[0]


# -- the shared part


def test_R_GM_of_known_times(project: Path) -> None:
    folder = make_folder(project)
    put(
        folder,
        "all-accept",
        lambda name, number: (0.5 if number % 2 else 2.0) * (1.5 if "bonus" in name else 1),
    )
    frame = mechanisms.by_variant(only("all-accept", project), "all-accept").set_index(["context", "variant"])
    plain, bonus = frame.loc[(2048, "all accepted")], frame.loc[(2048, "all accepted, bonus")]
    assert plain["R_GM"] == pytest.approx(1.0) and bonus["R_GM"] == pytest.approx(1.5)
    assert (plain["R_min"], plain["R_max"], plain["n"], plain["repeats"]) == (0.5, 2.0, 8, 2)
    assert plain["low"] < 1 < plain["high"] and plain["verdict"] == "undecided"
    assert plain["acceptance"] == pytest.approx(41 / 92) and plain["rounds"] == 23
    assert plain["tokens_per_round"] == pytest.approx(64 / 23) and plain["identical_n"] == 8
    few = frame.loc[(4096, "all accepted")]
    assert few["n"] == 2 and pd.isna(few["low"]) and few["verdict"] == "no interval"
    gained = mechanisms.gain(only("all-accept", project), "all-accept", "all accepted, bonus", "all accepted")
    assert list(gained["context"]) == [2048, 4096] and list(gained["gain"]) == pytest.approx([1.5, 1.5])
    assert gained["verdict"][0] == "pays", "the same gain in every family is certain, however R spreads"


def test_a_disturbed_repeat_counts_only_where_nothing_else_is_left(project: Path) -> None:
    """Others took half of a run: it is left out. Where they took half of every repeat, all stay, and it is said."""
    folder = make_folder(project)
    runs: Any = put(folder, "all-accept", lambda *_: 1.0)
    first = runs["family"] == runs["family"].iloc[0]
    plain = runs["variant"] == "all accepted"
    mine = first & plain & (runs["context_tokens"] == 2048)
    planted = runs.copy()
    planted.loc[mine & (runs["repeat"] == 1), ["decode_s", "others_cpu_share"]] = [8.0, 0.5]
    write_table(planted, folder / "all-accept.csv", "mechanism")
    one = only("all-accept", project)
    cells: Any = mechanisms.by_family(one, "all-accept")
    row = cells[(cells["variant"] == "all accepted") & (cells["context_tokens"] == 2048)].iloc[0]
    assert (row["R"], row["R_low"], row["repeats_n"], row["left_out_n"]) == (1.0, 1.0, 1, 1)
    assert not cells["disturbed"].any() and cells["left_out_n"].sum() == 1
    frame = mechanisms.by_variant(one, "all-accept")
    assert "1 disturbed repeat left out" in mechanisms.caption(one, frame)
    assert "rest" not in mechanisms.left_out(frame)

    planted.loc[mine, ["decode_s", "others_cpu_share"]] = [8.0, 0.5]
    write_table(planted, folder / "all-accept.csv", "mechanism")
    one = only("all-accept", project)
    cells = mechanisms.by_family(one, "all-accept")
    row = cells[cells["disturbed"]].iloc[0]
    assert cells["disturbed"].sum() == 1 and (row["R"], row["repeats_n"], row["left_out_n"]) == (0.25, 2, 0)
    caption = mechanisms.caption(one, mechanisms.by_variant(one, "all-accept"))
    assert "no disturbed repeat to leave out; 1 of 30 values rests on disturbed runs alone" in caption

    planted = runs.copy()
    planted.loc[first & (runs["variant"] == "ar") & (runs["repeat"] == 2), "others_cpu_share"] = 0.5
    write_table(planted, folder / "all-accept.csv", "mechanism")
    frame = mechanisms.by_variant(only("all-accept", project), "all-accept")
    assert "2 disturbed repeats left out" in mechanisms.left_out(frame), (
        "AR's, once per context, not per variant"
    )


def test_on_a_gpu_a_throttled_run_is_a_disturbed_one() -> None:
    from specdec_lib.checks import disturbed

    runs = pd.DataFrame(
        {"device": "cuda", "decode_s": [1.0, 1.0, 1.0, 1.0], "others_cpu_share": [0.02, 0.02, 0.02, 0.5],
         "device_event_s": [1.0, 0.9, None, 1.0], "throttled": [False, False, True, None],
         "other_gpu_processes_n": [0, 0, 0, None]}
    )  # fmt: skip
    assert list(disturbed(runs, 0.01)) == [False, True, True, True], "two ticks of 10 ms are not seen"


def test_a_quick_look_draws_no_conclusion(project: Path) -> None:
    put(make_folder(project), "dial", lambda *_: 0.5)
    put(make_folder(project, "cpu", "cpu"), "dial", lambda *_: 0.5)
    full, quick = (
        next(one for one in folders.all_folders(project) if one.name == n) for n in ("cpu-full", "cpu")
    )
    assert mechanisms.conclusions(full, "It pays.", "") == ["It pays."]
    (told,) = mechanisms.conclusions(quick, "It pays.", "It does.")
    assert "1 family at 2K, 2 repeats" in told and "pays" not in told
    assert mechanisms.conclusions(quick, "") == []


def test_random_weights_that_nobody_scripted_join_nothing(project: Path) -> None:
    put(make_folder(project, "a-smoke", "smoke"), "dial", lambda *_: 0.5)
    assert mechanisms.having("dial", project) == []
    put(make_folder(project), "dial", lambda *_: 0.5)
    assert [one.name for one in mechanisms.having("dial", project)] == ["cpu-full"]


def test_a_table_of_another_design_is_refused(project: Path) -> None:
    folder = make_folder(project)
    path = folder / "dial.csv"
    put(folder, "dial", lambda *_: 0.5)
    path.write_text(path.read_text().replace("0123456789abcdef", "fedcba9876543210"))
    with pytest.raises(errors.MixedDesign):
        mechanisms.by_variant(only("dial", project), "dial")


@pytest.mark.parametrize("phase", ["all-accept", "draft-free", "relaxed", "dial", "formulations"])
def test_labels_stand_wherever_numbers_do(project: Path, shown: list[str], phase: str) -> None:
    put(make_folder(project), phase, lambda *_: 0.9)
    mechanisms.show_variants(phase, root=project)
    table, figure, rest = shown
    frame = mechanisms.by_variant(only(phase, project), phase)
    for row in frame.to_dict("records"):
        name = mechanisms.labelled(row["variant"], row["label"]).replace("'", "&#x27;")
        assert name.endswith(f"({row['label']})")
        assert f"<td>{name}</td>" in table and name in figure
    assert "Example CPU, 2 threads, BF16, k = 4. 8 families at 2K and 2 families at 4K, 2 repeats" in figure
    assert 'alt="R_GM of every variant in cpu-full' in figure and "on this machine" in rest


def test_published_numbers_stand_beside_ours(project: Path, shown: list[str]) -> None:
    put(make_folder(project), "all-accept", lambda *_: 0.9)
    one = only("all-accept", project)
    names = {"all accepted": "all-accept", "all accepted, bonus": "all-accept-bonus", "elsewhere": "relaxed"}
    given = phases.published_frame(names, project)
    table: Any = mechanisms.variant_table(mechanisms.by_variant(one, "all-accept"), given)
    table = table.set_index(["context", "variant"])["published R"]
    assert table["2K", "all accepted (synthetic)"] == "0.860"
    assert table["4K", "all accepted, bonus (synthetic)"] == "0.931"
    assert table["2K", "elsewhere"] == "0.714" and ("8K", "elsewhere") not in table.index
    assert table["2K", "draft's text (oracle)"] == "not stated"
    frame = mechanisms.by_variant(one, "all-accept")
    fewer: Any = mechanisms.variant_table(frame[frame["variant"] != "all accepted"], given)
    lacking = fewer[(fewer["variant"] == "all accepted (synthetic)") & (fewer["context"] == "2K")].iloc[0]
    assert lacking["published R"] == "0.860"
    assert set(lacking.drop(["context", "variant", "published R"])) == {"not run"}, (
        "no acceptance of nobody's"
    )
    assert "not run" not in set(fewer[fewer["variant"] == "elsewhere"].iloc[0]), "a line of the article's own"
    mechanisms.show_variants("all-accept", names, project)
    assert "× a published R" in shown[1]


def test_without_data_a_page_says_how_to_measure(project: Path, shown: list[str]) -> None:
    mechanisms.show_variants("all-accept", {"all accepted": "all-accept"}, project)
    assert "0.860" in shown[0], "the published numbers stand anyway"
    assert "make runs PROFILE=cpu-full" in shown[1] and "`make runs PROFILE=cpu`" in shown[1]
    said = mechanisms.missing("relaxed", project)
    assert len(said) == len(set(said)) == 2, "one command is said once, per profile that has the phase"
    put(make_folder(project, "here", "cpu"), "all-accept", lambda *_: 0.9)
    assert "on this machine" not in " ".join(mechanisms.missing("all-accept", project))


@pytest.mark.parametrize("page", OURS)
@pytest.mark.parametrize("data", ["none", "tables"])
def test_the_pages_run(
    project: Path, shown: list[str], page: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ROOT", str(project))
    if data == "tables":
        folder = make_folder(project)
        if page == "numerics":
            table = made_numerics({"qkv": 0.1, "head": 0.2}, 1, 0.3, 5)
            write_table(table, folder / "numerics.csv", "numerics")
        else:
            put(folder, page, lambda *_: 0.9)
        write_table(made_quality({"delta 4": -2.0}), folder / "relaxed-quality.csv", "quality")
    names: dict[str, Any] = {}
    for cell in (REPOSITORY / "book" / f"{page}.md").read_text().split("```{code-cell} ipython3\n")[1:]:
        exec("\n".join(line for line in cell.split("```")[0].splitlines() if line[:1] != ":"), names)
    assert any("study-figure" in one for one in shown) is (data == "tables")
    assert any("make runs PROFILE=" in one for one in shown)


def test_captions_name_the_pair(project: Path, shown: list[str]) -> None:
    folder = make_folder(project, device="cuda")
    write_table(made_numerics({"qkv": 0.1}), folder / "numerics.csv", "numerics")
    write_table(made_quality({}), folder / "relaxed-quality.csv", "quality")
    for phase in ("control-plane", "formulations", "relaxed"):
        put(folder, phase, lambda *_: 0.9)
    for show in (
        controlplane.show_counts, controlplane.show_latency, formulations.show_gains, relaxed.show_price,
    ):  # fmt: skip
        shown.clear()
        show(project)
        told = [part for part in shown if "Example, BF16" in part]
        assert told and all(part.count("Pair smol.") == 1 for part in told), show
    shown.clear()
    numerics.show_groups(project)
    assert "Example, BF16, eager, pair smol. 2 cells" in shown[0]


def test_captions_of_graphs_name_the_modes_of_their_rows(
    project: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows were measured inside an eager profile; most of them are of captured graphs."""
    name = "h200-shapes-eager"
    make_folder(project, name, name, "cuda")
    (one,) = folders.all_folders(project)
    table = read_table(REPOSITORY / "data" / name / graphs.FILE, graphs.PHASE)
    monkeypatch.setattr(graphs, "measured", lambda root: [(one, table)])
    start, end = f"{one.label}: Example, BF16, 8 GiB cap, ", ", pair qwen2.5-shapes."
    for show, modes in (
        (graphs.show_local, ["modes eager, graphs and compiled"]),
        (graphs.show_pools, ["mode graphs"] * 2),
        (graphs.show_independent, ["modes graphs and compiled"] * 2),
    ):
        shown.clear()
        show(project)
        for told, part in zip(modes, shown, strict=True):
            assert f"{start}{told}{end}" in part, show


# -- control plane


def test_the_expected_traffic_is_what_the_engine_counted() -> None:
    """Counts of a real run of the random pair: 15 rounds, 54 proposals, 1 accepted."""
    naive = controlplane.expected_traffic("naive", 54, 1, 15)
    assert naive == {"host_reads_n": 85, "host_copies_n": 69, "host_bytes": 2336}
    device = controlplane.expected_traffic("device", 54, 1, 15)
    assert device == {"host_reads_n": 15, "host_copies_n": 0, "host_bytes": 672}


def test_the_control_plane_sentences_follow_the_counts(project: Path) -> None:
    put(make_folder(project), "control-plane", lambda *_: 0.5)
    one = only("control-plane", project)
    runs: Any = one.table("control-plane.csv", "mechanism")
    frame = mechanisms.by_variant(one, "control-plane")
    told = controlplane.counts_sentence(one, controlplane.traffic(runs), frame)
    assert "all 40 runs counted exactly" in told and "within the limit" in told
    runs.loc[runs["variant"] == "device", "host_reads_n"] += 1
    assert "**only 20 of 40 runs**" in controlplane.counts_sentence(one, controlplane.traffic(runs), frame)
    frame.loc[frame["variant"] == "device", "reads_per_round"] = 1.1
    assert "**outside** the limit" in controlplane.counts_sentence(one, controlplane.traffic(runs), frame)
    table = controlplane.counts_table([one], project).set_index(["source", "variant"])
    assert table.loc[("published", "naive"), "reads per round"] == "8"
    assert table.loc[("published", "naive"), "token copies per round"] == "not stated"
    assert set(table.loc[("cpu-full", "device (real)"), "token copies per round"]) == {"0"}


@pytest.mark.parametrize(
    ("device", "gain", "says"),
    [("cpu", 1.25, "only its counts are judged, not its time (which changes by -20.0\u00a0%)"),
     ("cuda", 1.25, "faster at 2K by 20.0\u00a0%. The prediction, a gain on a GPU, holds"),
     ("cuda", 1.0, "no difference that the interval at 2K shows. The prediction, a gain on a GPU, **does not hold**"),
     ("cuda", 0.8, "slower at 2K by 25.0\u00a0%. The prediction, a gain on a GPU, **does not hold**")],
)  # fmt: skip
def test_the_latency_sentence_flips(project: Path, device: str, gain: float, says: str) -> None:
    wobble = (0.99, 1.01)
    put(
        make_folder(project, device=device), "control-plane",
        lambda name, number: 0.5 * (gain * wobble[number % 2] if name == "device" else 1),
    )  # fmt: skip
    one = only("control-plane", project)
    saved = controlplane.latency(one)
    assert saved["change"][0] == pytest.approx(1 / gain - 1, abs=1e-4)
    assert saved["change_low"][0] < saved["change"][0] < saved["change_high"][0]
    told = controlplane.latency_sentence(one, saved, project)
    assert says in told and ("-4.5\u00a0% to -3.8\u00a0%" in told) is (device == "cuda")


@pytest.mark.parametrize(
    ("gain", "repeats", "says"),
    [(1.25, 0.0, "changes the time by -20.0\u00a0%, as predicted; there are too few families"),
     (0.8, 0.0, "changes the time by 25.0\u00a0%, **not as predicted**"),
     # R over the repeats lies 15 % apart in either variant, so their ratio may by 32 %
     (1.25, 0.15, "by -20.0\u00a0%, which cannot be told from the spread of runs and families (32.4\u00a0% at 2K")],
)  # fmt: skip
def test_without_an_interval_a_change_must_exceed_its_spread(
    project: Path, gain: float, repeats: float, says: str
) -> None:
    table = put(
        make_folder(project, device="cuda"),
        "control-plane",
        lambda name, _: gain if name == "device" else 1.0,
    )
    few: Any = table[table["family"].isin(FAMILIES[:2])]
    late = few["repeat"].eq(2) & few["variant"].ne("ar")
    few.loc[late, "decode_s"] *= (2 + repeats) / (2 - repeats)  # R over the repeats lies that far apart
    write_table(few, project / "data" / "cpu-full" / "control-plane.csv", "mechanism")
    one = only("control-plane", project)
    rows = mechanisms.gain(one, "control-plane", "device", "naive").to_dict("records")
    width = repeats / (1 - (repeats / 2) ** 2)
    assert [row["spread"] for row in rows] == pytest.approx([(1 + width) ** 2 - 1] * 2)
    assert {mechanisms.told_apart(row) for row in rows} == {"cannot" not in says}
    assert says in controlplane.latency_sentence(one, controlplane.latency(one), project)
    told = chain.control_plane(one)
    assert ("cannot be told from 1" in told) is (repeats > 0) and ("multiplies the speed" in told) is (
        repeats == 0
    )
    assert f"{style.number(gain)} at 2K (2 families, spread " in told


def test_an_interval_that_leaves_out_1_tells_a_factor() -> None:
    row = {"gain": 1.1, "low": 1.05, "high": 1.2, "spread": 0.5, "n": 8, "context": 2048}
    assert mechanisms.told_apart(row) and not mechanisms.told_apart(row | {"low": 0.9})
    assert mechanisms.gain_told(row) == "1.10 at 2K (8 families, interval 1.05\u00a0to\u00a01.20)"
    told = chain.factor_told(
        pd.DataFrame([row, row | {"low": 0.9, "context": 4096}]), "it multiplies the speed by"
    )
    assert told.startswith("it multiplies the speed by 1.10 at 2K") and "; the factor 1.10 at 4K" in told


# -- formulations


def test_gains_follow_the_times(project: Path) -> None:
    worth = {"reference": 1.0, "reference, bonus": 0.9, "repair-free": 1.2, "repair-free, bonus": 1.5}
    put(make_folder(project), "formulations", lambda name, _: 0.5 * worth[name])
    one = only("formulations", project)
    frame = formulations.gains(one)
    measured = frame[frame["context"] == 2048].set_index("change")["gain"]
    assert measured["bonus token, reference"] == pytest.approx(0.9)
    assert measured["no repair, without bonus"] == pytest.approx(1.2) and measured["both"] == pytest.approx(
        1.5
    )
    assert frame["predicted"].isna().all(), "no fit, no prediction"
    assert set(formulations.gains_table(frame)["predicted"]) == {"no fit"}
    told = formulations.gains_sentence(one, frame)
    assert "bonus token, reference: costs at 2K" in told and "no repair, with bonus: helps at 2K" in told
    assert "**not one per round**" in formulations.calls_sentence(one), "39 calls in 23 rounds"


# -- relaxed


def test_the_relaxed_sentences_flip(project: Path) -> None:
    folder = make_folder(project)
    write_table(made_quality({}), folder / "relaxed-quality.csv", "quality")
    put(folder, "relaxed", lambda name, _: 0.8 + 0.1 * float(name.split()[1]))
    one = only("relaxed", project)
    frame = relaxed.tradeoff(one)
    told = relaxed.gain_sentence(one, frame)
    assert (
        "delta 4 (not exact) is the first above 1" in told and "from delta 0 (not exact: ties pass)" in told
    )
    for low, why in ((0.9, "the interval contains 1"), (None, "too few families for an interval")):
        weak = frame[frame["context"] == 2048].assign(
            low=[low] * 4 + [1.1], R_GM=[0.8, 0.9, 0.9, 1.05, 1.2], high=1.5
        )
        told = relaxed.gain_sentence(one, weak)
        assert (
            "delta 2 (not exact) is the first with a mean above 1, 1.05" in told
            and f": undecided, {why};" in told
        )
        assert "delta 4 (not exact) is the first with its interval above 1, 1.20" in told
    price = relaxed.price_sentence(frame)
    assert (
        "With delta 0 every output is AR's" in price
        and "no less probable" in price
        and "form is lost" not in price
    )
    assert relaxed.prediction_sentence(frame) == "", "nothing to predict from"
    assert "real" not in " ".join(relaxed.price_table(frame)["variant"]), "no delta is the greedy rule"
    assert set(relaxed.price_table(frame.assign(format_n=0))["form kept (AR)"]) == {"–"}
    assert relaxed.greedy(one) is None
    put(folder, "formulations", lambda *_: 0.8)
    assert relaxed.greedy(one) == (0, 10) and "none of 10 outputs" in relaxed.price_sentence(frame, (0, 10))
    put(folder, "formulations", lambda *_: 0.8, tokens_sha256="b" * 64)
    one = only("relaxed", project)  # opened again: what is read of an opened folder is read once
    assert relaxed.greedy(one) == (10, 10)
    assert "10 of 10 outputs differ from the greedy rule's" in relaxed.price_sentence(frame, (10, 10))

    put(folder, "relaxed", lambda *_: 0.8, first_divergence_tokens=5)
    write_table(made_quality({"delta 4": -1.5}, kept=False), folder / "relaxed-quality.csv", "quality")
    frame = relaxed.tradeoff(only("relaxed", project))
    assert "no delta brings R_GM above 1" in relaxed.gain_sentence(one, frame)
    price = relaxed.price_sentence(frame)
    assert "With delta 0, none of 10 outputs are AR's." in price and "less probable by 0.500 nats" in price
    assert "The asked form is lost in 5 of 5 answers" in price
    top = frame[(frame["setting"] == 4) & (frame["context"] == 2048)].to_dict("records")[0]
    found = [top[name] for name in ("log_probability", "format_n", "format_kept", "format_kept_ar")]
    assert found == [-0.5, 4, 0, 4]


def test_relaxed_acceptance_is_predicted_from_the_judged_proposals(project: Path) -> None:
    folder = make_folder(project)
    put(folder, "relaxed", lambda *_: 0.8)
    write_table(made_quality({}), folder / "relaxed-quality.csv", "quality")
    gaps = [(0.0, True, True), (0.0, True, True), (0.75, False, True), (3.0, False, False)]
    rows = [
        {"profile": "cpu-full", "design_hash": "0123456789abcdef", "family": "f", "context_tokens": 2048, "round_n": 0,
         "block_position": i + 1, "position_tokens": i, "token_id": 1, "rank": 1, "probability": 0.1, "gap_logits": gap,
         "accepted": accepted, "reached": reached}
        for i, (gap, accepted, reached) in enumerate(gaps)
    ]  # fmt: skip
    proposals = validate(pd.DataFrame(rows), "proposals")
    alphas: Any = guesses.relaxed_alphas(proposals).set_index("delta")["alpha"]
    assert alphas[0.0] == alphas[0.5] == pytest.approx(2 / 3) and alphas[1.0] == alphas[4.0] == 1.0
    write_table(proposals, folder / "acceptance.csv", "proposals")
    frame = relaxed.tradeoff(only("relaxed", project))
    known = frame[frame["context"] == 2048].set_index("setting")["acceptance_predicted"]
    assert known[1.0] == 1.0 and known[0.0] < 0.5 and frame["R_predicted"].isna().all()
    assert "delta 1 (not exact)" in relaxed.prediction_sentence(frame)


# -- numerics


def test_the_first_operation_and_the_prediction(project: Path) -> None:
    table = made_numerics({"qkv": 0.1, "head": 0.2})
    assert "4 of 4 blocks differ" in numerics.first_sentence(table, "bf16")
    assert "first operation to differ is qkv (4), in layer 0" in numerics.first_sentence(table, "bf16")
    assert "as predicted, only sums over products" in numerics.alone_sentence(table, "bf16")
    table = made_numerics({"norm": 0.1, "qkv": 0.1})
    assert "is norm (4)" in numerics.first_sentence(table, "bf16")
    assert "**against the prediction also norm**" in numerics.alone_sentence(table, "bf16")
    table = made_numerics({})
    assert "none of 4 blocks differs" in numerics.first_sentence(table, "bf16")
    assert "no operation differs" in numerics.alone_sentence(table, "bf16")
    shares = numerics.operations_table(made_numerics({"o": 0.1})).set_index("operation")
    assert shares.loc["o", "differs alone, blocks"] == "4 of 4" and shares.loc["qkv", "largest alone"] == "0"


@pytest.mark.parametrize(
    ("count", "margin", "says"),
    [(0, None, "no argmax of 14 flips"), (1, 0.4, "near-ties only"), (1, 0.6, "**not only near-ties")],
)
def test_flips_against_the_frozen_margin(project: Path, count: int, margin: float | None, says: str) -> None:
    table = made_numerics({"head": 0.2}, count, margin)
    write_table(table, make_folder(project) / "numerics.csv", "numerics")
    one = only("numerics", project)
    told = flips.flips_sentence(one, table, "bf16")
    assert says in told and "move by up to 0.400" in told
    assert not count or "the argmax flips in 4 of 14 rows, in at least 2 of 10 positions" in told
    assert list(flips.flips_table(one, table)["argmax flips"]) == [2 * count] * 2


def test_groups_and_repetition() -> None:
    assert numerics.groups(made_numerics({}, group=1)) == [[1, 2, 5]]
    assert numerics.groups(made_numerics({}, group=5)) == [[1, 2], [5]]
    assert "2 groups" in numerics.groups_sentence(made_numerics({}, group=5))
    mixed: Any = made_numerics({}, group=5)
    mixed.loc[(mixed["family"] == mixed["family"].iloc[0]) & (mixed["width"] == 5), "group_width"] = 1
    assert numerics.groups(mixed) is None and "differs between the cells" in numerics.groups_sentence(mixed)
    assert "not chance" in numerics.determinism_sentence(made_numerics({}))
    assert "not deterministic" in numerics.determinism_sentence(made_numerics({}, repeats=False))


# -- guesses before a run


def test_guesses_of_the_two_machines() -> None:
    models = {
        "target": {"step_bytes": 200.0, "kv_bytes_per_token": 1.0, "layers": 10},
        "draft": {"step_bytes": 50.0, "kv_bytes_per_token": 0.5, "layers": 2},
    }
    assert guesses.draft_costs(models, 100) == {"bytes": 100 / 300, "layers": 0.2}
    checked = pd.DataFrame(
        {"R": [1.0, 1.0], "R if time follows bytes": [1.0, 1.1], "R if time follows layers": [2.0, 2.0]}
    )
    assert guesses.nearer(checked) == "the guess from the draft's bytes is the nearer one"
    checked["R if time follows layers"] = checked["R if time follows bytes"]
    assert "equally" in guesses.nearer(checked)
    cells: Any = made_runs("draft-free", lambda *_: 2.0)
    from specdec_lib.ratios import ratios

    found = ratios(cells)
    guessed = found[["context_tokens", "family", "variant", "rounds_n"]].assign(label="oracle")
    guessed.loc[0, "rounds_n"] = 99
    joined = guesses.compared(guessed, found)
    assert list(joined["same_rounds"]) == [False] + [True] * (len(found) - 1)


def test_a_text_that_this_engine_does_not_write_is_said() -> None:
    cells = pd.DataFrame(
        {
            "context_tokens": [2048, 2048, 8192],
            "family": ["story", "dialogue", "story"],
            "variant": [oracles.PLAIN, oracles.PLAIN, oracles.PLAIN],
            "first_divergence_tokens": [3.0, None, None],
        }
    )
    (told,) = oracles.other_text_sentences(cells, (oracles.PLAIN,))
    assert "In 1 cell of 3 (story at 2K)" in told
    assert oracles.other_text_sentences(cells.assign(first_divergence_tokens=None), (oracles.PLAIN,)) == []
    assert oracles.other_text_sentences(cells, ("another",)) == []


@pytest.mark.parametrize(
    ("gains", "says"), [((1.1, 1.2), "makes generation"), ((0.9, 1.1), "not in one direction")]
)
def test_a_bonus_without_a_direction_is_not_called_faster(gains: tuple[float, float], says: str) -> None:
    rows = [
        {"context_tokens": context, "family": "story", "variant": name, "R": R, "equal_share": 1.0}
        for context, gain in zip((2048, 8192), gains, strict=True)
        for name, R in ((oracles.PLAIN, 1.0), (oracles.BONUS, gain), (oracles.TEXT, 0.7))
    ]
    bonus, own = oracles.gain_sentences(pd.DataFrame(rows))
    assert says in bonus and ("% faster" in bonus) == (says == "makes generation")
    assert "so few cells do not tell the costs apart" in own
