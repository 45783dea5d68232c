"""Prompt families: exact lengths, sources and licences, and texts that neither repeat nor leak."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import shutil
import sysconfig
from pathlib import Path

import pytest

from specdec_lib import prompts
from specdec_lib.errors import (
    ContextTooSmall,
    InvalidSetting,
    PromptTableInvalid,
    PromptTextDamaged,
    PromptTooShort,
    TokenizerUnsuited,
    UnknownFamily,
)
from specdec_lib.files import sha256_file, sha256_text
from specdec_lib.formats import FORMATS, has_format, is_json_start, is_numbered_list

ROOT = prompts.PROMPTS_FOLDER
ALL = prompts.load_families()
SMOL = ROOT.parent / "models" / "smollm2-135m-instruct"


class ByteTokenizer:
    """One id per byte of UTF-8, with a trivial chat template."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def apply_chat(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        turns = "".join(f"<{message['role']}>{message['content']}</>" for message in messages)
        return turns + ("<assistant>" if add_generation_prompt else "")


class SmolTokenizer:
    """The target's own vocabulary and its chat format, from the fetched weights' folder."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.known: dict[str, list[int]] = {}
        self.inner = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        if text not in self.known:  # the same long text three times over
            self.known[text] = self.inner.encode(text, add_special_tokens=False).ids
        return self.known[text]

    def decode(self, ids: list[int]) -> str:
        return self.inner.decode(ids, skip_special_tokens=False)

    def apply_chat(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        turns = "".join(
            f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages
        )
        return turns + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def words(text: str) -> list[str]:
    """Runs of letters, single digits and runs of one punctuation mark, in lower case.

    A run of 50 of the target's tokens is 16 to 50 of these in the texts here, and less than 20 only in a few
    tables of signs; so windows of 20 find a shared run of 50 tokens.
    """
    return [match[0] for match in re.finditer(r"[^\W\d_]+|\d|([^\w\s]|_)\1*", text.lower())]


def windows(text: str, size: int) -> list[int]:
    """A rolling hash of each run of ``size`` words, good for one process."""
    modulus, base = (1 << 61) - 1, 1_000_003
    codes = [hash(word) % modulus for word in words(text)]
    top, value, found = pow(base, size, modulus), 0, []
    for position, code in enumerate(codes):
        value = value * base + code
        if position >= size:
            value -= top * codes[position - size]
        value %= modulus
        if position >= size - 1:
            found.append(value)
    return found


def texts() -> dict[str, str]:
    return {family.name: prompts.family_text(family) for family in ALL}


def copy_prompts(folder: Path, family: str) -> Path:
    """The two tables and one family's text in a folder of their own."""
    for name in ("families.toml", "sources.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / family, folder / family)
    return folder


# --- length ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_every_prompt_has_the_exact_length_and_decodes_to_text(family: prompts.Family) -> None:
    tokenizer = ByteTokenizer()
    for context, new_tokens in ((512, 16), (2048, 64), (4096, 64), (8192, 64)):
        ids = prompts.build_prompt(family, context, tokenizer, new_tokens)
        text = tokenizer.decode(ids)
        assert len(ids) == context - new_tokens
        assert tokenizer.encode(text) == ids  # no character is cut in half
        assert family.instruction in text and text.endswith("<assistant>")


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_exact_length_and_slack_with_the_target_s_tokenizer(family: prompts.Family) -> None:
    if not (SMOL / "tokenizer.json").is_file():
        pytest.skip("SmolLM2's tokenizer is not on disk (data/models/smollm2-135m-instruct)")
    tokenizer = SmolTokenizer(SMOL)
    for context in (2048, 4096, 8192):
        ids = prompts.build_prompt(family, context, tokenizer)
        assert len(ids) == context - 64
        assert "\ufffd" not in tokenizer.decode(ids)
    assert len(tokenizer.encode(prompts.family_text(family))) > 1.15 * 8128


def test_every_text_has_slack_for_a_denser_tokenizer() -> None:
    for name, text in texts().items():
        # No tokenizer in use needs fewer tokens than there are such words.
        assert len(words(text)) > 1.05 * 8128, name


def test_a_character_cut_in_half_is_replaced_by_newlines() -> None:
    tokenizer = ByteTokenizer()
    family = prompts.get_family("translate")
    position = prompts.family_text(family).encode().index("é".encode())
    before, after = prompts._around(family, tokenizer)
    context = len(before) + len(after) + position + 1 + 64
    ids = prompts.build_prompt(family, context, tokenizer)
    assert len(ids) == context - 64
    assert ids[: len(ids) - len(after)][-1] == ord("\n")


def test_a_prompt_is_deterministic_and_the_longer_one_holds_the_shorter_document() -> None:
    tokenizer = ByteTokenizer()
    first = prompts.build_prompt("story", 2048, tokenizer)
    assert first == prompts.build_prompt("story", 2048, tokenizer)
    longer = prompts.build_prompt("story", 4096, tokenizer)
    assert longer[:1800] == first[:1800]


# --- errors ---------------------------------------------------------------------------------------


def test_a_context_without_room_and_a_text_too_short_are_named() -> None:
    with pytest.raises(ContextTooSmall, match="at least"):
        prompts.build_prompt("story", 200, ByteTokenizer())
    with pytest.raises(PromptTooShort, match="tokens"):
        prompts.build_prompt("story", 100_000, ByteTokenizer())
    with pytest.raises(UnknownFamily, match="summarise-proceedings"):
        prompts.build_prompt("summarize", 2048, ByteTokenizer())


def test_a_template_that_drops_or_doubles_the_turn_is_named() -> None:
    class Doubling(ByteTokenizer):
        def apply_chat(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
            return super().apply_chat(messages, add_generation_prompt) * 2

    with pytest.raises(TokenizerUnsuited):
        prompts.build_prompt("story", 2048, Doubling())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('place = "after"', 'palce = "after"', "palce"),
        ('place = "after"', 'place = "beside"', "beside"),
        ('set = "held-out"', 'set = "heldout"', "heldout"),
        ('name = "question-document"', 'name = "summarise-proceedings"', "twice"),
        ("[[family]]", "extra = 1\n[[family]]", "extra"),
        ('files = ["summarise-proceedings/text.txt"]', "files = []", "files"),
        ('checkable = "json"', 'checkable = "jsn"', "jsn"),
        ("[[family]]", "[[family", "not TOML"),
    ],
)
def test_a_misspelt_family_table_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    table = (ROOT / "families.toml").read_text(encoding="utf-8")
    assert old in table
    (tmp_path / "families.toml").write_text(table.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PromptTableInvalid, match=message):
        prompts.load_families(tmp_path)


