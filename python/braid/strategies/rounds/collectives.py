# SPDX-License-Identifier: Apache-2.0
"""Waiting for a collective on the thread of the rounds, until Python ends."""

import time
from typing import Any

from braid._errors import CommunicatorError
from braid._threads import are_ending

_FIRST_S, _LONGEST_S = 5e-5, 1e-3


def finish(work: Any) -> None:
    """Wait for a collective that was started with ``async_op=True``; raise what it raised.

    ``work.wait()`` waits inside torch, where nothing tells it that Python ends. The thread must end before.

    Raises:
        CommunicatorError: Python ends, and the others have not come.
    """
    pause_s = _FIRST_S
    while not work.is_completed():
        if are_ending():
            raise CommunicatorError("this process ends")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_S)
    work.wait()
