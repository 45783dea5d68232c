"""What a decoding run may be asked for: a prompt, a number of tokens, where to stop. Checked before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from .errors import ContextTooLong, InvalidPrompt, InvalidSetting, is_count
from .model import DecoderModel, check_model


def check_prompt(target: DecoderModel, prompt: Sequence[int] | str) -> list[int]:
    """Token ids of a prompt, or ``InvalidPrompt``; ``InvalidSetting`` for a target that is no model."""
    check_model(target, "target")
    if isinstance(prompt, str):
        prompt = _encoded(target, prompt)
    if not isinstance(prompt, Sequence | Iterator) or isinstance(prompt, bytes | bytearray | memoryview):
        raise InvalidPrompt(
            f"the prompt is of type {type(prompt).__name__}: {str(prompt)[:40]}",
            expected="text, or a list of token ids",
            remedy="pass a list of plain ints, such as ids.tolist()",
        )
    ids, vocab = list(prompt), target.config.vocab
    wrong = [i for i in ids if not is_count(i, least=0) or i >= vocab]
    if not ids or wrong:
        raise InvalidPrompt(
            "the prompt is empty" if not ids else f"token id {wrong[0]!r} in the prompt",
            expected=f"one or more integers from 0 to {vocab - 1}",
            remedy="encode the text with this model's own tokenizer"
            if not wrong or isinstance(wrong[0], int)
            else "pass plain ints, such as ids.tolist() of an array or a tensor",
        )
    return ids


def _encoded(target: DecoderModel, text: str) -> list[int]:
    if target.tokenizer is None:
        raise InvalidPrompt(
            "a text prompt, but the model has no tokenizer",
            expected="token ids, or a model from load_pair",
            remedy="encode the text yourself, or set target.tokenizer",
        )
    try:
        text.encode()
    except UnicodeEncodeError as broken:
        raise InvalidPrompt(
            f"the prompt holds half a character at position {broken.start}",
            expected="text that can be written as UTF-8",
            remedy="read the file as UTF-8, with errors='replace' if need be",
        ) from broken
    return target.tokenizer.encode(text)


def check_new_tokens(max_new_tokens: int) -> None:
    """``InvalidSetting`` for a token count below 1."""
    if not is_count(max_new_tokens):
        raise InvalidSetting(
            f"max_new_tokens = {max_new_tokens!r}",
            expected="an int >= 1",
            remedy="ask for a token, by a plain int",
        )


def check_request(
    target: DecoderModel, max_new_tokens: int, eos: int | Iterable[int] | None
) -> frozenset[int]:
    """The set of stop tokens; ``InvalidSetting`` for a token count below 1 or a stop token that the target lacks."""
    check_new_tokens(max_new_tokens)
    stop: tuple[Any, ...]
    try:
        stop = (
            ()
            if eos is None
            else tuple(islice(eos, target.config.vocab + 1))
            if isinstance(eos, Iterable)
            else (eos,)
        )
    except TypeError:  # a tensor without dimensions says that it can be iterated over
        stop = (eos,)
    if not all(is_count(token, least=0) and token < target.config.vocab for token in stop):
        raise InvalidSetting(
            f"eos = {eos!r}",
            expected=f"a token id from 0 to {target.config.vocab - 1}, or several",
            remedy="use tokenizer.eos_ids",
        )
    return frozenset(stop)


def check_room(model: DecoderModel, prompt: int, new: int) -> None:
    """Raise ``ContextTooLong`` unless ``prompt`` + ``new`` tokens fit the model's positions."""
    if prompt + new > model.config.max_positions:
        raise ContextTooLong(
            f"{prompt} prompt + {new} new tokens for {model.name}",
            expected=f"at most {model.config.max_positions} positions",
            remedy="shorten the prompt or generate fewer tokens",
        )
