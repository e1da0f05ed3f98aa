# SPDX-License-Identifier: Apache-2.0
"""Threads of braid that call torch, or wait in C++. They end before Python does.

When Python ends, it ends each thread that asks for the GIL. If such a thread is inside C++, the process aborts. So
all of them are asked to end at exit, after what services do then, and Python waits until they have.
"""

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

# They only compute by then, and wait for nobody. One that is held up in spite of that must not hang the process.
_LIMIT_S = 20.0

_ending = threading.Event()
_started: "weakref.WeakSet[OwnThread]" = weakref.WeakSet()


class OwnThread(threading.Thread):
    """A thread that does not keep Python from ending, and that is asked to end at exit."""

    def __init__(self, target: Callable[..., object], name: str, end: Callable[[], object], *args: Any) -> None:
        """Make the thread. `end` lets `target(*args)` return soon; it may be called twice."""
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.ask_to_end = end

    def start(self) -> None:
        """Start it."""
        _started.add(self)
        super().start()


def are_ending() -> bool:
    """Return whether Python ends, so that a thread must wait for nobody any more."""
    return _ending.is_set()


@atexit.register
def _end_all() -> None:
    _ending.set()
    threads = [thread for thread in _started if thread.is_alive()]
    for thread in threads:
        with contextlib.suppress(Exception):
            thread.ask_to_end()
    until = time.monotonic() + _LIMIT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


os.register_at_fork(after_in_child=_started.clear)  # a forked child has none of them
