"""Text to ids and back, and the chat template, without torch and without transformers."""

from __future__ import annotations

import datetime
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import InvalidPrompt, InvalidSetting, UnsupportedModel, WeightsDamaged, WeightsMissing
from .files import canonical_json, sha256_text
from .sources import read_json

Message = Mapping[str, str]


class Tokenizer(ABC):
    """What the study needs of a tokenizer. ``eos_ids``: the ids that end a generation."""

    name: str
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = {}

    @abstractmethod
    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of ``text``; special tokens written out in it, as the chat template does, become their one id.

        ``add_special`` adds what the tokenizer puts around a plain text (a BOS, if it has one).
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens included; bytes that are no valid UTF-8 become U+FFFD."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Largest id plus one. A checkpoint's embedding may have more rows (padding), never fewer."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hex SHA-256 of everything that says what an id means: vocabulary, merges and added tokens."""

    def apply_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The model's chat template filled with ``messages``, dicts with ``role`` and ``content``."""
        if self.chat_template is None:
            raise InvalidPrompt(
                f"tokenizer {self.name} has no chat template",
                expected="chat_template.jinja, or chat_template in tokenizer_config.json",
                remedy="give the prompt as token ids, or use an instruct model's folder",
            )
        return _render(
            self.chat_template,
            messages=list(messages),
            add_generation_prompt=add_generation_prompt,
            **self.special_tokens,
        )


class JsonTokenizer(Tokenizer):
    """A Hugging Face ``tokenizer.json``, run by the `tokenizers` library."""

    def __init__(
        self,
        backend: Any,
        name: str,
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        eos_ids: tuple[int, ...] = (),
    ) -> None:
        self._backend = backend
        self.name, self.chat_template, self.eos_ids = name, chat_template, eos_ids
        self.special_tokens = dict(special_tokens or {})

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        return self._backend.encode(text, add_special_tokens=add_special).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override]
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        # through the library, so that old and new spellings of the same merges agree
        described = json.loads(self._backend.to_str())
        meaning = {
            "vocab": described["model"].get("vocab"),
            "merges": described["model"].get("merges"),
            "added": sorted((token["id"], token["content"]) for token in described["added_tokens"]),
        }
        return sha256_text(canonical_json(meaning))


class ByteTokenizer(Tokenizer):
    """Ids 0..255 are bytes, 256..319 special tokens. For random models: tests, smoke runs, timing shapes."""

    name = "bytes"
    _SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", *(f"<|extra_{i}|>" for i in range(61)))
    eos_ids = (257, 258)
    special_tokens: Mapping[str, str] = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    _split = re.compile("(" + "|".join(re.escape(token) for token in _SPECIAL) + ")")

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        ids: list[int] = []
        for piece in self._split.split(text):
            ids += [256 + self._SPECIAL.index(piece)] if piece in self._SPECIAL else piece.encode()
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text, run = "", bytearray()
        for i in ids:
            if 0 <= i < 256:
                run.append(i)
                continue
            # an id beyond the special tokens is a row of a synthetic model: it has no text, only a number
            text += run.decode(errors="replace") + (self._SPECIAL[i - 256] if 256 <= i < 320 else f"<|{i}|>")
            run.clear()
        return text + run.decode(errors="replace")

    @property
    def vocab_size(self) -> int:
        return 256 + len(self._SPECIAL)

    @property
    def fingerprint(self) -> str:
        return sha256_text(canonical_json(["bytes", list(self._SPECIAL)]))


def load_tokenizer_folder(folder: str | Path, name: str | None = None) -> JsonTokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json; template and EOS ids from its other files.

    Raises `WeightsMissing` without a tokenizer.json, `WeightsDamaged` for one that cannot be read.
    """
    import tokenizers

    folder = Path(folder)
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise WeightsMissing(
            f"no tokenizer.json in {folder}",
            expected="a Hugging Face folder with a fast tokenizer",
            remedy="save it with transformers' AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for anything it cannot parse
        raise WeightsDamaged(
            f"{path} cannot be read: {error}",
            expected="a tokenizer.json of the tokenizers library",
            remedy="fetch the file again",
        ) from error
    backend.no_truncation()
    backend.no_padding()
    settings = _read_json(folder / "tokenizer_config.json")
    special = {
        key: _token_text(settings[key])
        for key in ("bos_token", "eos_token", "unk_token", "pad_token")
        if settings.get(key) is not None
    }
    eos = _eos_ids(folder)
    if (
        not eos
        and "eos_token" in special
        and (found := backend.token_to_id(special["eos_token"])) is not None
    ):
        eos = (found,)
    return JsonTokenizer(backend, name or folder.name, _chat_template(folder, settings), special, eos)


def _read_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _token_text(value: Any) -> str:
    return value["content"] if isinstance(value, dict) else str(value)  # old files store a whole AddedToken


def _eos_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):  # the order in which generation looks for it
        value = _read_json(folder / name).get("eos_token_id")
        if value is not None:
            return tuple(value) if isinstance(value, list) else (int(value),)
    return ()


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named templates: the one called default
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template


def _render(template: str, **values: Any) -> str:
    """Fill a chat template in the environment that transformers gives it: sandboxed, trimmed, two helpers."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise UnsupportedModel(
            f"the chat template does not parse: {error}",
            expected="a Jinja template",
            remedy="fetch the tokenizer's files again",
        ) from error
    try:
        return compiled.render(**values)
    except jinja2.exceptions.TemplateError as error:
        raise InvalidSetting(
            f"the chat template refuses these messages: {error}",
            expected="messages with the roles and fields the model's template knows",
            remedy="change the messages, or pass token ids",
        ) from error
