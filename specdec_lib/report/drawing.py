"""A round as a picture: the block above, the choices below, an arrow from each choice to what it checks."""

from __future__ import annotations

from typing import Any

from specdec_lib.report import figures, style

Round = dict[str, Any]  # as specdec_lib.trace.watch_rounds gives it, with decoded tokens under "<key>_text"
_TAKEN = "#00664b"


def figure(seen: Round) -> figures.Figure:
    """Upper line: the target's block. Lower line: each row's choice, with an arrow to what it checks."""
    waiting, k = len(seen["pending"]), len(seen["proposals"])
    fig, ax = figures.axes(3.3)
    first = (seen["pending_text"][-1], "last committed") if waiting else ("...", "before the round")
    upper = [first, *((token, f"d{i}") for i, token in enumerate(seen["proposals_text"], start=1))]
    for x, (token, label) in enumerate(upper):
        dashed = x == 0 and not waiting
        _box(ax, x, 1.0, token, style.MUTED if x == 0 else style.AR.colour, "--" if dashed else "-")
        ax.text(x, 1.34, label, ha="center", fontsize=10, color=style.MUTED)
    for index, choice in enumerate(seen["choices_text"]):
        result = outcome(seen, index)
        used = result != "not used"
        colours = {"accepted": _TAKEN, "bonus": _TAKEN, "rejected: replaced": style.SPEC.colour}
        colour = colours.get(result, style.MUTED)
        row = index + waiting - 1
        below: Any = {"ha": "center", "fontsize": 10}
        _box(ax, index, 0.0, choice, colour, "-" if used else ":")
        ax.text(index, -0.46, "saved_next" if row < 0 else f"rows[{row}]", **below)
        if index < k:
            ax.annotate(
                "", (index + 0.93, 0.74), (index + 0.1, 0.26),
                arrowprops={
                    "arrowstyle": "->", "color": colour, "linewidth": 1.6, "linestyle": "-" if used else ":",
                },
            )  # fmt: skip
            mark = {"accepted": "=", "rejected: replaced": "≠"}.get(result, "")
            bold: Any = below | {"fontsize": 13, "fontweight": "bold", "va": "center"}
            ax.text(index + 0.36, 0.52, mark, color=colour, **bold)
        ax.text(index, -0.74, {"rejected: replaced": "replaces"}.get(result, result), color=colour, **below)
    ax.text(-0.62, 1.0, "block", ha="right", va="center", fontsize=10)
    ax.text(-0.62, 0.0, "choice", ha="right", va="center", fontsize=10)
    ax.set_xlim(-1.2, k + 0.6)
    ax.set_ylim(-0.95, 1.6)
    ax.axis("off")
    fig.tight_layout()
    return fig


def _box(ax: Any, x: float, y: float, token: str, colour: str, line: str) -> None:
    shown = token.replace("\n", "⏎").replace(" ", "·").replace("$", r"\$")
    shown = shown if len(shown) <= 10 else shown[:9] + "…"
    ax.text(
        x, y, shown, ha="center", va="center", fontsize=10, color=style.INK,
        bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6,
              "linestyle": line},
    )  # fmt: skip


def outcome(seen: Round, index: int) -> str:
    """What became of the target's choice number ``index`` (from 0) in this round."""
    accepted, k = seen["accepted"], len(seen["proposals"])
    if index < accepted:
        return "accepted"
    if index == accepted:
        return "rejected: replaced" if index < k else ("bonus" if len(seen["emitted"]) > k else "not used")
    return "not used"
