# SPDX-License-Identifier: Apache-2.0
"""Ports for those who must name one before they listen."""

import contextlib
import os
import random
import socket

_CHANCE = random.SystemRandom()  # who seeds the other one would get the same port again
_EACH = 2_000


def free_port() -> int:
    # None that the kernel gives to those who connect: who tries until somebody listens would meet itself there.
    # Each worker of pytest-xdist has ports of its own: a while passes before somebody listens at one.
    first = 20_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 6 * _EACH
    while True:
        port = first + _CHANCE.randrange(_EACH)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
