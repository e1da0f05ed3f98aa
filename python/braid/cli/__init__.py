# SPDX-License-Identifier: Apache-2.0
"""The command ``braid``. Ctrl-C ends it without a traceback, while it imports its modules, too."""

import signal
import threading


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 for bad input, 130 when interrupted.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` when omitted.
    """
    before = signal.getsignal(signal.SIGINT)
    # A caller's own handler stays, and only the main thread may set one.
    is_ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from braid.cli.program import run
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
    return run(arguments)
