"""Speculative decoding, measured: the library behind the study.

The front door is below. Names load on first use, so that statistics, records and the report work without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .acceptance import Acceptance, Greedy, Imposed, Relaxed
    from .cache import KVCache
    from .decoding import autoregressive, speculative
    from .generation import Generation, Round
    from .pairs import load_pair
    from .prefilled import Prefilled
    from .proposers import DraftFree, DraftModel, ForcedDraft, Proposer, Scripted

_HOMES = {
    "load_pair": "pairs",
    "autoregressive": "decoding",
    "speculative": "decoding",
    "Generation": "generation",
    "Round": "generation",
    "Acceptance": "acceptance",
    "Greedy": "acceptance",
    "Relaxed": "acceptance",
    "Imposed": "acceptance",
    "Proposer": "proposers",
    "DraftModel": "proposers",
    "ForcedDraft": "proposers",
    "Scripted": "proposers",
    "DraftFree": "proposers",
    "KVCache": "cache",
    "Prefilled": "prefilled",
}
__all__ = [
    "Acceptance",
    "DraftFree",
    "DraftModel",
    "ForcedDraft",
    "Generation",
    "Greedy",
    "Imposed",
    "KVCache",
    "Prefilled",
    "Proposer",
    "Relaxed",
    "Round",
    "Scripted",
    "autoregressive",
    "load_pair",
    "speculative",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # names not used yet too, for completion
