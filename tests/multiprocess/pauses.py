# SPDX-License-Identifier: Apache-2.0
"""Runs pytest, and stops random ranks of its tests, or threads of them, for a moment, again and again.

Ranks and threads then go on at speeds of their own, as on a busy machine. A test that fails presumes an order for
which nobody waits, or braid does. Tests of rates and of measured links, marked `alone`, may fail; so may those
that stop ranks.

Example:
    python tests/multiprocess/pauses.py --threads -- -n 4 -m "not long" tests/multiprocess tests/device
"""

import argparse
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17  # requests of ptrace(2)
_ALL_THREADS = 0x40000000  # __WALL of waitpid(2)


def main() -> int:
    parser = argparse.ArgumentParser(description="Stop random ranks of tests for a moment, again and again.")
    parser.add_argument("--threads", action="store_true", help="stop one thread of a rank, not the whole rank")
    parser.add_argument("--longest", type=float, default=0.5, metavar="S", help="a stop takes 0.05 s to this")
    parser.add_argument("--every", type=float, default=0.2, metavar="S", help="mean time between stops")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses ranks and times")
    parser.add_argument("pytest", nargs="*", metavar="ARG", help="what pytest is given")
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *options.pytest])
    stops = 0
    try:
        while tests.poll() is None:
            ranks = ranks_below(tests.pid)
            for pid in chosen.sample(ranks, min(len(ranks), chosen.randint(1, 3))):
                seconds = chosen.uniform(0.05, options.longest)
                if options.threads:
                    stop_a_thread(pid, seconds, chosen)
                else:
                    stop(pid, seconds)
                stops += 1
            with suppress(subprocess.TimeoutExpired):
                tests.wait(chosen.uniform(0, 2 * options.every))
    finally:
        tests.terminate()
    print(f"{stops} stops", flush=True)
    return tests.wait()


def ranks_below(pid: int) -> list[int]:
    """Return the Python processes that pytest's workers have started and that have no children."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            children[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found, below = [], [each for worker in children[pid] for each in children[worker]]
    while below:
        each = below.pop()
        below += children[each]
        with suppress(OSError):
            command = Path(f"/proc/{each}/cmdline").read_bytes()
            if not children[each] and b"python" in command and b"resource_tracker" not in command:
                found.append(each)
    return sorted(found)


def stop(pid: int, seconds: float) -> None:
    """Stop a process, and let a thread wake it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(seconds, wake, (pid,)).start()


def wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def stop_a_thread(pid: int, seconds: float, chosen: random.Random) -> None:
    """Stop one thread of a process; a thread here holds it for so long."""
    with suppress(OSError):
        thread = chosen.choice(sorted(int(each) for each in os.listdir(f"/proc/{pid}/task")))
        threading.Thread(target=hold, args=(thread, seconds), daemon=True).start()


def hold(thread: int, seconds: float) -> None:
    """Stop a thread as a debugger does. Only the thread that has stopped it can let it go on."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    if ptrace(_SEIZE, thread, None, None) != 0:
        return  # it has ended, or is held already
    with suppress(ChildProcessError):
        ptrace(_INTERRUPT, thread, None, None)
        status = os.waitpid(thread, _ALL_THREADS)[1]
        own_signal = 0 if status >> 16 else os.WSTOPSIG(status)  # it came just now, and the thread shall have it
        threading.Event().wait(seconds)
        if ptrace(_DETACH, thread, None, own_signal) != 0:
            os.waitpid(thread, _ALL_THREADS)  # killed meanwhile: who holds it must bury it


if __name__ == "__main__":
    sys.exit(main())
