# SPDX-License-Identifier: Apache-2.0
"""Silent connections to one address, opened again when they are closed, until standard input ends."""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import sys


class Flood:
    """Sockets that wait for the other side to close them."""

    def __init__(self, host: str, port: int) -> None:
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.target = (host, port)
        self.poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.begun = 0

    def begin(self) -> None:
        one = socket.socket(self.family, socket.SOCK_STREAM)
        one.setblocking(False)
        one.connect_ex(self.target)
        self.sockets[one.fileno()] = one
        self.poll.register(one, select.EPOLLRDHUP)
        self.begun += 1

    def turn(self, timeout_s: float) -> bool:
        """Open again what was closed; False when standard input has ended."""
        for fd, _ in self.poll.poll(timeout_s):
            if fd == sys.stdin.fileno():
                return False
            # A new descriptor has the old one's number only after that is closed.
            self.sockets.pop(fd).close()
            self.begin()
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < options.count + 100:
        sys.exit(f"this process may open only {limit} descriptors; raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    flood = Flood(options.host, options.port)
    flood.poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
    for _ in range(options.count):
        flood.begin()
        flood.turn(0)
    print("standing", flush=True)
    while flood.turn(1.0):
        pass
    print(json.dumps({"begun": flood.begun}), flush=True)


if __name__ == "__main__":
    main()
