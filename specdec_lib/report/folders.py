"""Which results there are: one :class:`Results` per folder under ``data/``, and its tables.

A folder joins every comparison by having a provenance file; no page names it. Two kinds join nothing: folders that
end in ``-lab``, trials from an open notebook; and random weights whose acceptance nobody scripted: their R is chance.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.design import Design, Profile, load_design
from specdec_lib.errors import TableError, TableMissing
from specdec_lib.pairs import ALIASES, PAIRS
from specdec_lib.paths import DESIGN_FILE, project_root
from specdec_lib.records import read_table

# Committed profiles whose results are not complete: what there is of them is shown, and the build does not fail.
PENDING: tuple[str, ...] = ()
# pandas' types say that df[mask][column] may be almost anything; in the report a table is just a table.
Table = Any
PROVENANCE = "provenance.json"
_TRIAL = "-lab"
OWN = "my-"  # how the name of a folder begins that INTO makes


@dataclass(frozen=True)
class Results:
    """One folder of results. Tables are read on first use, and must carry the folder's design hash."""

    name: str
    folder: Path
    design: Design
    provenance: dict[str, Any]

    @cached_property
    def profile(self) -> Profile:
        """The profile that was measured; its name may differ from the folder's."""
        return self.design.profile(self.provenance["profile"])

    @property
    def synthetic(self) -> bool:
        """Random weights: its timings are valid, its texts and natural acceptance mean nothing."""
        return has_random_weights(self.profile.pair)

    @property
    def scripted(self) -> bool:
        """Which proposals pass is imposed, at the acceptance that the profile gives."""
        return self.profile.scripted is not None

    @property
    def joins(self) -> bool:
        """It stands beside the others: real weights, or random ones whose acceptance is scripted."""
        return not self.synthetic or self.scripted

    @property
    def cuda(self) -> bool:
        """Measured on a GPU."""
        return str(self.provenance.get("device", {}).get("device", "cpu")).startswith("cuda")

    @property
    def disturbance(self) -> float:
        """The share of a run's time from which on others disturbed it, by the design's limit."""
        return self.design.analysis.thresholds("gpu" if self.cuda else "cpu").undisturbed

    @property
    def mode(self) -> str:
        """How the engine ran: eager, graphs, compiled."""
        return self.profile.mode

    @property
    def quick(self) -> bool:
        """Too few repeats for an interval: a quick look."""
        return self.profile.repeats < self.design.analysis.interval.min_repeats

    @property
    def committed(self) -> bool:
        """Part of the repository, under its profile's own name."""
        return self.name == self.profile.name and self.profile.committed

    @property
    def command(self) -> str:
        """What measures the folder's missing parts on this machine; "" for a name into which nothing is measured."""
        if self.name == self.profile.name:
            return f"make runs PROFILE={self.name}"
        return f"make runs PROFILE={self.profile.name} INTO={self.name}" if self.name.startswith(OWN) else ""

    @property
    def label(self) -> str:
        """The folder's name and what a reader must know to weigh it."""
        kinds = ["this machine"] if not self.committed else []
        kinds += ["synthetic"] if self.synthetic else []
        kinds += ["quick look"] if self.quick else []
        return f"{self.name} ({', '.join(kinds)})" if kinds else self.name

    @property
    def named(self) -> str:
        """The folder in a sentence: its name as code, and whether its numbers are synthetic."""
        return f"`{self.name}`{' (synthetic)' if self.synthetic else ''}"

    @property
    def setup(self) -> str:
        """What the SpecDec arm of the confirmatory run does, and under which acceptance."""
        p = self.profile
        return f"{p.formulation}{', bonus' * p.bonus}, k = {p.k}{', acceptance imposed' * self.scripted}"

    @property
    def hardware(self) -> str:
        """Device, threads or mode, and precision, for captions."""
        machine, device = self.provenance.get("machine", {}), self.provenance.get("device", {})
        dtype = str(device.get("dtype", "precision not recorded")).upper()
        if self.cuda:
            cap = self.profile.memory_cap_gib
            capped = f", {cap:g} GiB cap" if cap else ""
            return f"{device.get('device_name', 'GPU')}, {dtype}, {self.mode}{capped}"
        return f"{machine.get('cpu', 'CPU')}, {machine.get('threads_used', '?')} threads, {dtype}"

    @cached_property
    def contexts(self) -> tuple[int, ...]:
        """Context lengths that have a confirmatory table, in tokens."""
        found = (path.stem.removeprefix("confirmatory-") for path in self.folder.glob("confirmatory-*.csv"))
        return tuple(sorted(int(context) for context in found if context.isdecimal()))  # else a reader's copy

    @cached_property
    def runs(self) -> Table:
        """Every measured run (schema "confirmatory"), all contexts."""
        return self._tables("confirmatory")

    @cached_property
    def stages(self) -> Table | None:
        """Where the instrumented repeats spent their time (schema "stages"), or None."""
        found = list(self.folder.glob("stages-*.csv"))
        return self._tables("stages") if found else None

    @cached_property
    def families(self) -> Table:
        """One row per (context, family): schema "families"."""
        from specdec_lib.analysis import families_table

        return families_table(self.runs, self.design)

    @cached_property
    def summary(self) -> Table:
        """One row per context: schema "summary"."""
        from specdec_lib.analysis import summary_table

        return summary_table(self.families, self.design)

    def summary_at(self, context: int) -> dict[str, Any]:
        """The row of :attr:`summary` of one context."""
        return next(row for row in self.summary.to_dict("records") if row["context_tokens"] == context)

    @cached_property
    def exclusions(self) -> Table:
        """One row per failed check of a cell: schema "exclusions"."""
        from specdec_lib.analysis import exclusions_table

        return exclusions_table(self.runs, self.design)

    def once(self, name: str, make: Callable[[], Table]) -> Table:
        """What ``make`` returns, made once: pages ask again and again. A copy, so that no page alters another's."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name].copy()

    @cached_property
    def _made(self) -> dict[str, Table]:
        return {}

    def table(self, file: str, schema: str) -> Table:
        """A table of the folder, which must be of the folder's design. Raises what ``read_table`` raises."""
        return self.once(file, lambda: read_table(self.folder / file, schema, self._hash))

    def optional(self, schema: str) -> Table | None:
        """The table ``<schema>.csv`` of this folder, or None where it was not made."""
        return self.table(f"{schema}.csv", schema) if self.has(f"{schema}.csv") else None

    def has(self, *files: str) -> bool:
        """Whether the folder holds all of ``files``."""
        return all((self.folder / file).is_file() for file in files)

    def csv(self, file: str) -> str:
        """A file's address for a caption's link."""
        return f"{self.name}/{file}"

    @property
    def runs_csv(self) -> str:
        """The address of the runs at the shortest context."""
        return self.csv(f"confirmatory-{self.contexts[0]}.csv")

    def cells(self, context: int) -> Table:
        """:attr:`families` of one context."""
        return self.families[self.families["context_tokens"] == context]

    @property
    def _hash(self) -> str:
        return str(self.provenance["design_hash"])

    def _tables(self, schema: str) -> pd.DataFrame:
        paths = [self.folder / f"{schema}-{context}.csv" for context in self.contexts]
        wanted = [path for path in paths if path.is_file() or schema == "confirmatory"]
        return pd.concat([read_table(path, schema, self._hash) for path in wanted], ignore_index=True)


