"""Tables: exact round trips, named errors that say file, column and remedy, and no mixing of designs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec_lib.errors import InvalidSetting, MixedDesign, TableError, TableMissing
from specdec_lib.records import data_dictionary, read_table, validate, write_table
from specdec_lib.schemas import SCHEMAS
from tests.synthetic_runs import DESIGN_HASH, make_runs

ROOT = Path(__file__).parent.parent
RUNS = make_runs("cpu", noise=0.1)

finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            texts,
            finite,
            st.none() | finite,
            st.none() | st.integers(0, 2**62),
            st.booleans(),
            st.none() | st.booleans(),
        ),
        max_size=6,
    )
)
def test_every_value_comes_back_exactly(tmp_path: Path, values: list[tuple[Any, ...]]) -> None:
    rows = [
        {
            "profile": "cpu",
            "design_hash": DESIGN_HASH,
            "subject": text,
            "model_kind": "llama",
            "check": text,
            "formulation": None,
            "bonus": maybe,
            "k": None if whole is None else whole + 1,
            "dtype": "bf16",
            "passed": flag,
            "value": real,
            "limit": gap,
        }
        for text, real, gap, whole, flag, maybe in values
    ]
    table = validate(pd.DataFrame(rows, columns=list(SCHEMAS["correctness"].columns)), "correctness")
    path = write_table(table, tmp_path / "correctness.csv", "correctness")
    back = read_table(path, "correctness")
    pd.testing.assert_frame_equal(back, table, check_exact=True)
    for name in ("value", "limit"):  # bit for bit: assert_frame_equal takes -0.0 for 0.0
        assert back[name].to_numpy().tobytes() == table[name].to_numpy().tobytes()
    before = path.read_bytes()
    assert write_table(back, path, "correctness").read_bytes() == before


def test_runs_come_back_with_their_types(tmp_path: Path) -> None:
    path = write_table(RUNS.sample(frac=1, axis=1, random_state=1), tmp_path / "runs.csv", "confirmatory")
    back = read_table(path, "confirmatory", DESIGN_HASH)
    pd.testing.assert_frame_equal(back, RUNS, check_exact=True)
    assert str(back["first_divergence_tokens"].dtype) == "Int64" and back["natural_end"].dtype == bool


def test_an_empty_table_comes_back(tmp_path: Path) -> None:
    path = write_table(RUNS.iloc[:0], tmp_path / "runs.csv", "confirmatory")
    pd.testing.assert_frame_equal(read_table(path, "confirmatory", DESIGN_HASH), RUNS.iloc[:0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"decode_s": 0.0}, ["decode_s", "row 1", "greater_than(0)"]),
        ({"decode_s": np.inf}, ["decode_s", "finite"]),
        ({"decode_s": np.nan}, ["decode_s", "empty"]),
        ({"arm": "drafty"}, ["arm", "drafty", "spec"]),
        ({"arm": ""}, ["arm", "empty"]),
        ({"family": 3}, ["family", "text"]),
        ({"threads": 1.5}, ["threads", "1.5", "whole"]),
        ({"repeat": 0}, ["repeat", "row 1"]),
        ({"natural_end": "maybe"}, ["natural_end", "true or false"]),
        ({"repeated_ngram_share": 1.01}, ["repeated_ngram_share", "1.01"]),
        ({"accepted_tokens": 101}, ["accepted_tokens <= proposed_tokens"]),
        ({"design_hash": "xyz"}, ["design_hash", "xyz"]),
        ({"decode_ms": 1.0}, ["unknown decode_ms"]),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_written(
    tmp_path: Path, change: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(TableError) as caught:
        write_table(RUNS.assign(**change), tmp_path / "runs.csv", "confirmatory")
    assert all(part in str(caught.value) for part in ["runs.csv", "Expected", "Remedy", *says]), caught.value
    assert list(tmp_path.iterdir()) == []


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TableError, match="missing decode_s"):
        validate(RUNS.drop(columns="decode_s"), "confirmatory")


def test_optional_columns_may_be_there() -> None:
    assert "throttled" in validate(RUNS.assign(throttled=None), "confirmatory")
    assert "throttled" not in RUNS


def damage_cut(text: str) -> str:
    return text[: len(text) // 2]


def damage_field(text: str) -> str:
    return text.rstrip("\n") + ",extra\n"


def damage_value(text: str) -> str:
    return text.replace(",eager,", ",eager,maybe", 1)


def damage_quote(text: str) -> str:
    return text + '"open\n'


def damage_column(text: str) -> str:
    return text.replace("decode_s", "decode_ms", 1)


def damage_twice(text: str) -> str:
    return text.replace("decode_s", "prefill_s", 1)


def damage_all(text: str) -> str:
    return ""


@pytest.mark.parametrize(
    "damage",
    [damage_cut, damage_field, damage_value, damage_quote, damage_column, damage_twice, damage_all],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Any) -> None:
    path = write_table(RUNS, tmp_path / "runs.csv", "confirmatory")
    path.write_text(damage(path.read_text()))
    with pytest.raises(TableError, match=r"runs\.csv(.|\n)*Remedy"):
        read_table(path, "confirmatory")


def test_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(TableError, match="UTF-8"):
        read_table(tmp_path / "runs.csv", "confirmatory")


def test_designs_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    other = RUNS.assign(design_hash=["f" * 16] + [DESIGN_HASH] * (len(RUNS) - 1))
    with pytest.raises(MixedDesign, match=f"{DESIGN_HASH}, ffff"):
        write_table(other, path, "confirmatory")
    write_table(RUNS, path, "confirmatory")
    with pytest.raises(MixedDesign, match=r"runs\.csv(.|\n)*only ffff"):
        read_table(path, "confirmatory", "f" * 16)
    path.write_text(path.read_text().replace(DESIGN_HASH, "f" * 16, 1))  # a hand-edited or pasted row
    with pytest.raises(MixedDesign):
        read_table(path, "confirmatory")


def test_a_missing_table_and_an_unknown_schema_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match=r"runs\.csv(.|\n)*make runs"):
        read_table(tmp_path / "runs.csv", "confirmatory")
    with pytest.raises(InvalidSetting, match="confirmatory"):
        read_table(tmp_path / "runs.csv", "confirmatry")


def test_a_verdict_needs_an_interval() -> None:
    columns = {
        "profile": "cpu", "design_hash": DESIGN_HASH, "analysis_hash": DESIGN_HASH, "context_tokens": 2048,
        "variant": "inference", "n": 4, "R_GM": 0.5, "low": None, "high": None, "verdict": "does not",
    }  # fmt: skip
    with pytest.raises(TableError, match="a verdict needs an interval"):
        validate(pd.DataFrame([columns]), "sensitivity")


def test_the_dictionary_describes_every_column() -> None:
    words = data_dictionary()
    assert len(words) == sum(len(schema.columns) for schema in SCHEMAS.values())
    assert words["meaning"].str.endswith(".").all() and words["meaning"].str.len().min() > 5
    decode = words[(words["table"] == "confirmatory") & (words["column"] == "decode_s")].iloc[0]
    assert (decode["type"], decode["unit"], decode["allowed"], decode["may be empty"]) == (
        "number",
        "s",
        "> 0",
        False,
    )
    arm = words[(words["table"] == "confirmatory") & (words["column"] == "arm")].iloc[0]
    assert arm["allowed"] == "ar, spec"
    assert all(schema.description for schema in SCHEMAS.values())


def test_the_published_tables_are_valid() -> None:
    published = read_table(ROOT / "data/published/confirmatory.csv", "published-confirmatory")
    assert published["R_GM"].tolist() == [0.531, 0.485, 0.522]
    phases = read_table(ROOT / "data/published/phases.csv", "published-phases")
    assert not phases.duplicated(["phase", "context_tokens", "quantity"]).any()
