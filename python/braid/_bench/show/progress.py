# SPDX-License-Identifier: Apache-2.0
"""What a user sees while a benchmark runs: finished lines, and on a terminal a line that says what goes on."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from braid._bench.show import units

# Seldom, and never by a thread of its own: whatever draws takes a core from the ranks that are being timed.
_SECONDS_BETWEEN_UPDATES = 0.25


class Progress:
    """Prints lines; on a terminal, a status line stays below them until it ends. In a pipe there is none."""

    def __init__(self, console: Console | None = None) -> None:
        """Write to a console, which is that of stdout unless given."""
        self._console = console or Console(highlight=False)
        # FORCE_COLOR makes rich take a pipe for a terminal, but a status line is of no use in a file.
        live = self._console.is_interactive and self._console.file.isatty()
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if live else None
        self._began_s = self._updated_s = time.monotonic()

    def __enter__(self) -> Self:
        """Begin to count the time."""
        self._began_s = time.monotonic()
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the status line."""
        if self._live:
            self._live.update(Text())
            self._live.stop()

    def show(self, lines: Iterable[Text]) -> None:
        """Print finished lines, as long as they are: a pipe has no width, and a terminal can wrap by itself."""
        for line in lines:
            self._console.print(line, soft_wrap=True, highlight=False)

    def at(self, contestant: str, size_bytes: int, round_number: int, rounds: int) -> None:
        """Say what runs now, rounds counted from 1; 0 of them: as many as time allows. May be called often."""
        planned = f" of {rounds}" if rounds else ""
        self.say(f"{contestant}, {units.size(size_bytes)}, round {round_number}{planned}")

    def say(self, what: str) -> None:
        """Say what runs now."""
        now = time.monotonic()
        if self._live is None or now - self._updated_s < _SECONDS_BETWEEN_UPDATES:
            return
        self._updated_s = now
        elapsed = int(now - self._began_s)
        status = f"{what}, {elapsed // 60}:{elapsed % 60:02} elapsed"
        self._live.update(Text(status, "dim", no_wrap=True, overflow="ellipsis"), refresh=True)
