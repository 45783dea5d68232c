"""The audit's hypothesis, put to the test: what a GPU's runs say where launches went, and where kernels were fused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib.guesses import draft_costs
from specdec_lib.report import audit, compare, folders, regimes, text
from specdec_lib.report.style import number

_TOLD = 0.05  # a fall of c counts from this share on, by each way of estimating
_SAME = 0.005  # two layer ratios nearer than this are of the same shapes
UNTESTED = (
    "It is not tested here: that takes runs on one GPU, of a pair with these layers, that differ in their launches "
    "and in nothing else."
)


def tested(root: Path | None = None) -> str:
    """In short what the regimes say of it, for every GPU with a pair of the published layers in two modes or more."""
    told = [_told(ladder, root) for ladder in regimes.ladders(root) if _same_layers(ladder)]
    return " ".join(told) or UNTESTED


def _same_layers(ladder: list[folders.Results]) -> bool:
    """Whether every launch that can be removed is one of the published pair's, and was there to begin with."""
    first = ladder[0]
    if not (first.cuda and first.mode == "eager" and all(one.contexts for one in ladder)):
        return False
    layers = draft_costs(first.provenance["models"], first.contexts[0])["layers"]
    return abs(layers - audit.ratios()["layers"]) < _SAME


def _told(ladder: list[folders.Results], root: Path | None) -> str:
    """One GPU: launches removed alone, kernels fused as well, and which of the two was enough for a gain."""
    first, by_mode = ladder[0], {one.mode: one for one in ladder}
    rows = {source.label: source.rows for source in compare.sources(root)}
    names = {
        "graphs": "Captured graphs remove a forward's launches and nothing else of it",
        "compiled": "Fused kernels, captured",
    }
    each = [
        f"{name} ({by_mode[mode].named}; {by_mode[mode].setup}): {_moved(first, by_mode[mode])}, and speculative "
        f"decoding {text.verdict_overview(rows[by_mode[mode].label])}."
        for mode, name in names.items()
        if mode in by_mode
    ]
    enough = {mode: {row["verdict"] for row in rows[one.label]} for mode, one in by_mode.items()}
    weak = "" if first.families["in_inference"].any() else " No eager cell passed the timing checks."
    device = first.provenance["device"].get("device_name", "a GPU")
    rounds, theirs = (regimes.engine_of(one) for one in (first, by_mode.get("graphs", first)))
    other = f", with rounds that differ too ({rounds} against {theirs})" if rounds != theirs else ""
    return f"Tested on {device}. {' '.join(each)} {concluded(enough, other)}{weak}"


def concluded(verdicts: dict[str, set[str]], other: str = "") -> str:
    """Whether launches removed alone were enough for R above 1, and whether fused kernels are; by mode, the verdicts
    of its contexts. ``other``: what else differs from the eager runs."""
    words = {"pays": "enough", "does not": "**not** enough"}
    alone, fused = (
        words.get(next(iter(found)), "") if len(found := verdicts.get(mode, set())) == 1 else ""
        for mode in ("graphs", "compiled")
    )
    if "graphs" not in verdicts:
        launches = "Launches were not removed alone there"
    elif alone:
        launches = f"There captured graphs, without fused kernels, were {alone} for R above 1{other}"
    else:
        launches = "Whether captured graphs without fused kernels are enough for R above 1 is open there"
    return launches + (f"; with fused kernels it was {fused}." if fused else ".")


class Moved(NamedTuple):
    """A draft forward in AR steps of two folders, by context: every family's, and the medians of both sides."""

    contexts: list[int]
    cells: tuple[list[Any], list[Any]]
    before: list[float]
    after: list[float]
    paired: list[float]  # the first side by single steps in pairs; empty where it has none

    @property
    def fell(self) -> bool:
        """Whether the second folder's is lower at every context."""
        return all(b < a for a, b in zip(self.before, self.after, strict=True))

    @property
    def rose(self) -> bool:
        """Whether at every context no family's is lower than any of the first folder's."""
        return all(b.min() >= a.max() for a, b in zip(*self.cells, strict=True))

    @property
    def apart(self) -> bool:
        """Whether at every context each family's is lower than any of the first folder's, and the other estimate says
        so too."""
        return self.agreed and all(b.max() < a.min() for a, b in zip(*self.cells, strict=True))

    @property
    def agreed(self) -> bool:
        """Whether by single steps in pairs, the estimate that a drifting host moves least, it also fell."""
        return not self.paired or all(
            b < a * (1 - _TOLD) for a, b in zip(self.paired, self.after, strict=True)
        )

    @property
    def untold(self) -> str:
        """Why a change is not told, with the numbers of the rule: families that overlap, or a fall that counts by one
        estimate alone."""
        at = [text.context_name(context) for context in self.contexts]
        overlap = [x for x, a, b in zip(at, *self.cells, strict=True) if b.max() >= a.min()]
        families = [f"its families overlap at {text.listed(overlap)}"] * bool(overlap)
        if self.agreed:
            return "; ".join(families)
        by_stages, by_pairs = (
            text.listed(text.signed(b / a - 1) for a, b in zip(side, self.after, strict=True))
            for side in (self.before, self.paired)
        )
        rule = (
            f"by the stages it changes by {by_stages} at {text.listed(at)}, but from the single steps in pairs by "
            f"{by_pairs}, and a fall counts from {text.percent(_TOLD, 0)} on, by both"
        )
        return "; ".join([rule, *families])

    @property
    def beside(self) -> str:
        """The other estimate of the first side, in words."""
        return f" ({text.span(self.paired)} by single steps in pairs)" if self.paired else ""


