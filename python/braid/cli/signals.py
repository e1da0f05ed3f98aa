# SPDX-License-Identifier: Apache-2.0
"""Signals of commands that start ranks, or serve until they are told to end."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Have SIGTERM and SIGHUP unwind as SIGINT does."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Ending:
    """While it lasts, SIGINT and SIGTERM are noted. A second one does what it would do without this.

    A handler may not set a ``threading.Event``: that needs a lock, which the wait that it interrupts may hold.
    """

    def __init__(self) -> None:
        """Note nothing yet."""
        self._has_come = False
        self._usual: dict[int, Any] = {}

    def has_come(self) -> bool:
        """Return whether a signal has come."""
        return self._has_come

    def wait(self, seconds: float) -> bool:
        """Sleep for so long; return whether a signal has come."""
        time.sleep(seconds)
        return self._has_come

    def __enter__(self) -> Self:
        """Begin; only in the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._usual[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._usual.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        signal.signal(number, self._usual[number])  # who does not want to wait says so twice
