# SPDX-License-Identifier: Apache-2.0
"""Messages between ``braid compare`` and the ranks it has started: lines of JSON on a Unix socket.

A socket with a path is reached from every emulated host, for these share the machine's files.
"""

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any, Self

REPLACE_BRAID = "COMPARE_ON_GLOO"  # set in a rank: a script that names "braid" gets Gloo


@dataclass(frozen=True)
class Step:
    """One step of one rank.

    Attributes:
        seconds: when it ended, in seconds that this rank has trained, without pauses.
        loss: the mean of what backward() was called on; None if it was not one number.
        samples: of this rank's batch; 0 where no module in DistributedDataParallel was called.
    """

    seconds: float
    loss: float | None
    samples: int


@dataclass(frozen=True)
class Order:
    """What a rank is told: train for so many steps or, where `steps` is 0, for so many seconds. Neither: end."""

    steps: int = 0
    seconds: float = 0.0

    @property
    def is_end(self) -> bool:
        """Whether the rank shall end."""
        return not self.steps and not self.seconds


@dataclass(frozen=True)
class Report:
    """What a rank says when it pauses or ends.

    Attributes:
        rank: of the job.
        steps: since its last report.
        has_ended: whether its script has returned.
        gradient_bytes: bytes of all gradients, as float32.
        algorithm: which carried most bytes on braid, behind a collective that is no all_reduce; "" if none did.
    """

    rank: int
    steps: list[Step]
    has_ended: bool = False
    gradient_bytes: int = 0
    algorithm: str = ""


class Channel:
    """One end of the socket between a rank and ``braid compare``."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connected socket."""
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")

    @classmethod
    def to(cls, path: str) -> Self:
        """Connect to a path; OSError if nobody listens there."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return cls(connection)

    def send(self, message: Order | Report) -> None:
        """Send a message; OSError if the other end is gone."""
        self._connection.sendall((json.dumps(asdict(message)) + "\n").encode())

    def order(self) -> Order:
        """Receive an order; EOFError if the other end is gone."""
        return Order(**self._receive())

    def report(self) -> Report:
        """Receive a report; EOFError if the other end is gone."""
        found = self._receive()
        return Report(**{**found, "steps": [Step(**step) for step in found["steps"]]})

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except ConnectionError:
            line = ""
        if not line.endswith("\n"):
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    def fileno(self) -> int:
        """Return the socket's number, for select()."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close it. Idempotent."""
        self._lines.close()
        self._connection.close()