def draft_moved(first: folders.Results, other: folders.Results, contexts: list[int]) -> Moved:
    """The same draft in two folders, by the stages of both: a fit on one side would compare two ways of estimating."""
    cells: Any = tuple(
        [regimes.staged_cells(side, x)["draft forward"] for x in contexts] for side in (first, other)
    )
    before, after = ([float(part.median()) for part in side] for side in cells)
    pairs = regimes.paired(first)
    return Moved(
        contexts, cells, before, after, [pairs[x] for x in contexts] if set(contexts) <= set(pairs) else []
    )


def _moved(first: folders.Results, other: folders.Results) -> str:
    """How c went from the eager folder to the other one, both by the stages of their runs."""
    both = sorted(set(first.contexts) & set(other.contexts))
    if not both or first.stages is None or other.stages is None:
        return "c was not measured on both sides"
    moved = draft_moved(first, other, both)
    no_change = f", no change that can be told ({moved.untold})"
    how = ", which is no fall" if moved.rose else "" if moved.fell and moved.apart else no_change
    return f"c goes from {text.change(moved.before, moved.after)} AR steps{moved.beside}{how}"


def sentences(root: Path | None = None) -> list[str]:
    """The experiment that changes the launches and nothing else: one pair on one GPU, eager against captured."""
    told = []
    for ladder in regimes.ladders(root):
        first = ladder[0]
        if not first.cuda or first.mode != "eager":
            continue
        captured = next((one for one in ladder if one.mode == "graphs"), ladder[-1])
        alone = captured.mode == "graphs"
        both = sorted(set(first.contexts) & set(captured.contexts))
        if not both or first.stages is None or captured.stages is None:
            continue
        guessed = {context: draft_costs(first.provenance["models"], context) for context in both}
        layers, share = guessed[both[0]]["layers"], text.span(guessed[c]["bytes"] for c in both)
        pair = (first, captured)
        steps = [text.span((regimes.ar_step_s(one, c) * 1e3 for c in both), "ms") for one in pair]
        # by stages on both sides: a fit on one would compare two ways of estimating
        moved = draft_moved(first, captured, both)
        ends = [text.span(end for part in side for end in (part.min(), part.max())) for side in moved.cells]
        after = zip(moved.after, both, strict=True)
        nearer = all(abs(c - guessed[x]["bytes"]) < abs(c - layers) for c, x in after)
        without = "without its launches" if alone else "with fused kernels and without launches"
        what = (
            f"{without} the draft's cost c moves from its layers to its bytes: the draft **was** launch-bound"
            if moved.fell and moved.apart and nearer
            else f"{without} the draft costs less, but its c is still nearer to its layers than to its bytes"
            if moved.fell and moved.apart
            else f"{without} the draft is **not** cheaper in AR steps"
            if moved.rose
            else f"{without} no change of the draft's cost can be told: {moved.untold}"
        )
        changes = (
            "nothing changes but how the forward is launched"
            if alone
            else "launches and kernels change at once, so their effects cannot be told apart"
        )
        told.append(
            f"From {first.named} to {captured.named} {changes} ({first.mode} to {captured.mode}). An AR step "
            f"takes {steps[0]} before and {steps[1]} after, a draft forward {text.span(moved.before)}{moved.beside} "
            f"and {text.span(moved.after)} AR steps (stages of the confirmatory runs, medians over families; "
            f"single families {ends[0]} and {ends[1]}), where the layer ratio is {number(layers)} and the "
            f"bytes' share {share}: {what}. {_spread(first, captured)}"
        )
    return told


def _spread(first: folders.Results, captured: folders.Results) -> str:
    """How steady the two folders' times are, and what else differs between their runs."""
    steady = text.listed(
        f"{number(float(one.families['dispersion_value'].median()) * 100, '%', digits=2)} in {one.named}"
        for one in (first, captured)
        if one.contexts
    )
    engines = [regimes.engine_of(one) for one in (first, captured)]
    other = "" if engines[0] == engines[1] else (
        f" Their runs also differ in the round ({engines[0]} against {engines[1]}); what a forward costs does not."
    )  # fmt: skip
    failed = [
        one.named for one in (first, captured) if one.contexts and not one.families["in_inference"].any()
    ]
    told = f" No cell of {text.listed(failed)} passed the timing checks: that side is no more than a description."
    weak = told if failed else ""
    return f"Spread of a family's times, median: {steady}.{weak}{other}"


def show(root: Path | None = None) -> None:
    """Whether the launches were the cause; without two modes of one pair, that it was not shown."""
    told = sentences(root)
    unshown = (
        "Not shown: that a forward is dear *because* of its launches. That takes an experiment that changes "
        "the number of launches and nothing else, on a GPU."
    )
    text.say(*told or [unshown])
