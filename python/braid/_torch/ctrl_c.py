# SPDX-License-Identifier: Apache-2.0
"""Lets Ctrl-C end a wait of torch, in C++, for a future of braid. DDP waits like this at the end of backward.

Python only notes a signal. Its main thread raises KeyboardInterrupt when it runs Python code again. A thread of
braid learns about the signal through Python's wakeup descriptor. If the main thread does not return to Python
code, braid's thread ends the waits for futures. The operations go on, as after any Ctrl-C.
"""

import atexit
import os
import signal
import threading
from contextlib import suppress
from datetime import timedelta
from types import ModuleType

# How long the main thread may take to return to Python code. braid's own waits return within 0.05 s.
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
        """Return False if other code uses the wakeup descriptor, or if no thread can be started."""
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
        with suppress(OSError):  # the program may have closed our descriptor
            os.write(self._told, b"\0")
        self._thread.join(2 * PATIENCE.total_seconds())

    def forget(self) -> None:
        """Give up the descriptors in a forked child. The child has no such thread, and its signals are its own."""
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
            # Another handler may return without an exception. Then nothing must be interrupted.
            if main_thread_returns is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                continue
            # Repeated, because backward may still make new futures before it waits.
            while not main_thread_returns.wait(PATIENCE) and not self._ends:
                self._adapter.interrupt_open_futures()


def watch(adapter: ModuleType) -> None:
    """Start the watch, once in a process. Only the main thread can, and only if the wakeup descriptor is free."""
    global _watch
    if _watch is not None or threading.current_thread() is not threading.main_thread():
        return
    with suppress(OSError):  # without descriptors there is no watch; the group's own error says so
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
