# SPDX-License-Identifier: Apache-2.0
"""Lets Ctrl-C through where torch waits in C++ for a future of ours, as DDP does at the end of backward.

Python only notes a signal; its main thread raises KeyboardInterrupt when it runs Python again. A thread of ours
hears of the note through Python's wakeup descriptor. When the main thread does not come back to Python, our thread
ends the waits for futures. The operations go on, as after any Ctrl-C.
"""

import atexit
import os
import signal
import threading
from contextlib import suppress
from datetime import timedelta
from types import ModuleType

# How long the main thread may take to come back to Python. Waits of braid's own take 0.05 s.
PATIENCE = timedelta(seconds=0.25)

_watch: "_Watch | None" = None


class _Watch:
    def __init__(self, adapter: ModuleType) -> None:
        self._adapter = adapter
        self._heard, self._told = os.pipe()
        os.set_blocking(self._told, False)
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="braid-ctrl-c", daemon=True)

    def start(self) -> bool:
        """Return False if the wakeup descriptor is somebody else's, or there is no thread to be had."""
        before = signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        try:
            if before == -1:
                self._thread.start()
                return True
        except RuntimeError:
            pass
        signal.set_wakeup_fd(before)
        self._close()
        return False

    def stop(self) -> None:
        self._ends = True
        self._give_back()
        with suppress(OSError):  # the program has closed what it did not open
            os.write(self._told, b"\0")
        self._thread.join(2 * PATIENCE.total_seconds())

    def forget(self) -> None:
        """What a forked child does, which has no such thread: its signals are not the parent's."""
        self._give_back()
        with suppress(OSError):
            self._close()

    def _close(self) -> None:
        os.close(self._told)
        os.close(self._heard)

    def _give_back(self) -> None:
        holder = signal.set_wakeup_fd(-1)
        if holder not in (-1, self._told):
            signal.set_wakeup_fd(holder)

    def _run(self) -> None:
        while not self._ends:
            is_open, main_thread_returns = self._adapter.next_signals(self._heard)
            if not is_open:
                return
            # Another handler may return, and then nothing was interrupted.
            if main_thread_returns is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                continue
            # Again and again, as backward may still make new futures before it waits.
            while not main_thread_returns.wait(PATIENCE) and not self._ends:
                self._adapter.interrupt_open_futures()


def watch(adapter: ModuleType) -> None:
    """Begin, once in a process. Only the main thread can, while nobody else uses the wakeup descriptor."""
    global _watch
    if _watch is not None or threading.current_thread() is not threading.main_thread():
        return
    with suppress(OSError):  # without descriptors there is no watch; the group says what it lacks
        begun = _Watch(adapter)
        if not begun.start():
            return
        _watch = begun
        atexit.register(_stop)


def _stop() -> None:
    global _watch
    if _watch is not None:
        _watch.stop()
        _watch = None


def _forget_in_child() -> None:
    global _watch
    if _watch is not None:
        _watch.forget()
        _watch = None


os.register_at_fork(after_in_child=_forget_in_child)
