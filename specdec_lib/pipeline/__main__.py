"""``python -m specdec_lib.pipeline COMMAND``: everything ``make`` does after the environment exists."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from specdec_lib.errors import SpecDecError
from specdec_lib.paths import project_root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it succeeded, 1 after a named error, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except SpecDecError as error:
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again: it goes on from here.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_lib.pipeline", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function, text in (
        ("book", _book, "run what is out of date of a profile, then render the book"),
        ("runs", _runs, "only run what is out of date of a profile"),
        ("html", _html, "only render what is in data/"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=function)
        command.add_argument("--again", action="store_true", help="do it even when nothing has changed")
        if name != "html":
            command.add_argument("--profile", default="cpu", help="a profile of design.toml (default: %(default)s)")
    return parser


def _runs(options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.runner import run_profile

    outcome = run_profile(project_root(), options.profile, again=options.again)
    done = f"{len(outcome.executed)} steps executed" if outcome.executed else "nothing executed"
    print(f"data/{options.profile}: {done}, {len(outcome.kept)} up to date.", file=sys.stderr)
    return 0


def _html(options: argparse.Namespace) -> int:
    from specdec_lib.pipeline.html import build

    rendered = build(project_root(), again=options.again)
    print(f"book/_build/html/index.html: {'rendered' if rendered else 'up to date'}.", file=sys.stderr)
    return 0


def _book(options: argparse.Namespace) -> int:
    return _runs(options) or _html(options)


if __name__ == "__main__":
    sys.exit(main())
