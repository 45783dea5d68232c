"""What a folder's profile should have given and is not there: an interrupted run, or a table that was deleted."""

from __future__ import annotations

from pathlib import Path

from specdec_lib.report import folders, text


def absent(one: folders.Results) -> dict[str, list[str]]:
    """Per step of the folder's profile: the files that it should have written and that are not there."""
    from specdec_lib.pipeline.table import steps

    wanted = {step.name: [promise.path for promise in step.promises] for step in steps(one.profile)}
    found = {name: [file for file in files if not one.has(file)] for name, files in wanted.items()}
    return {name: files for name, files in found.items() if files}


def sentences(root: Path | None = None) -> list[str]:
    """Of every folder that lacks something."""
    return [told for _, told in each(root)]


def each(root: Path | None = None) -> list[tuple[folders.Results, str]]:
    """Per folder that lacks something: what, and the command that measures it. The other pages are silent about it."""
    found = []
    for one in folders.all_folders(root):
        if lacking := absent(one):
            files = text.listed(
                f"{name} ({text.listed(f'`{file}`' for file in lost)})" for name, lost in lacking.items()
            )
            what = f"a part of the profile `{one.profile.name}`. {one.named} lacks it, and no page shows it: {files}"
            found.append(
                (one, text.not_measured(what, one.command or f"make runs PROFILE={one.profile.name}"))
            )
    return found
