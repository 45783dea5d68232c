"""Why a block of M rows is not M steps: which operation first gives other numbers, and how much.

Every operation of the decoder is compared twice with the one-row run over the same tokens. *Chained*: the block runs
freely, so a difference includes what came before it. *Alone*: each operation is handed the one-row run's own inputs, so
what differs is that operation's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .files import sha256_text
from .model import DecoderModel
from .prefilled import Prefilled
from .projection import Projection
from .variants import OPERATIONS

WIDTHS = tuple(range(2, 10))
_TAPS = {"qkv": ("norm", "qkv"), "out": ("attention", "o"), "gate_up": ("mlp norm", "gate/up"),
         "down": ("activation", "down")}  # fmt: skip
Record = dict[tuple[int, str], Tensor]  # (layer, operation) -> [rows, width]


class Tap:
    """Stands in for a projection: notes what goes in and out, or (``given``) hands on the one-row run's numbers."""

    def __init__(
        self, inner: Projection, layer: int, names: tuple[str, str], seen: Record, given: Record | None
    ) -> None:
        self.inner, self.layer, self.names, self.seen, self.given = inner, layer, names, seen, given

    def __call__(self, x: Tensor) -> Tensor:
        before, after = ((self.layer, name) for name in self.names)
        self.seen[before] = x
        if self.given is None:
            self.seen[after] = self.inner(x)
            return self.seen[after]
        self.seen[after] = self.inner(self.given[before])
        return self.given[after]


@contextmanager
def tapped(model: DecoderModel, given: Record | None = None) -> Iterator[Record]:
    """Within it, a forward of ``model`` fills the record. The model is as before afterwards."""
    seen: Record = {}
    kept = [(layer, name, getattr(layer, name)) for layer in model.layers for name in _TAPS]
    head = model.head
    try:
        for i, layer in enumerate(model.layers):
            for name, names in _TAPS.items():
                setattr(layer, name, Tap(getattr(layer, name), i, names, seen, given))
        model.head = Tap(head, len(model.layers), ("final norm", "head"), seen, given)  # type: ignore[assignment]
        yield seen
    finally:
        for layer, name, inner in kept:
            setattr(layer, name, inner)
        model.head = head


@torch.inference_mode()
def record(
    model: DecoderModel, start: Prefilled, ids: Tensor, prompt: list[int], given: Record | None = None
) -> tuple[Record, Tensor]:
    """One block forward of ``ids`` [M] after the prompt: every operation's output, and the logits [M, vocab]."""
    start.rewind(model, prompt, ids.shape[0])
    with tapped(model, given) as seen:
        logits = model.forward(ids, start.cache)
    rows = slice(start.length, start.length + ids.shape[0])
    for i in range(len(model.layers)):  # keys as they went into the cache: turned by their position
        seen[i, "rope"] = start.cache.keys[i, :, rows].transpose(0, 1).flatten(1).clone()
    return seen, logits


@torch.inference_mode()
def record_steps(
    model: DecoderModel, start: Prefilled, ids: Tensor, prompt: list[int]
) -> tuple[Record, Tensor]:
    """The same tokens one row at a time: the yardstick."""
    start.rewind(model, prompt, ids.shape[0])
    steps: list[Record] = []
    logits = []
    for i in range(ids.shape[0]):
        with tapped(model) as seen:
            logits.append(model.forward(ids[i : i + 1], start.cache))
        at = start.length + i
        for layer in range(len(model.layers)):
            seen[layer, "rope"] = start.cache.keys[layer, :, at : at + 1].transpose(0, 1).flatten(1).clone()
        steps.append(dict(seen))
    return {key: torch.cat([step[key] for step in steps]) for key in steps[0]}, torch.cat(logits)


def width_rows(
    model: DecoderModel, start: Prefilled, prompt: list[int], tokens: list[int], dtype: str
) -> list[dict[str, Any]]:
    """One row per (width, operation): differences chained and alone, over layers; argmax flips on the head's row.

    ``group_width``: the smallest width (1 is the plain step) whose first row has the very same logits.

    ``tokens``: at least max(WIDTHS), teacher-forced. Every width starts at the same place, so row j of every block
    predicts the same token.
    """
    ids = torch.tensor(tokens[: max(WIDTHS)], device=model.device)
    steps, single = record_steps(model, start, ids, prompt)
    again, _ = record_steps(model, start, ids, prompt)
    top = single.float().topk(2, -1).values
    margins = top[:, 0] - top[:, 1]
    rows: list[dict[str, Any]] = []
    groups = {
        sha256_text(str(single[0].float().tolist())): 1
    }  # first row's logits -> smallest width that gave them
    for width in WIDTHS:
        block, logits = record(model, start, ids[:width], prompt)
        repeated, _ = record(model, start, ids[:width], prompt)
        first = {key: value[:width] for key, value in steps.items()}
        alone, _ = record(model, start, ids[:width], prompt, first)
        group = groups.setdefault(sha256_text(str(logits[0].float().tolist())), width)
        flips = logits.argmax(-1) != single[:width].argmax(-1)
        chained = {key: _gap(block[key], first[key]) for key in first}
        single_op = {key: _gap(alone[key], first[key]) for key in first}
        order = sorted(first, key=lambda key: (key[0], OPERATIONS.index(key[1])))
        earliest = next((key for key in order if chained[key] > 0), None)
        for operation in OPERATIONS:
            keys = [key for key in first if key[1] == operation]
            differing = [key for key in keys if single_op[key] > 0]
            rows.append(
                {
                    "dtype": dtype, "width": width, "operation": operation,
                    "chained_max": max(chained[key] for key in keys),
                    "alone_max": max(single_op[key] for key in keys),
                    "alone_layers_n": len(differing), "layers_n": len(keys),
                    "first_to_differ": earliest is not None and earliest[1] == operation,
                    "first_layer": earliest[0] if earliest and earliest[1] == operation else None,
                    "flips_n": int(flips.sum()) if operation == "head" else None,
                    "flip_margin_max": (
                        float(margins[:width][flips].max()) if operation == "head" and bool(flips.any()) else None
                    ),
                    "deterministic": all(torch.equal(block[key], repeated[key]) for key in keys)
                    and all(torch.equal(steps[key], again[key]) for key in keys),
                    "group_width": group,
                }
            )  # fmt: skip
    return rows


def _gap(one: Tensor, other: Tensor) -> float:
    """Largest absolute difference."""
    return float((one.float() - other.float()).abs().max())
