"""Published numbers and every folder of results side by side: the headline, the results' tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_lib.report import folders, models, published, text
from specdec_lib.report.style import number

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """One line of a comparison: where its numbers come from and one row per context (schema "summary")."""

    label: str
    hardware: str  # and the pair of models
    summary: pd.DataFrame
    csv: str
    results: folders.Results | None = None  # None: the article

    @property
    def rows(self) -> list[Row]:
        """The summary's rows as plain values, contexts ascending."""
        return [{str(key): value for key, value in row.items()} for row in self.summary.to_dict("records")]

    @property
    def repeats(self) -> int:
        """Planned repeats per family and arm."""
        return self.results.profile.repeats if self.results else 5

    @property
    def setup(self) -> str:
        """What the SpecDec arm does."""
        return self.results.setup if self.results else published.SETUP

    @property
    def spread(self) -> str:
        """n and what the interval is, for captions."""
        counts = text.listed(f"{row['n_in_inference']} of {row['n']}" for row in self.rows)
        interval = "no interval"
        if any(row["low"] == row["low"] for row in self.rows):
            interval = "bootstrap interval"
            if self.results:
                plan = self.results.design.analysis.interval
                interval = f"{text.percent(plan.level, 0)} interval over families ({plan.method})"
        return f"{counts} families in inference, {self.repeats} repeats, {interval}"


def from_article(root: Path | None = None) -> Source:
    """The published study as a source."""
    return Source(published.LABEL, published.HARDWARE, published.summary(root), published.CSV)


def sources(
    root: Path | None = None, *, committed_only: bool = False, real_only: bool = False
) -> list[Source]:
    """The article, then every measured folder that joins comparisons; ``real_only`` where the text itself counts."""
    return [from_article(root)] + [
        Source(one.label, models.setting(one), one.summary, one.runs_csv, one)
        for one in folders.measured(root, real_only=real_only)
        if one.committed or not committed_only
    ]


def ours(found: list[Source]) -> list[folders.Results]:
    """The measured folders of a comparison."""
    return [source.results for source in found if source.results]


def files(found: list[Source]) -> list[str]:
    """A file of every source, for the links of a caption."""
    return [source.csv for source in found]


def contexts(found: list[Source]) -> list[int]:
    """Every context that any source has, ascending."""
    return sorted({int(row["context_tokens"]) for source in found for row in source.rows})


def by_context(found: list[Source]) -> list[tuple[Source, Row]]:
    """Every row with its source: contexts ascending, sources in their order."""
    pairs = [(source, row) for source in found for row in source.rows]
    return sorted(pairs, key=lambda pair: pair[1]["context_tokens"])


def table(
    found: list[Source], columns: dict[str, Callable[[Row], Any]], *, setup: bool = False
) -> pd.DataFrame:
    """One row per (context, source); ``columns`` maps a heading to what it shows of a summary row.

    ``setup``: say what each source's SpecDec arm does.
    """
    rows = [
        {"context": text.context_name(row["context_tokens"]), "source": source.label}
        | {heading: _value(show, row) for heading, show in columns.items()}
        | ({"SpecDec": source.setup} if setup else {})  # last: it is the widest, and may scroll out of sight
        for source, row in by_context(found)
    ]
    return pd.DataFrame(rows, dtype=object)


def _value(show: Callable[[Row], Any], row: Row) -> Any:
    try:
        return show(row)
    except KeyError:  # the article does not give it
        return "not stated"


# R of one folder and context has several values: of the families in the inference, and of all. Each heading says which.
IN_INFERENCE, ALL = "R_GM, in inference", "R_GM, all families"
VERDICTS: dict[str, Callable[[Row], Any]] = {
    IN_INFERENCE: lambda row: number(row["R_GM"]) if row["n_in_inference"] else "none passed",
    "interval": lambda row: (
        f"{number(row['low'])}\u00a0to\u00a0{number(row['high'])}" if row["low"] == row["low"] else "none"
    ),
    "families in inference": lambda row: f"{row['n_in_inference']} of {row['n']}",
    "verdict": lambda row: row["verdict"],
}
TIMES: dict[str, Callable[[Row], Any]] = {
    "AR median, s": lambda row: row["ar_median_s"],
    "SpecDec median, s": lambda row: row["spec_median_s"],
    ALL: lambda row: row["R_GM_all"],
    "the same with prefill": lambda row: row["R_GM_all_with_prefill"],
    "slower families": lambda row: f"{row['slower_families_n']} of {row['n']}",
}
ACCEPTANCE: dict[str, Callable[[Row], Any]] = {
    "acceptance": lambda row: row["acceptance_median"],
    "alpha": lambda row: row["alpha_median"],
    "tokens per round": lambda row: row["tokens_per_round_median"],
    "rounds": lambda row: row["rounds_median"],
    "target calls": lambda row: row["target_calls_median"],
    ALL: lambda row: row["R_GM_all"],
    IN_INFERENCE: lambda row: number(row["R_GM"]) if row["n_in_inference"] else "none passed",
}


