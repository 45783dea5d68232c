"""The frozen design: one validated file and its two hashes. The jobs that follow from it are in ``plan``.

``design.toml`` fixes everything before the confirmatory run. The *measurement hash* (models, prompts,
lengths, k, order, ...) is stored with every measured row; the *analysis hash* (thresholds, interval) with
every derived table. Changing the analysis never orphans a measurement.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from specdec_lib.errors import InvalidDesign, InvalidSetting, UnknownProfile
from specdec_lib.files import canonical_json, sha256_text
from specdec_lib.paths import DESIGN_FILE, project_root
from specdec_lib.variants import PHASES

Arm = Literal["ar", "spec"]
Block = Literal["AB", "BA"]
Isolation = Literal["cell", "block", "context"]
CheckName = Literal["complete", "deterministic", "dispersion", "stationary", "order", "undisturbed"]
Method = Literal["percentile", "bca", "t-log"]
Mode = Literal["eager", "graphs", "compiled"]

# Strict: a "5" or a true in the file is a slip, not a number.
Positive = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
Chance = Annotated[float, Field(ge=0, le=1, strict=True)]
Threads = Annotated[int, Field(ge=0, le=1024, strict=True)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
Contexts = Annotated[tuple[Positive, ...], Field(min_length=1)]

# Folders of data/ that are no profile's; my-... is a reader's own, ...-lab what a notebook writes by hand.
_RESERVED = ("models", "prompts", "published", "h200-engine")
_NAME = re.compile(r"(?!my-)[a-z0-9][a-z0-9-]{0,60}(?<!-lab)")

# Raise it when the meaning of a hashed field changes, so that old rows are seen to be of another design.
_DESIGN_FORMAT = 1


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measurement(Section):
    """What is measured and how; a profile may override part of it."""

    new_tokens: Positive
    k: Positive
    formulation: Literal["reference", "repair-free"]
    bonus: StrictBool
    prefill_chunk: Positive
    contexts: Contexts
    repeats: Positive
    decoding: Literal["greedy"]
    batch: Literal[1]
    warmup_repeats: Count
    dtype: Literal["auto", "bf16", "fp32"]
    families: Names
    development: Names

    @model_validator(mode="after")
    def _apart(self) -> Measurement:
        if shared := set(self.families) & set(self.development):
            raise ValueError(f"held-out families are never used to tune: {sorted(shared)} are in both")
        _no_duplicates(self.families, self.contexts, self.development)
        return self


class Thresholds(Section):
    """Limits of the timing checks, as shares (0.05 = 5 %)."""

    dispersion: Share
    stationary: Share
    order: Share
    undisturbed: Share


class DeviceThresholds(Section):
    cpu: Thresholds
    gpu: Thresholds


class Interval(Section):
    """How the interval over families is made, and below which sizes there is none."""

    method: Method
    level: Share
    resamples: Annotated[int, Field(ge=100, strict=True)]
    seed: Count
    min_families: Annotated[int, Field(ge=2, strict=True)]
    min_repeats: Positive


class Margin(Section):
    """Largest logit gap at which an argmax flip between block widths is a near-tie, per dtype."""

    bf16: Annotated[float, Field(ge=0, le=0.5, strict=True)]
    fp32: Annotated[float, Field(ge=0, le=0.5, strict=True)]


class Analysis(Section):
    """The analysis plan."""

    exclude_on: tuple[CheckName, ...]
    checks: DeviceThresholds
    interval: Interval
    margin: Margin

    def thresholds(self, device_kind: str) -> Thresholds:
        """Limits for ``device_kind`` "cpu" or "gpu" ("cuda" is taken as "gpu")."""
        kind = "gpu" if device_kind.startswith("cuda") else device_kind
        if kind not in ("cpu", "gpu"):
            raise InvalidSetting(f"Unknown device kind {device_kind!r}.", expected="cpu, gpu or cuda")
        return self.checks.cpu if kind == "cpu" else self.checks.gpu


class Mechanisms(Section):
    """The cells of the mechanism phases: the first n families at each context, and repeats per variant.

    ``repeats_of`` names phases that take another number; the cost line's fit takes that of "cost-model".
    ``variants_of`` names phases that measure some of their variants only.
    """

    families: dict[int, Positive]
    repeats: Positive
    repeats_of: dict[str, Positive] = {}
    variants_of: dict[str, Names] = {}

    def repeats_in(self, phase: str) -> int:
        """Timed repeats of each variant in this phase."""
        return self.repeats_of.get(phase, self.repeats)


class ProfileEntry(Section):
    """A profile as the file gives it; what is left out comes from [measurement].

    ``mode``: how both arms run; a captured one replays repair-free rounds with bonus on a CUDA device. ``scripted``:
    acceptance is imposed (synthetic), by independent bits with this alpha per context. ``traces_from``: in the
    mechanism phases of a scripted profile, the traces recorded by that profile take the place of those bits.
    ``memory_cap_gib``: how much of the GPU's memory a timed job may take. ``repeat_disturbed``: how often a
    confirmatory run is measured again when others took more CPU time than the check "undisturbed" allows, when the
    GPU throttled or when another process was on it.
    """

    title: str
    pair: str
    isolation: Isolation
    families: Names | Literal["all"] = "all"
    contexts: Contexts | None = None
    repeats: Positive | None = None
    new_tokens: Positive | None = None
    k: Positive | None = None
    formulation: Literal["reference", "repair-free"] | None = None
    bonus: StrictBool | None = None
    dtype: Literal["auto", "bf16", "fp32"] | None = None
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    mode: Mode = "eager"
    scripted: dict[int, Chance] | None = None
    traces_from: str | None = None
    memory_cap_gib: Annotated[float, Field(gt=0)] | None = None
    repeat_disturbed: Count = 0
    committed: StrictBool = False
    threads: Threads = 0
    mechanisms: Mechanisms | None = None
    phases: Names
    minutes: dict[str, Annotated[float, Field(gt=0, strict=True)]]

    @model_validator(mode="after")
    def _minutes_name_phases(self) -> ProfileEntry:
        if odd := sorted(set(self.minutes) ^ set(self.phases)):
            raise ValueError(
                f"phases and minutes must name the same; only one of the two has {odd}. phases: {list(self.phases)}"
            )
        return self


class Profile(Section):
    """A profile with its overrides resolved: everything that a run needs to know.

    ``threads`` 0 means every core this process may use; more than it has are refused where it would be measured
    (``room.require_cores``), not here: committed results keep the number of the machine they are of. ``minutes``
    estimates each phase.
    """

    name: str
    title: str
    pair: str
    device: str
    isolation: Isolation
    committed: bool
    threads: int
    families: tuple[str, ...]
    contexts: tuple[int, ...]
    repeats: int
    new_tokens: int
    k: int
    formulation: str
    bonus: bool
    prefill_chunk: int
    decoding: str
    batch: int
    warmup_repeats: int
    dtype: str
    mode: str = "eager"
    scripted: dict[int, float] | None = None
    traces_from: str | None = None
    memory_cap_gib: float | None = None
    repeat_disturbed: int = 0
    mechanisms: Mechanisms | None = None
    phases: tuple[str, ...]
    minutes: dict[str, float]

    @property
    def total_minutes(self) -> float:
        """Estimated minutes of all phases together."""
        return sum(self.minutes.values())

    @property
    def captured(self) -> bool:
        """Both arms replay captured graphs."""
        return self.mode != "eager"


# What of a resolved profile is a promise about the measurement. Titles, minutes, phases and `committed` are
# not: rewording a title or adding a phase must leave the rows that exist valid.
_HASHED = (
    "pair", "device", "isolation", "threads", "families", "contexts", "repeats", "new_tokens", "k",
    "formulation", "bonus", "prefill_chunk", "decoding", "batch", "warmup_repeats", "dtype",
)  # fmt: skip
# What came later, and what it is when a profile does not set it: only a set one counts, so that older hashes stay.
_HASHED_IF_SET = {
    "mode": "eager", "scripted": None, "traces_from": None, "memory_cap_gib": None, "repeat_disturbed": 0,
}  # fmt: skip


class Design(Section):
    """The whole file."""

    measurement: Measurement
    analysis: Analysis
    profiles: dict[str, ProfileEntry]

    @model_validator(mode="after")
    def _profiles_fit(self) -> Design:
        known = self.measurement.families
        _no_duplicates(self.analysis.exclude_on)
        if not self.profiles:
            raise ValueError("there is no profile; add a section [profiles.<name>]")
        for name, entry in self.profiles.items():
            if name in _RESERVED or not _NAME.fullmatch(name):
                raise ValueError(
                    f"a profile cannot be called {name!r}: data/ would hold its results under that name; take small "
                    f"letters, digits and hyphens, not my-..., ...-lab or one of {', '.join(_RESERVED)}"
                )
            chosen = known if entry.families == "all" else entry.families
            if unknown := [family for family in chosen if family not in known]:
                raise ValueError(f"profiles.{name}.families names {unknown}; there are {list(known)}")
            contexts = entry.contexts or self.measurement.contexts
            _no_duplicates(chosen, contexts)
            new = entry.new_tokens or self.measurement.new_tokens
            for context, n in entry.mechanisms.families.items() if entry.mechanisms else ():
                if context not in contexts or n > len(chosen):
                    raise ValueError(
                        f"profiles.{name}.mechanisms asks for {n} families at context {context}; "
                        f"the profile has {len(chosen)} at {list(contexts)}"
                    )
            if min(contexts) <= new:
                raise ValueError(
                    f"profiles.{name}: context {min(contexts)} has no room beside {new} new tokens"
                )
            k = entry.k or self.measurement.k
            if k >= new:
                raise ValueError(f"profiles.{name}: k = {k} proposals a round, for {new} new tokens in all")
            self._can_run(name, entry, contexts)
        return self

    def _can_run(self, name: str, entry: ProfileEntry, contexts: tuple[int, ...]) -> None:
        """Refuse what no engine can do, before any work."""
        frozen, where = self.measurement, f"profiles.{name}"
        formulation = entry.formulation or frozen.formulation
        bonus = frozen.bonus if entry.bonus is None else entry.bonus
        if entry.mode != "eager" and not (formulation == "repair-free" and bonus):
            raise ValueError(
                f"{where}: mode {entry.mode!r} replays repair-free rounds with bonus, and here formulation is "
                f"{formulation!r} and bonus {str(bonus).lower()}; set formulation = 'repair-free' and bonus = true, "
                "or mode = 'eager'"
            )
        if entry.device != "cuda" and (entry.mode != "eager" or entry.memory_cap_gib):
            what = f"mode {entry.mode!r}" if entry.mode != "eager" else "memory_cap_gib"
            raise ValueError(
                f"{where}: {what} needs a GPU, and device is {entry.device!r}; set device = 'cuda'"
            )
        _no_duplicates(entry.phases)
        without = [phase for phase in entry.phases if phase in PHASES]
        if without and not (entry.mechanisms and entry.mechanisms.families):
            raise ValueError(
                f"{where}.mechanisms.families: the phases {without} measure the first n families at each context; give "
                "at least one, such as mechanisms = { families = { 2048 = 2 }, repeats = 2 }"
            )
        given = {**entry.mechanisms.repeats_of, **entry.mechanisms.variants_of} if entry.mechanisms else {}
        if strangers := sorted(set(given) - set(entry.phases)):
            raise ValueError(
                f"{where}.mechanisms: repeats_of and variants_of name {strangers}; its phases are {list(entry.phases)}"
            )
        for phase, chosen in entry.mechanisms.variants_of.items() if entry.mechanisms else ():
            _no_duplicates(chosen)
            there = [variant.name for variant in PHASES.get(phase, ())]
            if unknown := [variant for variant in chosen if variant not in there]:
                raise ValueError(
                    f"{where}.mechanisms.variants_of: {phase!r} has no {unknown}; it has {there}"
                )
        if entry.scripted is not None and set(entry.scripted) != set(contexts):
            raise ValueError(
                f"{where}.scripted gives an alpha at {sorted(entry.scripted)}; the profile has {sorted(contexts)}"
            )
        if entry.traces_from is not None:
            recording = [other for other, one in self.profiles.items() if one.scripted is None]
            if entry.scripted is None or entry.traces_from not in recording:
                raise ValueError(
                    f"{where}.traces_from = {entry.traces_from!r}: a scripted profile takes the traces of one that "
                    f"records them, one of {recording}"
                )

    def profile(self, name: str) -> Profile:
        """The profile ``name`` with [measurement] filled in.

        Raises:
            UnknownProfile: the file has no such profile; the error lists those it has.
        """
        if name not in self.profiles:
            close = difflib.get_close_matches(name, self.profiles, n=1)
            raise UnknownProfile(
                f"No profile {name!r} in the design.",
                expected="one of " + ", ".join(self.profiles),
                remedy=f"did you mean {close[0]!r}?" if close else "add [profiles.<name>] to design.toml",
            )
        measured = self.measurement.model_dump(exclude={"development"})
        given = self.profiles[name].model_dump(exclude_none=True)
        if given["families"] == "all":
            del given["families"]
        return Profile(**{"name": name, **measured, **given})

    def measurement_hash(self, profile: str | Profile, prompts_digest: str, pair_digest: str) -> str:
        """16 hex digits that name the measurement design of ``profile``.

        Covers the resolved profile, the prompts and the models' digests. Depends on no title, estimate or
        phase list, not on the development families (no row of a held-out family comes from them), and never
        on [analysis].
        """
        resolved = self.profile(profile) if isinstance(profile, str) else profile
        value = {field: getattr(resolved, field) for field in _HASHED}
        value |= {f: v for f, unset in _HASHED_IF_SET.items() if (v := getattr(resolved, f)) != unset}
        value |= {"format": _DESIGN_FORMAT, "prompts": prompts_digest, "models": pair_digest}
        return sha256_text(canonical_json(value))[:16]

    def analysis_hash(self) -> str:
        """16 hex digits that name the analysis plan."""
        return sha256_text(canonical_json(self.analysis.model_dump()))[:16]


def load_design(path: str | Path | None = None) -> Design:
    """Read and validate the design file; by default ``design.toml`` of the project that the caller is in.

    Raises:
        InvalidDesign: it is missing, not TOML, or has an unknown key or a bad value; the error names the
            file, the key and what was expected.
    """
    path = Path(path) if path is not None else project_root() / DESIGN_FILE
    try:
        # -sig: some editors put a byte order mark first
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InvalidDesign(
            f"There is no design file {path.name}.",
            expected="the frozen design, design.toml, in the folder the study is run from",
            remedy="pass the file's path, or restore it with git",
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidDesign(
            f"{path.name}, line {line}: {error.reason}, the file is not UTF-8 there.",
            expected="UTF-8 text, as TOML asks for",
            remedy=f"write line {line} again in an editor that saves UTF-8, or restore the file with git",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidDesign(f"{path.name} is not valid TOML: {error}.", remedy="correct that line") from error
    return parse_design(content, path.name)


def parse_design(content: dict[str, Any], source: str = "design") -> Design:
    """A :class:`Design` from parsed TOML; ``source`` is the name that errors give.

    Raises:
        InvalidDesign: see :func:`load_design`.
    """
    try:
        return Design.model_validate(content)
    except ValidationError as error:
        raise _named(error, source) from error


def _no_duplicates(*lists: tuple[Any, ...]) -> None:
    for values in lists:
        if repeated := sorted({value for value in values if values.count(value) > 1}):
            raise ValueError(f"{repeated} is named twice")


def _named(error: ValidationError, source: str) -> InvalidDesign:
    """The first fault of a pydantic error as an InvalidDesign: file, key path, expected keys, remedy."""
    faults = error.errors()
    # A misspelt key is also a missing one; the key that stands in the file is what a reader can correct.
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    # A union reports each alternative that it tried; its tags ("tuple[...]", "literal[...]") are not keys.
    location = [str(part) for part in fault["loc"] if "[" not in str(part)]
    key = ".".join(location) or "(whole file)"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    if fault["type"] == "value_error":  # from a validator here; it says what was expected itself
        message = fault["msg"].removeprefix("Value error, ")
        return InvalidDesign(f"{source}: {key}: {message}{more}.", remedy=f"correct it in {source}")
    if fault["type"] not in ("extra_forbidden", "missing"):
        what = f"{source}: {key} = {fault['input']!r} is not allowed{more}."
        return InvalidDesign(what, expected=fault["msg"], remedy=f"correct {key} in {source}")
    keys = list(_section_at(fault["loc"][:-1]).model_fields)
    wrong = location[-1]
    if fault["type"] == "missing":
        what, remedy = f"{source}: key {key} is missing{more}.", f"add {key} to {source}"
    else:
        what = f"{source}: unknown key {key}{more}."
        close = difflib.get_close_matches(wrong, keys, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"remove {key} from {source}"
    return InvalidDesign(what, expected="keys " + ", ".join(keys), remedy=remedy)


def _section_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that the key path ``location`` leads to."""
    section: type[BaseModel] = Design
    for part in location:
        field = section.model_fields.get(str(part))
        if field is None:  # a key of a table of tables, such as a profile's name
            continue
        kinds = (field.annotation, *get_args(field.annotation))
        section = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), section)
    return section
