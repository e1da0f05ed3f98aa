# SPDX-License-Identifier: Apache-2.0
"""Waiting for a collective on the thread of the rounds, which Python's end must find in Python."""

import time
from typing import Any

_FIRST_S, _LONGEST_S = 5e-5, 1e-3


def finish(work: Any) -> None:
    """Wait for a collective that was started with ``async_op=True``; raise what it raised.

    ``work.wait()`` waits inside torch. After an exception Python ends threads that still run. If one of them is
    inside torch, C++ ends the process with SIGABRT. A thread that sleeps in Python just ends.
    """
    pause_s = _FIRST_S
    while not work.is_completed():
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_S)
    work.wait()
