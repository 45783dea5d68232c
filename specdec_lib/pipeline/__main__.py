"""``python -m specdec_lib.pipeline COMMAND``: everything ``make`` does once the environment exists."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from specdec_lib.errors import BookError, EnvironmentIncomplete, InvalidSetting, SpecDecError
from specdec_lib.paths import DESIGN_FILE, project_root

# Heavy imports are inside the functions: `book` with nothing to do answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it succeeded, 1 after a named error, 130 after Ctrl-C, 143 after SIGTERM."""
    options = _parser().parse_args(arguments)
    on_main = threading.current_thread() is threading.main_thread()  # no other may set a handler
    before = signal.signal(signal.SIGTERM, _terminate) if on_main else None
    try:
        return options.run(project_root(), options)
    except SpecDecError as error:
        return _named(error)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "specdec_lib":
            raise
        return _named(
            EnvironmentIncomplete(
                f"This Python {sys.version.split()[0]} has no package {error.name!r}.",
                expected="the study's own environment",
                remedy="run `make env` once, then `.venv/bin/python -m specdec_lib.pipeline ...`",
            )
        )
    except KeyboardInterrupt as error:
        print("\nInterrupted. Run the same command again: it goes on from here.", file=sys.stderr)
        return 143 if isinstance(error, _Terminated) else 130
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which must end what was started as Ctrl-C does."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def _named(error: SpecDecError) -> int:
    print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_lib.pipeline", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    table: tuple[tuple[str, Callable[[Path, argparse.Namespace], int], str], ...] = (
        ("book", _book, "run what is out of date of a profile, then render the report"),
        ("runs", _runs, "only run what is out of date of a profile"),
        ("html", _html, "only render what is in data/"),
        ("site", _site, "render, then make a self-contained folder and zip in dist/"),
        ("doctor", _doctor, "say what this machine can run"),
        ("lab", _lab, "open the notebooks in JupyterLab"),
        ("clean", _clean, "remove local runs and rendered pages"),
        ("environment", _environment, "write environment.yml from requirements.lock"),
    )
    for name, function, text in table:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=function)
        if name in ("book", "runs", "html"):
            command.add_argument("--again", action="store_true", help="do it even when nothing has changed")
        if name in ("book", "runs"):
            command.add_argument(
                "--profile", dest="profiles", nargs="*", default=["cpu"],
                help="one or more profiles of design.toml (default: cpu)",
            )  # fmt: skip
            command.add_argument(
                "--as", dest="named", default="", metavar="MY-NAME",
                help="measure into data/MY-NAME instead, such as my-full: a committed profile on this machine",
            )  # fmt: skip
    return parser


def _runs(root: Path, options: argparse.Namespace) -> int:
    for profile in _profiles(root, options):
        _run(root, profile, options)
    return 0


def _run(root: Path, profile: str, options: argparse.Namespace) -> None:
    from specdec_lib.pipeline.lock import named_write_errors
    from specdec_lib.pipeline.runner import run_profile

    if _committed(root, profile, options):
        _say(
            f"data/{profile} holds committed results: they are kept as they were measured, only what is missing is "
            f"measured here.\nTo measure all of it on this machine: make runs PROFILE={profile} INTO=my-{profile}\n"
            f"To derive its tables anew from its jobs, by today's sources: make runs PROFILE={profile} ARGS=--again"
        )
    with named_write_errors(root / "data" / (options.named or profile), root):
        outcome = run_profile(root, profile, again=options.again, named=options.named)
    done = f"{len(outcome.executed)} steps executed" if outcome.executed else "nothing executed"
    _say(f"data/{options.named or profile}: {done}, {len(outcome.kept)} up to date.")


def _profiles(root: Path, options: argparse.Namespace) -> list[str]:
    """The profiles asked for, all of them known before the first is run."""
    from specdec_lib.design import load_design

    design = load_design(root / DESIGN_FILE)
    for name in options.profiles or [""]:  # `PROFILE=` names none
        design.profile(name)
    if options.named and len(options.profiles) > 1:
        raise InvalidSetting(
            f"{len(options.profiles)} profiles into one folder, {options.named!r}.",
            expected="one profile where INTO (--as) names the folder",
            remedy="run them one by one",
        )
    return options.profiles


def _committed(root: Path, profile: str, options: argparse.Namespace) -> bool:
    from specdec_lib.design import load_design

    return not options.named and load_design(root / DESIGN_FILE).profile(profile).committed


def _html(root: Path, options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.html import build

    rendered = build(root, again=options.again)
    _say(f"book/_build/html/index.html: {'rendered' if rendered else 'up to date'}.")
    return 0


def _book(root: Path, options: argparse.Namespace) -> int:
    for profile in _profiles(root, options):
        if _committed(root, profile, options):
            _require_committed(root, profile)
        else:
            _run(root, profile, options)
    return _html(root, options)


def _require_committed(root: Path, profile: str) -> None:
    """A committed profile is never run as a side effect of rendering."""
    from specdec_lib.pipeline.runner import missing_results

    if absent := missing_results(root, profile):
        raise BookError(
            f"data/{profile} lacks {', '.join(absent[:5])}{' ...' if len(absent) > 5 else ''}.",
            expected="the committed results of this profile",
            remedy=f"restore them with `git checkout data/{profile}`, or: make runs PROFILE={profile}",
        )


def _site(root: Path, options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.site import make_site

    options.again = False
    _html(root, options)
    archive = make_site(root)
    _say(f"dist/{archive.name}: {archive.stat().st_size / 1e6:.1f} MB; beside it the same as a folder.")
    return 0


def _doctor(root: Path, options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.doctor import report

    for line in report(root):
        print(line)
    return 0


def _lab(root: Path, options: argparse.Namespace) -> int:
    os.environ["SPECDEC_ROOT"] = str(root)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # python3 is this environment's own kernel
    command = [sys.executable, "-m", "jupyter", "lab", str(root / "notebooks")]
    if os.name == "nt":  # there exec starts a stranger and gives the terminal back at once
        return subprocess.run(command, check=False).returncode
    os.execv(sys.executable, command)


def _clean(root: Path, options: argparse.Namespace) -> int:
    """Remove what can be made again: runs of profiles that are not committed, lab runs, pages, the site."""
    from specdec_lib.design import load_design
    from specdec_lib.pipeline.lock import data_lock

    profiles = load_design(root / DESIGN_FILE).profiles
    local = [name for name, entry in profiles.items() if not entry.committed]
    local += [f"{name}-lab" for name in profiles]
    for folder in [*(root / "data" / name for name in local), root / "book" / "_build", root / "dist"]:
        if folder.is_dir():
            with data_lock(folder, root):  # not under a run's feet
                pass
            shutil.rmtree(folder)
            _say(f"removed {folder.relative_to(root).as_posix()}")
    return 0


def _environment(root: Path, options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.environment import write_environment

    _say(f"{write_environment(root).name} written.")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
