# SPDX-License-Identifier: Apache-2.0
"""Signals of commands that start ranks."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


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
