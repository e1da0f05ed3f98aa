# SPDX-License-Identifier: Apache-2.0
"""Waiting for something that a test needs, in place of sleeping for as long as it may take."""

import time
from collections.abc import Callable
from typing import TypeVar

from slowness import limit

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], what: object = "it", within_s: float = 60.0, meanwhile: Callable[[], object] = str
) -> T:
    """Return the first value of `condition` that is true.

    Args:
        condition: asked again and again, ever more seldom: each time after 1 to 20 ms.
        what: what one waits for; a callable is asked for it at the end.
        within_s: the limit on a quiet machine; see slowness.py.
        meanwhile: called before each pause.

    Raises:
        TimeoutError: it did not come within the limit.

    Example:
        eventually(path.exists, "the file")
    """
    deadline, pause_s = time.monotonic() + limit(within_s), 0.001
    while not (found := condition()):
        if time.monotonic() > deadline:
            told = what() if callable(what) else what
            raise TimeoutError(f"{told} did not come within {limit(within_s):.0f} s")
        meanwhile()
        time.sleep(pause_s)
        pause_s = min(0.02, 1.5 * pause_s)
    return found