def headline(found: list[Source]) -> list[str]:
    """The landing page's answer: one paragraph per source, verdicts computed."""
    parts = []
    for source in found:
        opening = "As published" if source.results is None else f"In {source.results.named}"
        kind = "; a quick look" if source.results and source.results.quick else ""
        parts.append(
            f"**{opening}** ({source.hardware}{kind}) speculative decoding "
            f"{text.verdict_overview(source.rows, '')}. "
            f"R_GM is {text.listed(text.estimate(row) for row in source.rows)}"
            f"{', in this order' * (len(source.rows) > 1)}."
            f"{f' That is decoding alone. {told}' if (told := prefill_told(source)) else ''}"
        )
    return parts


def prefill_told(source: Source) -> str:
    """What is left of the verdicts when both arms also pay their prefills, by the same rule and of the same families.

    Said of every context where speculation pays, and wherever the prefill changes the verdict.
    """
    if source.results is None:
        return ""
    decoding = {row["context_tokens"]: row["verdict"] for row in source.rows}
    rows = []
    for row in with_prefill(source.results):
        before = decoding[row["context_tokens"]]
        if before == "pays" or row["verdict"] != before:
            rows.append(row)
    if not rows:
        return ""
    each = text.estimates(rows)
    return (
        f"With the prefill of both models counted, for {source.results.profile.new_tokens} new tokens, it "
        f"**{text.verdict_overview(rows, '')}**: R_GM is {each}."
    )


def with_prefill(one: folders.Results) -> list[Row]:
    """The folder's summary of decoding and prefill together: R_GM with its interval and verdict, a row per context."""
    from specdec_lib.analysis import summary_table

    families: Any = one.families
    whole: Any = summary_table(families.assign(R=families["R_with_prefill"]), one.design)
    return [{str(key): value for key, value in row.items()} for row in whole.to_dict("records")]


def agreement(found: list[Source]) -> str:
    """Whether the project's own verdicts repeat the published ones, contradict them or leave them open; "" with none.

    Only a verdict on the other side of 1 contradicts.
    """
    article = {row["context_tokens"]: row["verdict"] for row in found[0].rows}
    lines = []
    for source in found[1:]:
        rows = [r for r in source.rows if r["verdict"] != "no interval" and r["context_tokens"] in article]
        kinds: dict[str, list[str]] = {"same": [], "open": [], "other": []}
        for r in rows:
            ours, theirs = r["verdict"], article[r["context_tokens"]]
            kind = "same" if ours == theirs else "open" if "undecided" in (ours, theirs) else "other"
            kinds[kind].append(text.context_name(r["context_tokens"]))
        if kinds["same"]:
            lines.append(
                f"{source.label} repeats the published verdict, not its size, at {text.listed(kinds['same'])}."
            )
        if kinds["open"]:
            nothing = "" if kinds["other"] else "; nothing here contradicts it"
            lines.append(
                f"{source.label} is undecided at {text.listed(kinds['open'])}, where the published study has a "
                f"verdict{nothing}."
            )
        if kinds["other"]:
            lines.append(
                f"{source.label} comes to the other verdict than the published one, in its own setting, at "
                f"{text.listed(kinds['other'])}."
            )
    return " ".join(lines)


def missing_local(found: list[Source]) -> str:
    """The "not measured here" line where no folder of this machine joins the comparison."""
    if any(source.results and not source.results.committed for source in found):
        return ""
    return text.not_measured("this machine's own times")


def missing_committed(found: list[Source], root: Path | None = None) -> str:
    """The same for committed profiles whose run is still pending."""
    have = {source.results.name for source in found if source.results}
    wanted = [
        n for n, entry in folders.read_design(root).profiles.items()
        if entry.committed and "confirmatory" in entry.phases and n not in have
    ]  # fmt: skip
    return " ".join(
        text.not_measured(f"the profile `{name}`", f"make runs PROFILE={name}") for name in wanted
    )