def test_a_changed_or_unlisted_text_is_named(tmp_path: Path) -> None:
    root = copy_prompts(tmp_path, "story")
    prompts.build_prompt("story", 2048, ByteTokenizer(), root=root)
    with (root / "story" / "text.txt").open("a", encoding="utf-8") as file:
        file.write("one more line\n")
    with pytest.raises(PromptTextDamaged, match="changed"):
        prompts.build_prompt("story", 2048, ByteTokenizer(), root=root)
    (root / "sources.toml").write_text("[[source]]\nfile = 'a'\n", encoding="utf-8")
    with pytest.raises(PromptTableInvalid, match="missing keys"):
        prompts.load_sources(root)


def test_the_digest_follows_texts_and_instructions_but_not_titles(tmp_path: Path) -> None:
    root = tmp_path / "prompts"
    shutil.copytree(ROOT, root)
    digest = prompts.prompts_digest(root)
    assert digest == prompts.prompts_digest()
    table = (root / "families.toml").read_text(encoding="utf-8")
    (root / "families.toml").write_text(
        table.replace('title = "Story"', 'title = "A story"'), encoding="utf-8"
    )
    assert prompts.prompts_digest(root) == digest
    changed = table.replace("Write a long essay about", "Write a short essay about")
    (root / "families.toml").write_text(changed, encoding="utf-8")
    assert prompts.prompts_digest(root) != digest


# --- the texts ------------------------------------------------------------------------------------


def test_sets_and_first_four() -> None:
    held_out, development = prompts.FAMILIES, prompts.DEVELOPMENT
    assert {family.set for family in held_out} == {"held-out"} and len(held_out) == 16
    assert len(development) >= 4 and held_out + development == ALL
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", family.name) for family in ALL)
    assert not {file for family in held_out for file in family.files} & {
        file for family in development for file in family.files
    }


