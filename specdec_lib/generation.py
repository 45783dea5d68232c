"""What a decoding run returns. Torch-free: records and tables are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field

STAGES = ("draft", "verify", "accept", "repair", "other")


@dataclass(frozen=True)
class Round:
    """One round of speculation, in tokens.

    ``proposed`` were verified, ``accepted`` of them stand in the output, ``emitted`` tokens were committed: the
    accepted ones plus the target's replacement or bonus. Behind an EOS nothing counts: proposals after it are
    neither proposed nor accepted, and ``cut`` is 1 if the round's bonus or replacement fell away with them.
    """

    proposed: int
    accepted: int
    emitted: int
    cut: int = 0

    @property
    def rejected(self) -> bool:
        """Whether the target replaced a proposal in this round."""
        return self.accepted < self.proposed


@dataclass
class Generation:
    """New tokens of one run, with its counts and times.

    ``seconds`` runs from the prefill's last logits to the last token known on the host. ``stage_seconds`` is filled
    only by an instrumented run, which is never one of the timed ones; its parts sum to that run's ``seconds``.
    ``mode``: how the engine ran. ``device_seconds``: the same region by the GPU's own clock, NaN on a CPU.
    """

    tokens: list[int]
    seconds: float
    prefill_seconds: float = 0.0
    draft_prefill_seconds: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    host_reads: int = 0
    host_copies: int = 0
    host_bytes: int = 0
    target_calls: int = 0
    draft_calls: int = 0
    mode: str = "eager"
    device_seconds: float = float("nan")

    @property
    def proposed(self) -> int:
        return sum(r.proposed for r in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(r.accepted for r in self.rounds)

    @property
    def rejections(self) -> int:
        return sum(r.rejected for r in self.rounds)

    @property
    def acceptance(self) -> float:
        """Accepted / proposed-and-verified; NaN without proposals."""
        return self.accepted / self.proposed if self.proposed else float("nan")

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens per round; NaN without rounds."""
        return len(self.tokens) / len(self.rounds) if self.rounds else float("nan")
