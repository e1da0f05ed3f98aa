# SPDX-License-Identifier: Apache-2.0
"""Stops a rank's process and presses Ctrl-C in another, so that tests see how long that takes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ranks import SOON_S, Rank
from slowness import limit
from waiting import eventually


def stop_soon(rank: Rank, name: str, by: int | None = None) -> None:
    """Stop this process once the other rank of two, or `by`, has asked for it; the other lets it go on."""
    (rank.folder / f"pid.{rank.rank}").write_text(str(os.getpid()))
    rank.wait_for(name, 1 - rank.rank if by is None else by)
    os.kill(os.getpid(), signal.SIGSTOP)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@contextmanager
def stopped(rank: Rank, name: str, other: int | None = None) -> Iterator[None]:
    """While this lasts the other rank of two, or `other`, which calls stop_soon(), is stopped."""
    rank.mark(name)
    path = rank.folder / f"pid.{1 - rank.rank if other is None else other}"
    pid = int(eventually(lambda: path.exists() and path.read_text(), "the number of the process"))
    eventually(lambda: _is_stopped(pid), "the stop")
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # another thread has let it go on, and it has ended
            os.kill(pid, signal.SIGCONT)


def interrupted(call: Callable[[], Any], after_s: float = limit(0.3)) -> float:
    """Press Ctrl-C while `call` waits; return after how many seconds KeyboardInterrupt came."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[float] = []

    def press() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, press)
    try:
        timer.start()
        call()
    except KeyboardInterrupt:
        late = time.monotonic() - sent[0]
        assert late < SOON_S, f"Ctrl-C took {late:.2f} s"
        return late
    finally:
        timer.cancel()
    raise AssertionError("the call returned, though nobody came")


def go_on_after(rank: Rank, number: int, seen: list[int], times: int) -> None:
    """Send this process a signal so often, each when it has handled the last. Then let the other rank go on."""
    pid = int((rank.folder / f"pid.{1 - rank.rank}").read_text())

    def send() -> None:
        for count in range(1, times + 1):
            time.sleep(0.3)
            os.kill(os.getpid(), number)
            eventually(lambda count=count: len(seen) >= count, "the handler's turn")
        time.sleep(0.3)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    threading.Thread(target=send, daemon=True).start()


def start_script(script: Path, *arguments: object, **variables: str) -> "subprocess.Popen[str]":
    """Start a rank as a process that Ctrl-C reaches, even where the tests themselves ignore it."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
