# SPDX-License-Identifier: Apache-2.0
"""The last import of the server that ranks are forked from: it lets signals through again.

The server starts with SIGINT blocked, so that Ctrl-C does not end it while it imports. Processes that are forked
from it would inherit the block. A program that goes on after a benchmark could then not be interrupted.
"""

import signal

before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops a Ctrl-C that came meanwhile
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, before)
