"""Exact-format checks of answers that may be cut off after any token.

A check says whether the text, as far as it goes, has the asked form, not whether it is right.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

from .errors import InvalidSetting

# What may still be missing at the cut, before the open brackets are closed.
_COMPLETIONS = ("", "null", ":null", '"":null')
_HALF_VALUE = re.compile(r"(?:-?[0-9][0-9.eE+-]*|-|t|tr|tru|f|fa|fal|fals|n|nu|nul)$")
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")


def is_json_start(text: str) -> bool:
    """Whether ``text`` is a JSON object or array, or the beginning of one. A code fence may be around it."""
    body = re.sub(r"^\s*```(?:json)?\s*\n|\n\s*```\s*$", "", text).strip()
    if not body.startswith(("{", "[")):
        return False
    closers, in_string, escaped = "", False, False
    for character in body:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string, escaped = True, False
        elif character in "{[":
            closers = ("}" if character == "{" else "]") + closers
        elif character in "}]":
            if not closers.startswith(character):
                return False
            closers = closers[1:]
    quote = '"' if in_string else ""
    trimmed = _HALF_ESCAPE.sub("", body) if in_string else _HALF_VALUE.sub("null", body)
    starts = (body + quote, trimmed + quote)
    return any(_parses(start + missing + closers) for start in starts for missing in _COMPLETIONS)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_numbered_list(text: str) -> bool:
    """Whether ``text`` starts with a numbered line ("12. ...") and each later number is one more."""
    numbers = [int(number) for number in re.findall(r"^\s*(\d+)[.)]\s", text, flags=re.MULTILINE)]
    starts = re.match(r"\s*\d+[.)]\s", text) is not None
    return starts and all(after == before + 1 for before, after in itertools.pairwise(numbers))


FORMATS: dict[str, Callable[[str], bool]] = {"json": is_json_start, "numbered-list": is_numbered_list}


def has_format(name: str, text: str) -> bool:
    """Apply the check called ``name``. Raises InvalidSetting for an unknown one."""
    if name not in FORMATS:
        raise InvalidSetting(
            f"no format check {name!r}", expected=", ".join(FORMATS), remedy="correct the name"
        )
    return FORMATS[name](text)
