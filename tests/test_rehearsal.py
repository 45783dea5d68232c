"""The reader's path with own weights, at tiny scale: a local folder, two variables, the page's own commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rehearsal_8gb as rehearsal
from specdec_lib.design import load_design
from specdec_lib.pairs import load_pair, load_tokenizer
from specdec_lib.report import eightgb, folders
from specdec_lib.roofline import weight_bytes

REPOSITORY = Path(__file__).parent.parent
PAGE = (REPOSITORY / "book" / "run-on-8gb.md").read_text(encoding="utf-8")
TINY: dict[str, Any] = {
    "kind": "qwen2", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 128,
    "vocab": 320, "rope_theta": 1e6, "eps": 1e-6, "max_positions": 1024, "tied": True, "qkv_bias": True,
}  # fmt: skip
CUT: dict[str, Any] = {
    "families": 1, "contexts": [512], "repeats": 2, "new_tokens": 16, "isolation": "cell", "device": "cpu",
    "threads": 1, "dtype": "fp32", "phases": ["confirmatory"],
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """target/ and draft/ in Hugging Face layout."""
    folder = tmp_path_factory.mktemp("weights")
    rehearsal.make_checkpoint(folder / "target", TINY, 0)
    rehearsal.make_checkpoint(folder / "draft", TINY | {"layers": 1}, 1)
    return folder


def test_the_folders_are_what_the_hub_would_give(weights: Path) -> None:
    files = {path.name for path in (weights / "target").iterdir()}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"} <= files
    assert len([name for name in files if name.endswith(".safetensors")]) >= 2, "sharded"
    pair = load_pair((weights / "target", weights / "draft"), device="cpu", dtype="fp32")
    assert (pair.target.config.layers, pair.draft.config.layers) == (2, 1) and not pair.synthetic
    tokenizer = load_tokenizer((weights / "target", weights / "draft"))
    text = tokenizer.apply_chat([{"role": "user", "content": "Grüße, π"}])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and max(ids) < TINY["vocab"] and tokenizer.eos_ids == (258,)
    assert tokenizer.encode("<|im_end|>") == [258]


def test_transformers_reads_them_too(weights: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(weights / "draft")
    assert model.config.model_type == "qwen2" and model.config.num_hidden_layers == 1
    assert AutoTokenizer.from_pretrained(weights / "draft").encode("a<|im_end|>")[-1] == 258


def test_the_readers_commands(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """doctor, runs, runs again; the tables are there, nothing is executed twice, no path is kept, the folder joins."""
    root = rehearsal.make_project(tmp_path / "project", CUT)
    for role in rehearsal.ROLES:
        (tmp_path / role).symlink_to(weights / role)
    found = rehearsal.rehearse(tmp_path, CUT)
    assert found["missing"] == [] and found["nothing executed again"] and found["out of memory"] == []
    assert not found["own paths in the results"] and "can run here" in found["doctor"]
    assert str(weights) not in (root / "data" / "qwen-8gb" / "provenance.json").read_text()
    one = next(one for one in folders.joining(root))
    assert one.label == "qwen-8gb (this machine, quick look)" and one.contexts == (512,)
    assert set(one.runs["pair"]) == {"qwen2.5"}


def test_the_cut_down_design_keeps_what_is_published(tmp_path: Path) -> None:
    made = load_design(rehearsal.make_project(tmp_path, rehearsal.CUT) / "design.toml").profile("qwen-8gb")
    real = load_design(REPOSITORY / "design.toml").profile("qwen-8gb")
    for name in (
        "pair",
        "device",
        "isolation",
        "new_tokens",
        "k",
        "formulation",
        "bonus",
        "prefill_chunk",
        "dtype",
        "mode",
    ):
        assert getattr(made, name) == getattr(real, name), name
    assert made.memory_cap_gib == 8.0 and len(made.families) == 1 and made.contexts == (8192,)


def test_shards_are_about_as_large_as_asked() -> None:
    assert rehearsal.shards({"a": 6, "b": 5, "c": 5}, 10) == [["a"], ["b"], ["c"]]
    assert (
        rehearsal.shards({"a": 1, "b": 1}, 10) == [["a", "b"]]
        or len(rehearsal.shards({"a": 1, "b": 1}, 10)) == 2
    )


# -- the page


def test_the_page_computes_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = eightgb.megabytes(REPOSITORY).set_index("model")
    assert frame.loc["target", "weights, MB"] == pytest.approx(3087.4, abs=0.1)
    assert frame.loc["draft", "cache at 8K, MB"] == pytest.approx(8192 * 12_288 / 1e6)
    weights = sum(weight_bytes(shape) for shape in eightgb.shapes().values())
    assert frame.loc["together", "weights, MB"] == pytest.approx(weights / 1e6)
    assert "can run here" in eightgb.doctor_line(7.0, REPOSITORY)
    assert "free GPU memory needed" in eightgb.doctor_line(2.0, REPOSITORY)
    said: list[str] = []
    monkeypatch.setattr(eightgb.text, "say", lambda *lines: said.extend(lines))
    eightgb.show_doctor(REPOSITORY)
    assert len(said) == 2 and max(len(line) for part in said for line in part.splitlines()) <= 80
    assert "".join(said[1].split()).count("".join(eightgb.doctor_line(3.5, REPOSITORY).split())) == 1


def test_the_pages_commands_are_the_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    from specdec_lib.pipeline import __main__ as pipeline

    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", PAGE, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    typed = re.findall(r"specdec_lib\.pipeline (.+)$", PAGE, re.MULTILINE)
    assert {line.split()[0] for line in typed} == {"doctor", "runs", "html"}
    for line in typed:
        pipeline._parser().parse_args(line.split())
    locked = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    version = re.search(r"torch==(\S+)", PAGE)
    assert version and f"\ntorch=={version.group(1)}\n" in locked, "the page names the lock's torch"
    for name in re.findall(r"PROFILE=([\w-]+)|--profile ([\w-]+)", PAGE):
        assert "".join(name) == eightgb.PROFILE == rehearsal.PROFILE
    for role in ("TARGET", "DRAFT"):
        assert f"SPECDEC_QWEN_{role}" in PAGE
    assert json.loads(rehearsal.toml({"a": 1}).replace("{ ", "{").replace(" = ", ":")) == {"a": 1}


def test_the_page_tells_how_the_rehearsal_went() -> None:
    """From its record alone: a fault in the record is a fault on the page."""
    from specdec_lib.report.eightgb import REHEARSAL, rehearsal_sentences

    found = json.loads((Path(__file__).parent.parent / "data" / REHEARSAL).read_text(encoding="utf-8"))
    assert {"seconds", "missing", "nothing executed again", "jobs", "out of memory", "commit"} <= found.keys()
    (well,) = rehearsal_sentences(found)
    assert "nothing ran out of memory" in well and "executed nothing" in well
    faulty = {
        "missing": ["confirmatory-8192.csv"],
        "nothing executed again": False,
        "out of memory": ["a job"],
    }
    (badly,) = rehearsal_sentences(found | faulty)
    assert "confirmatory-8192.csv missing" in badly and "measured again" in badly and "a job ran out" in badly
