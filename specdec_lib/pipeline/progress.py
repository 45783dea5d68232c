"""A bar when a person watches, one line per step otherwise."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Tells how a run goes, on ``stream`` (standard error)."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total, self._done, self._started = total, 0, 0.0
        self._bar = None
        if total and self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, file=self._stream, unit="step", leave=True)

    def start(self, name: str) -> None:
        """A step begins."""
        self._started = time.monotonic()
        if self._bar is not None:
            self._bar.set_description(name)
        else:
            self.say(f"[{self._done + 1}/{self._total}] {name} ...")

    def finish(self, name: str) -> None:
        """A step has ended well."""
        self._done += 1
        seconds = time.monotonic() - self._started
        if self._bar is not None:
            self._bar.update()
        else:
            self.say(f"[{self._done}/{self._total}] {name} done in {seconds:.1f} s")

    def say(self, line: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """No more steps."""
        if self._bar is not None:
            self._bar.close()
