# SPDX-License-Identifier: Apache-2.0
"""Where a worker is, and what it knows of its links: what groups are formed by."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from braid._errors import CommunicatorTimeoutError
from braid._machine import host_identity
from braid.strategies.hybrid.grouping import Grouping, by_host
from braid.strategies.store import Meeting


@dataclass(frozen=True)
class Place:
    """What a worker tells about itself.

    Attributes:
        host: the same text on all workers that can share memory.
        card: latency in seconds, and seconds per byte up and down of the host's network card, as a links file
            states them; None where there is no such file.
        all_s: seconds that braid predicts for an all_reduce of the gradient over all workers, by links that it
            has measured; None where the process group is not braid's.
        step_s: seconds of computing in a step.
    """

    host: str
    card: tuple[float, float, float] | None = None
    all_s: float | None = None
    step_s: float = float("inf")


def place(process_group: Any, elements: int, step_s: float) -> Place:
    """Return what this worker tells the others; `elements` is the length of the gradient."""
    import braid
    from braid._links import stated_links

    predict: Any = braid.predict_all_reduce
    try:
        all_s = predict(elements, group=process_group)
    except RuntimeError:  # another backend
        return Place(host_identity(), step_s=step_s)
    stated = stated_links()
    card = None
    if stated is not None and not stated.problem:
        card = (stated.alpha_s, stated.up_s_per_byte, stated.down_s_per_byte)
    return Place(host_identity(), card, all_s, step_s)


def seconds_between(places: Sequence[Place], elements: int) -> list[list[float]] | None:
    """Return how long a gradient of float32 takes from each worker to each other; None if nobody knows."""
    if any(each.all_s is None for each in places):
        return None
    bytes_ = 4 * elements

    def between(one: Place, other: Place) -> float:
        if one.card is not None and other.card is not None:
            return max(one.card[0], other.card[0]) + bytes_ * max(one.card[1], other.card[2])
        # Over fewer workers it takes no longer.
        return max(one.all_s or 0.0, other.all_s or 0.0)

    return [[between(one, other) for other in places] for one in places]


def groups_by_host(meeting: Meeting, timeout_s: float) -> Grouping:
    """Return one group per host, as worker 0 sees it. All workers of a meeting call this.

    Raises:
        CommunicatorTimeoutError: a worker did not come.
    """
    meeting.store.set(f"host/{meeting.member}", host_identity().encode())
    try:
        if meeting.member == 0:
            hosts = [meeting.store.get(f"host/{i}", timeout_s) for i in range(meeting.workers)]
            meeting.store.set("groups", json.dumps(by_host(hosts)).encode())
        found: Grouping = json.loads(meeting.store.get("groups", timeout_s))
    except TimeoutError:
        text = f"strategy {meeting.name!r}: not all workers said in {timeout_s:g} s which host they are on"
        raise CommunicatorTimeoutError(text) from None
    return found
