# SPDX-License-Identifier: Apache-2.0
"""What braid tells whoever started a process."""

import contextlib
import signal
import sys
import time


def tell(line: str, who: str = "braid") -> None:
    """Write a line to standard error, whole: where many processes share it, print() may part text and newline."""
    if sys.stderr is not None:  # as in programs without a console
        sys.stderr.write(f"{who}: {line}\n")
        sys.stderr.flush()


def how_it_ended(code: int) -> str:
    """Return what an exit code says, which is negative for signals, as "was killed by SIGKILL"."""
    return f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"


class Sparing:
    """Tells of what may happen a thousand times a second: one line a minute, and never an exception."""

    def __init__(self, who: str, pause_s: float = 60.0) -> None:
        """Begin in silence; the first line is told at once."""
        self._who, self._pause_s = who, pause_s
        self._silent_until = 0.0
        self._left_out = 0

    def tell(self, line: str, *, always: bool = False) -> None:
        """Tell a line, or leave it out when one was told in the last minute."""
        now = time.monotonic()
        if now < self._silent_until and not always:
            self._left_out += 1
            return
        more = f" ({self._left_out} lines were left out since the last)" if self._left_out else ""
        self._silent_until, self._left_out = now + self._pause_s, 0
        with contextlib.suppress(Exception):  # standard error is closed, or nobody reads it
            tell(f"{line}{more}", self._who)
