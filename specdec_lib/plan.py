"""The list of jobs that follows from a profile: which process runs what, in which order. See :func:`plan`."""

from __future__ import annotations

from typing import get_args

from specdec_lib.design import Arm, Block, Isolation, Profile, Section
from specdec_lib.errors import InvalidSetting


class Run(Section):
    """One timed run.

    ``repeat`` counts from 1 per (family, context, arm). ``position`` counts from 0: the place in its process
    (isolation "cell") or in its family's block, over both arms (the other two).
    """

    family: str
    arm: Arm
    block: Block
    repeat: int
    position: int


class Job(Section):
    """One process: what it runs, in this order. ``order`` is its place among all jobs of the profile."""

    name: str
    profile: str
    context: int
    isolation: Isolation
    order: int
    runs: tuple[Run, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The families this process runs, in order."""
        return tuple(dict.fromkeys(run.family for run in self.runs))

    @property
    def family(self) -> str:
        """The one family of a "cell" or "block" job; an error for a "context" job, which has several."""
        if len(self.families) != 1:
            raise InvalidSetting(f"Job {self.name} runs several families.", remedy="use job.families")
        return self.families[0]


def plan(profile: Profile, context: int | None = None) -> list[Job]:
    """Every job of ``profile`` in the order in which they run, or those of one ``context``.

    Repeats are split over two blocks against thermal and order drift. In block AB the AR arm (A) runs before
    the SpecDec arm (B), in block BA after it; which block has the odd repeat alternates over families.

    - isolation "block": a process per (context, family, block, arm): A A A | B B B | B B | A A.
    - isolation "cell": a process per (context, family): A B B A A B ...
    - isolation "context": a process per (context, block); each family in turn, as in "block".

    Raises:
        InvalidSetting: the profile has no such context.
    """
    if context is not None and context not in profile.contexts:
        raise InvalidSetting(
            f"Profile {profile.name!r} has no context {context}.",
            expected="one of " + ", ".join(map(str, profile.contexts)),
        )
    processes: list[tuple[int, str, list[Run]]] = []
    for length in profile.contexts:
        by_block: dict[Block, list[Run]] = {"AB": [], "BA": []}
        for index, family in enumerate(profile.families):
            if profile.isolation == "cell":
                processes.append((length, family, _cell_runs(family, profile.repeats)))
                continue
            for block in get_args(Block):
                runs = _block_runs(family, index, block, profile.repeats)
                by_block[block] += runs
                if profile.isolation == "block":
                    for arm in _arms(block):
                        ours = [run for run in runs if run.arm == arm]
                        if ours:
                            processes.append((length, f"{family}-{block}-{arm}", ours))
        if profile.isolation == "context":
            processes += [(length, block, runs) for block, runs in by_block.items() if runs]
    jobs = [
        Job(
            name=f"confirmatory-{length}-{label}",
            profile=profile.name,
            context=length,
            isolation=profile.isolation,
            order=order,
            runs=tuple(runs),
        )
        for order, (length, label, runs) in enumerate(processes)
    ]
    return [job for job in jobs if context in (None, job.context)]


def _arms(block: Block) -> tuple[Arm, Arm]:
    return ("ar", "spec") if block == "AB" else ("spec", "ar")


def _cell_runs(family: str, repeats: int) -> list[Run]:
    runs: list[Run] = []
    for repeat in range(1, repeats + 1):
        block: Block = "AB" if repeat % 2 else "BA"
        for arm in _arms(block):
            runs.append(Run(family=family, arm=arm, block=block, repeat=repeat, position=len(runs)))
    return runs


def _block_runs(family: str, index: int, block: Block, repeats: int) -> list[Run]:
    larger = (repeats + 1) // 2
    first = larger if index % 2 == 0 else repeats - larger  # repeats of block AB
    numbers = range(1, first + 1) if block == "AB" else range(first + 1, repeats + 1)
    ordered: list[tuple[Arm, int]] = [(arm, repeat) for arm in _arms(block) for repeat in numbers]
    return [
        Run(family=family, arm=arm, block=block, repeat=repeat, position=position)
        for position, (arm, repeat) in enumerate(ordered)
    ]