def has_random_weights(pair: str) -> bool:
    """Whether a profile's pair is one with random weights."""
    name = ALIASES.get(pair, pair)
    return name in PAIRS and PAIRS[name].synthetic


def read_design(root: Path | None = None) -> Design:
    """The design of the project at ``root``."""
    return load_design((root or project_root()) / DESIGN_FILE)


def all_folders(root: Path | None = None) -> list[Results]:
    """Every folder with a provenance file: committed profiles in the design's order, then the others by name.

    Raises:
        TableMissing: a committed profile that is meant to exist lacks a table; the remedy is the command.
    """
    root = root or project_root()
    design = read_design(root)
    found = {}
    for path in sorted((root / "data").glob(f"*/{PROVENANCE}")):
        if not path.parent.name.endswith(_TRIAL):
            found[path.parent.name] = _opened(path.parent, design)
    committed = [name for name, entry in design.profiles.items() if entry.committed]
    for name in committed:
        _require(name, found.get(name), design)
    order = [name for name in committed if name in found]
    return [found[name] for name in [*order, *(name for name in found if name not in order)]]


# A page asks for the folders again and again; what is derived from their tables is derived once.
_OPENED: dict[Path, tuple[Any, Results]] = {}


def _opened(folder: Path, design: Design) -> Results:
    """The folder's results, the same object as long as neither a file of it nor the design has changed."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".json"))
    stamp = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    known, results = _OPENED.get(folder, (None, None))
    if results is None or known != stamp or results.design != design:
        results = Results(folder.name, folder, design, _provenance(folder, design))
        _OPENED[folder] = (stamp, results)
    return results


def _provenance(folder: Path, design: Design) -> dict[str, Any]:
    """The folder's provenance. Raises ``TableError``, with the folder's name, where it says too little to be shown."""
    content: Any = None
    with contextlib.suppress(ValueError):  # no JSON, or no UTF-8
        content = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    parts = ("device", "machine")
    known = isinstance(content, dict) and all(isinstance(content.get(name, {}), dict) for name in parts)
    if known and content.get("profile") in design.profiles and isinstance(content.get("design_hash"), str):
        return content
    said = content.get("profile") if known else None
    raise TableError(
        f"data/{folder.name}/{PROVENANCE} is damaged"
        + (f", or its profile {said!r} is no longer in design.toml." if said else "."),
        expected="the file as the run wrote it: JSON with profile, design_hash, machine and device",
        remedy=f"restore it (git checkout data/{folder.name}), or move data/{folder.name} away",
    )


def measured(root: Path | None = None, *, real_only: bool = False) -> list[Results]:
    """The folders that hold confirmatory runs and join comparisons; ``real_only`` where the text itself counts."""
    return [one for one in joining(root) if one.contexts and not (real_only and one.synthetic)]


def joining(root: Path | None = None) -> list[Results]:
    """The folders that stand beside each other (:attr:`Results.joins`)."""
    return [one for one in all_folders(root) if one.joins]


def all_with(file: str, root: Path | None = None) -> list[Results]:
    """The joining folders that have ``file``; where none has, the one of :func:`first_with`, if any."""
    first = first_with(file, root)
    return [one for one in joining(root) if one.has(file)] or ([first] if first else [])


def first_with(file: str, root: Path | None = None) -> Results | None:
    """The folder whose ``file`` a page should show: real weights before random, committed before local."""
    having = [one for one in all_folders(root) if one.has(file)]
    return min(having, key=lambda one: one.synthetic, default=None)


def _require(name: str, found: Results | None, design: Design) -> None:
    if name in PENDING or "confirmatory" not in design.profiles[name].phases:
        return
    wanted = {f"confirmatory-{context}.csv" for context in design.profile(name).contexts}
    if absent := sorted(file for file in wanted if found is None or not found.has(file)):
        raise TableMissing(
            f"data/{name} lacks {', '.join(absent)}, which the report is built from.",
            expected="the committed results of this profile",
            remedy=f"restore them with `git checkout data/{name}`, or: make runs PROFILE={name}",
        )