def test_every_file_has_source_licence_and_digest_and_none_is_left_over() -> None:
    sources = prompts.load_sources()
    used = [file for family in ALL for file in family.files]
    assert sorted(used) == sorted(sources) == sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.txt"))
    for file, row in sources.items():
        assert row["sha256"] == sha256_file(ROOT / file)
        assert re.match(r"Public domain|CC0-1\.0|MIT|BSD-|GPL-|Apache-|CC-BY", row["licence"]), file


def test_all_texts_together_are_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 4_000_000


def test_generated_texts_come_out_of_their_generator() -> None:
    spec = importlib.util.spec_from_file_location("prompt_generator", ROOT / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sources = prompts.load_sources()
    for name in module.TEXTS:
        assert sha256_text(module.generate(name)) == sources[f"{name}/text.txt"]["sha256"], name


def test_no_paragraph_is_there_twice() -> None:
    seen: dict[str, str] = {}
    for name, text in texts().items():
        for block in re.split(r"\n\s*\n|\n(?=.{200})", text):
            block = " ".join(block.split())
            if len(block) >= 200:
                assert block not in seen, f"{name} and {seen[block]}: {block[:80]}"
                seen[block] = name


def test_no_text_loops() -> None:
    """Filling by repetition shows as a low share of distinct windows of 30 words."""
    for name, text in texts().items():
        all_windows = windows(text, 30)
        assert len(set(all_windows)) >= 0.97 * len(all_windows), name


def test_held_out_and_development_share_no_run_of_50_words() -> None:
    all_texts = texts()
    development = {
        w for family in ALL if family.set == "development" for w in windows(all_texts[family.name], 50)
    }
    for family in ALL:
        if family.set == "held-out":
            assert development.isdisjoint(windows(all_texts[family.name], 50)), family.name


# --- the draft's training documents ---------------------------------------------------------------


def training_documents() -> list[tuple[str, str]]:
    """(package, document) of everything the smol draft was trained on."""
    with gzip.open(ROOT / "training-documents.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    assert rows[0] == ["package", "document", "tokens"]
    return [(package, document) for package, document, _ in rows[1:]]


def test_no_source_is_on_the_training_list() -> None:
    documents = training_documents()
    assert len(documents) == 7871
    packages = {package for package, _ in documents} - {"r-cran-janeaustenr"}  # Emma was kept out of it
    for row in prompts.load_sources().values():
        assert packages.isdisjoint(row["source"].split()), row["file"]
        if "r-cran-janeaustenr" in row["source"]:
            assert row["title"].startswith("Emma")
            assert not [
                d for package, d in documents if package == "r-cran-janeaustenr" and "EMMA" in d.upper()
            ]


def test_no_run_of_20_words_is_in_a_training_module_at_hand() -> None:
    """The Python modules on the list are the training texts that every machine has."""
    library = Path(sysconfig.get_paths()["stdlib"])
    names = [document for package, document in training_documents() if package == "cpython-3.12-stdlib"]
    at_hand = [library / name for name in names if (library / name).is_file()]
    assert len(at_hand) > 300
    held_out = {
        w: family.name
        for family in ALL
        if family.set == "held-out"
        for w in windows(prompts.family_text(family), 20)
    }
    for path in at_hand:
        shared = {
            held_out[w]
            for w in windows(path.read_text(encoding="utf-8", errors="replace"), 20)
            if w in held_out
        }
        assert not shared, f"{path.name}: {shared}"


# --- formats --------------------------------------------------------------------------------------


def test_json_start_accepts_every_prefix_and_refuses_prose() -> None:
    value = json.dumps(
        [{"a": 'x "y" \\ \u00e9', "b": [1, -2.5e3, True, None, False], "c": {}}, {"d": []}], indent=1
    )
    for end in range(1, len(value) + 1):
        assert is_json_start(value[:end]), value[:end]
    assert is_json_start("```json\n" + value + "\n```")
    for wrong in ("", "Here is [1]", "[1}", "[1 2", '{"a" 1}', "{a: 1}", "[1] and more"):
        assert not is_json_start(wrong), wrong


def test_numbered_list_counts() -> None:
    assert is_numbered_list("7. one\n8. two\nmore of two\n9. thr")
    assert not is_numbered_list("7. one\n7. two") and not is_numbered_list("Sure:\n1. one")
    assert {family.checkable for family in ALL if family.checkable} <= set(FORMATS)
    with pytest.raises(InvalidSetting):
        has_format("xml", "<a>")
