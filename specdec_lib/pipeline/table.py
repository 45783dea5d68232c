"""What ``make book`` runs. A new phase is one notebook and one line here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_lib.design import Profile
from specdec_lib.errors import InvalidSetting

Literal = bool | int | float | str | list["Literal"] | None


@dataclass(frozen=True)
class Promise:
    """A file under ``data/<profile>/`` that a step must write, and the schema (``records.py``) it must
    satisfy."""

    path: str
    schema: str | None = None


@dataclass(frozen=True)
class Phase:
    """One line of the table.

    ``needs`` names earlier phases whose promised files this one reads. ``per_context`` runs the notebook
    once for each context of the profile, with ``context`` passed and ``{context}`` filled in. ``profile``
    and ``data_dir`` are passed to every notebook. ``quick`` are parameters that a quick look (two repeats) changes,
    ``on_gpu`` those that a profile on a GPU changes.
    """

    name: str
    notebook: str
    promises: tuple[Promise, ...]
    needs: tuple[str, ...] = ()
    parameters: Mapping[str, Literal] = field(default_factory=dict)
    per_context: bool = False
    quick: Mapping[str, Literal] = field(default_factory=dict)
    on_gpu: Mapping[str, Literal] = field(default_factory=dict)


_QUICK_REPEATS = 2
PHASES: tuple[Phase, ...] = (
    Phase("smoke", "smoke", (Promise("smoke.csv"),)),
    Phase(
        "correctness",
        "correctness",
        (Promise("correctness.csv", "correctness"), Promise("worked-round.json")),
        parameters={"new_tokens": 12},
        quick={"new_tokens": 10},
    ),
    Phase(
        "validity",
        "validity",
        (
            Promise("aa.csv", "aa"),
            Promise("coverage.csv", "coverage"),
            Promise("thresholds.csv", "thresholds"),
        ),
        parameters={"replications": 4000, "longest_context": 4096},
        on_gpu={"longest_context": 2048},
    ),
    Phase(
        "confirmatory",
        "confirmatory",
        (Promise("confirmatory-{context}.csv", "confirmatory"), Promise("stages-{context}.csv", "stages")),
        per_context=True,
    ),
    Phase(
        "acceptance", "acceptance", (Promise("acceptance.csv", "proposals"), Promise("traces.csv", "traces"))
    ),
    Phase("control-plane", "control-plane", (Promise("control-plane.csv", "mechanism"),)),
    Phase(
        "relaxed", "relaxed", (Promise("relaxed.csv", "mechanism"), Promise("relaxed-quality.csv", "quality"))
    ),
    Phase("all-accept", "all-accept", (Promise("all-accept.csv", "mechanism"),)),
    Phase("draft-free", "draft-free", (Promise("draft-free.csv", "mechanism"),)),
    Phase("graphs", "graphs", (Promise("graphs.csv", "graphs"),)),
    Phase("dial", "dial", (Promise("dial.csv", "mechanism"),)),
    Phase("formulations", "formulations", (Promise("formulations.csv", "mechanism"),)),
    Phase("numerics", "numerics", (Promise("numerics.csv", "numerics"),)),
    Phase(
        "cost-model",
        "cost-model",
        (
            Promise("costs.csv", "costs"),
            Promise("cost-fit.csv", "cost-fit"),
            Promise("predictions.csv", "predictions"),
            Promise("break-even.csv", "break-even"),
            Promise("cost-model.csv", "mechanism"),
        ),
    ),
)


def promise_of(file: str) -> Promise | None:
    """The promise that ``file`` of a data folder keeps, for whichever context; None for a file that no phase writes."""
    of_any_context = re.sub(r"-\d+\.csv$", "-{context}.csv", file)
    known = {promise.path: promise for phase in PHASES for promise in phase.promises}
    return known.get(of_any_context)


@dataclass(frozen=True)
class Step:
    """One execution of one notebook."""

    name: str
    notebook: str
    parameters: Mapping[str, Literal]
    promises: tuple[Promise, ...]
    needs: tuple[str, ...] = ()  # names of steps


def steps(profile: Profile, phases: tuple[Phase, ...] | None = None, folder: str = "") -> tuple[Step, ...]:
    """The steps of ``profile`` in the order of the table; they write to ``data/<folder>``, by default the profile's.

    Raises:
        InvalidSetting: the profile lists a phase the table does not have, or one without the phases it needs.
    """
    table = PHASES if phases is None else phases
    known = [phase.name for phase in table]
    if unknown := [name for name in profile.phases if name not in known]:
        raise InvalidSetting(
            f"Profile {profile.name!r} lists unknown phases {unknown}.",
            expected="phases of specdec_lib/pipeline/table.py: " + ", ".join(known),
            remedy="correct `phases` in design.toml, or add a line to the table",
        )
    chosen = [phase for phase in table if phase.name in profile.phases]
    result: list[Step] = []
    expanded: dict[str, list[str]] = {}
    for phase in chosen:
        if missing := [name for name in phase.needs if name not in expanded]:
            raise InvalidSetting(
                f"Phase {phase.name!r} needs {missing}, not before it in {profile.name!r}.",
                remedy="add them to the profile's `phases`, or order the table",
            )
        needs = tuple(step for name in phase.needs for step in expanded[name])
        contexts: tuple[int | None, ...] = profile.contexts if phase.per_context else (None,)
        for context in contexts:
            extra = {} if context is None else {"context": context}
            result.append(
                Step(
                    name=phase.name if context is None else f"{phase.name}-{context}",
                    notebook=phase.notebook,
                    parameters={
                        "profile": profile.name,
                        "data_dir": f"data/{folder or profile.name}",
                        **phase.parameters,
                        **(phase.quick if profile.repeats <= _QUICK_REPEATS else {}),
                        **(phase.on_gpu if profile.device == "cuda" else {}),
                        **extra,
                    },
                    promises=tuple(Promise(p.path.format(context=context), p.schema) for p in phase.promises),
                    needs=needs,
                )
            )
        expanded[phase.name] = [step.name for step in result[-len(contexts) :]]
    return tuple(result)
