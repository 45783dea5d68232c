"""Prompt families: texts, one instruction each, and prompts of an exact number of tokens.

A family is one folder under ``data/prompts`` and one entry in ``families.toml``. Held-out families carry the
confirmatory measurement; development families are for everything that is tuned, and share no text with them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .errors import (
    ContextTooSmall,
    PromptTableInvalid,
    PromptTextDamaged,
    PromptTooShort,
    TokenizerUnsuited,
    UnknownFamily,
)
from .files import canonical_json, sha256_file, sha256_text

PROMPTS_FOLDER = Path(__file__).resolve().parent.parent / "data" / "prompts"
BUILDER_VERSION = 1  # raise it when build_prompt gives other ids for the same texts: it is part of the digest
SYSTEM = "You are a helpful assistant."
# Stands for the document while the chat template is rendered: a private-use character no text contains.
DOCUMENT_MARK = "\ue000"
MIN_DOCUMENT_TOKENS = 32  # fewer would be an instruction about nothing

FAMILIES: tuple[Family, ...]
DEVELOPMENT: tuple[Family, ...]


class PromptTokenizer(Protocol):
    """What a tokenizer must offer. ``encode`` adds no special tokens but recognises those in the text."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def apply_chat(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str: ...


@dataclass(frozen=True)
class Family:
    """One kind of prompt. ``place`` says where the instruction stands, seen from the document.

    ``checkable`` names the format check of ``specdec_lib.formats`` that an answer can be held to, or is None.
    """

    name: str
    set: str
    title: str
    task: str
    instruction: str
    place: str
    files: tuple[str, ...]
    checkable: str | None = None


_FAMILY_KEYS = {"name", "set", "title", "task", "instruction", "place", "files", "checkable"}
_SOURCE_KEYS = {
    "file",
    "family",
    "title",
    "author",
    "source",
    "path",
    "licence",
    "language",
    "sha256",
    "note",
}
_SOURCE_OPTIONAL = {"note", "path"}


