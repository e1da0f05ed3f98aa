# SPDX-License-Identifier: Apache-2.0
"""What takes all workers: to meet once, and the mean of all."""

import time
from collections.abc import Iterable

import torch
from torch import Tensor

from braid._errors import CommunicatorError, CommunicatorTimeoutError
from braid.strategies.gossip.members import Members
from braid.strategies.gossip.vector import TAIL, WEIGHT, WorkerVector, new_vector
from braid.strategies.store import Meeting


def say(meeting: Meeting, key: str, what: bytes = b"yes") -> None:
    """Tell the other workers something."""
    meeting.store.set(f"{key}/{meeting.member}", what)


def hear(meeting: Meeting, key: str, where: str, timeout_s: float) -> list[bytes]:
    """Return what each worker of the beginning has said; `where` completes the error: "worker 2 did not come to".

    Raises:
        CommunicatorTimeoutError: a worker has said nothing.
    """
    deadline, found = time.monotonic() + timeout_s, []
    for other in range(meeting.workers):
        try:
            found.append(meeting.store.get(f"{key}/{other}", max(0.0, deadline - time.monotonic())))
        except TimeoutError:
            text = f"strategy {meeting.name!r}: worker {other} did not come to {where} within {timeout_s:g} s"
            raise CommunicatorTimeoutError(text, other) from None
    return found


def mean_of(members: Members, vectors: Iterable[WorkerVector], elements: int) -> Tensor:
    """Return the mean of workers' values, by their weights; shape (elements,), float32.

    Workers that die meanwhile are left out.
    """
    total = torch.zeros(elements + TAIL, dtype=torch.float64)
    values = new_vector(elements)
    # By number, so that all that ask for the same values get the same bits.
    for vector in sorted(vectors, key=lambda vector: vector.owner):
        try:
            vector.pull(values)
        except CommunicatorError as error:
            if vector is members.own:
                raise
            members.lose(vector.owner, str(error))
            continue
        total.add_(values)
    return total[:-TAIL].div_(total[WEIGHT]).float()
