# SPDX-License-Identifier: Apache-2.0
"""Ports for those who must name one before they listen."""

import contextlib
import random
import socket


def free_port() -> int:
    # None that the kernel gives to those who connect: who tries until somebody listens would meet itself there.
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