def _read_toml(path: Path, table: str) -> list[dict[str, Any]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # an editor may put a mark in front
    except FileNotFoundError as error:
        raise PromptTextDamaged(
            f"{path.name} is missing", expected=f"{path}", remedy="restore data/prompts from the repository"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise PromptTableInvalid(
            f"{path.name} is not TOML: {error}", remedy="correct the line named"
        ) from error
    rows = content.get(table)
    if set(content) != {table} or not isinstance(rows, list):
        raise PromptTableInvalid(
            f"{path.name} has the top-level keys {sorted(content)}",
            expected=f"only [[{table}]] entries",
            remedy="correct or remove the others",
        )
    return rows


def _check_keys(row: dict[str, Any], where: str, known: set[str], optional: set[str]) -> None:
    unknown, missing = set(row) - known, known - optional - set(row)
    if unknown or missing:
        raise PromptTableInvalid(
            f"{where}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}",
            expected=f"keys {sorted(known)}",
            remedy="correct the spelling or add the key",
        )
    for key, value in row.items():
        if key == "files":
            right = (
                isinstance(value, list) and value and all(isinstance(item, str) and item for item in value)
            )
        else:
            right = isinstance(value, str) and bool(value.strip())
        if not right:
            raise PromptTableInvalid(
                f"{where}: {key} = {value!r}",
                expected="a text (files: a list of texts)",
                remedy="correct the value",
            )


def load_families(root: str | Path = PROMPTS_FOLDER) -> tuple[Family, ...]:
    """All families of ``families.toml`` in their order, held-out and development.

    Raises PromptTableInvalid for an unknown or missing key, a wrong value or a name given twice.
    """
    from .formats import FORMATS

    families: list[Family] = []
    allowed = {"set": ("held-out", "development"), "place": ("before", "after"), "checkable": tuple(FORMATS)}
    for row in _read_toml(Path(root) / "families.toml", "family"):
        where = f"families.toml, family {row.get('name', '?')!r}"
        _check_keys(row, where, _FAMILY_KEYS, {"checkable"})
        for key, values in allowed.items():
            if row.get(key, values[0]) not in values:
                raise PromptTableInvalid(
                    f"{where}: {key} = {row[key]!r}",
                    expected=f"one of {', '.join(values)}",
                    remedy="correct the value",
                )
        if row["name"] in {family.name for family in families}:
            raise PromptTableInvalid(f"{where}: the name is given twice", remedy="rename one of the two")
        families.append(Family(**{**row, "files": tuple(row["files"])}))
    return tuple(families)


def load_sources(root: str | Path = PROMPTS_FOLDER) -> dict[str, dict[str, str]]:
    """Rows of ``sources.toml`` by file: title, author, source, licence, language, sha256 and a note."""
    rows: dict[str, dict[str, str]] = {}
    for row in _read_toml(Path(root) / "sources.toml", "source"):
        where = f"sources.toml, file {row.get('file', '?')!r}"
        _check_keys(row, where, _SOURCE_KEYS, _SOURCE_OPTIONAL)
        if row["file"] in rows:
            raise PromptTableInvalid(f"{where}: listed twice", remedy="remove one of the two")
        rows[row["file"]] = row
    return rows


def __getattr__(name: str) -> tuple[Family, ...]:
    """FAMILIES (held-out) and DEVELOPMENT are read from the table when asked for, not on import."""
    if name not in ("FAMILIES", "DEVELOPMENT"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = "held-out" if name == "FAMILIES" else "development"
    return tuple(family for family in load_families() if family.set == kind)


def get_family(name: str, root: str | Path = PROMPTS_FOLDER) -> Family:
    """The family of that name, held-out or development. Raises UnknownFamily."""
    families = load_families(root)
    for family in families:
        if family.name == name:
            return family
    raise UnknownFamily(
        f"no prompt family {name!r}",
        expected=", ".join(family.name for family in families),
        remedy="correct the name, or add the family to data/prompts/families.toml",
    )


def family_text(family: Family, root: str | Path = PROMPTS_FOLDER) -> str:
    """The family's files joined by a blank line. Raises PromptTextDamaged if one is not as listed."""
    sources, parts = load_sources(root), []
    for name in family.files:
        path = Path(root) / name
        if name not in sources:
            raise PromptTextDamaged(
                f"{name} has no entry in sources.toml",
                expected="source, licence and digest",
                remedy="add the entry; a text without a licence is not used",
            )
        if not path.is_file() or sha256_file(path) != sources[name]["sha256"]:
            raise PromptTextDamaged(
                f"{name} is missing or was changed",
                expected=f"SHA-256 {sources[name]['sha256']}",
                remedy="restore the file from the repository, or update sources.toml on purpose",
            )
        parts.append(path.read_text(encoding="utf-8").strip("\n"))
    return "\n\n".join(parts)


def prompts_digest(root: str | Path = PROMPTS_FOLDER) -> str:
    """SHA-256 over all that shapes a prompt: texts, instructions, their place, system line, builder.

    Titles and task lines are left out: rewording them must not orphan measurements.
    """
    rows = [
        [family.name, family.set, family.instruction, family.place, [sha256_text(family_text(family, root))]]
        for family in load_families(root)
    ]
    return sha256_text(canonical_json([BUILDER_VERSION, SYSTEM, rows]))


def _around(family: Family, tokenizer: PromptTokenizer) -> tuple[list[int], list[int]]:
    """Ids before and after the document: chat template, system line and instruction."""
    turn = (
        [family.instruction, DOCUMENT_MARK]
        if family.place == "before"
        else [DOCUMENT_MARK, family.instruction]
    )
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n\n".join(turn)}]
    parts = tokenizer.apply_chat(messages, add_generation_prompt=True).split(DOCUMENT_MARK)
    if len(parts) != 2:
        raise TokenizerUnsuited(
            f"the chat template shows the user's turn {len(parts) - 1} times",
            expected="once",
            remedy="use the model's own chat template",
        )
    return list(tokenizer.encode(parts[0])), list(tokenizer.encode(parts[1]))


def _first_ids(ids: list[int], room: int, tokenizer: PromptTokenizer) -> list[int]:
    """``room`` ids from the start of ``ids``, ending on a whole character.

    Byte-level vocabularies can split a character over several ids. Half a character at the cut is replaced by
    newlines, one id each, so that the length stays exact and the prompt decodes to text.
    """
    kept = ids[:room]
    while kept and tokenizer.decode(kept[-8:]).endswith("\ufffd"):
        kept = kept[:-1]
    newline = tokenizer.encode("\n") if len(kept) < room else []
    if len(kept) < room and len(newline) != 1:
        raise TokenizerUnsuited(
            f"a newline is {len(newline)} ids",
            expected="one, to fill the length exactly",
            remedy="use a byte-level tokenizer",
        )
    return kept + newline * (room - len(kept))


def build_prompt(
    family: str | Family,
    context: int,
    tokenizer: PromptTokenizer,
    new_tokens: int = 64,
    *,
    root: str | Path = PROMPTS_FOLDER,
) -> list[int]:
    """Ids of the family's prompt, exactly ``context - new_tokens`` of them.

    The context counts prompt and new tokens. The chat template is the tokenizer's own: a system line, one
    user turn (instruction before or after the document), the assistant's header. The parts are encoded one by
    one and the document is cut to the ids that remain; nothing is encoded again, so the length cannot move.

    Raises UnknownFamily, ContextTooSmall (no room for the instruction and a little text), PromptTooShort (the
    text has fewer ids than the room), PromptTextDamaged, TokenizerUnsuited.
    """
    chosen = get_family(family, root) if isinstance(family, str) else family
    before, after = _around(chosen, tokenizer)
    length = context - new_tokens
    room = length - len(before) - len(after)
    if room < MIN_DOCUMENT_TOKENS:
        raise ContextTooSmall(
            f"{chosen.name}: {context} tokens less {new_tokens} new ones leave {room} for the document",
            expected=f"at least {context - room + MIN_DOCUMENT_TOKENS} tokens of context",
            remedy="use a longer context or fewer new tokens",
        )
    ids = list(tokenizer.encode(family_text(chosen, root)))
    if len(ids) < room:
        raise PromptTooShort(
            f"{chosen.name}: its text has {len(ids)} tokens",
            expected=f"at least {room}",
            remedy="use a shorter context, or add text to the family (never repeat a paragraph)",
        )
    return before + _first_ids(ids, room, tokenizer) + after
