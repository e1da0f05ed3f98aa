# SPDX-License-Identifier: Apache-2.0
"""How all workers take a saved state: worker 0 gives it to the servers while no other worker pushes."""

import json
from collections.abc import Callable
from typing import Any

from braid._errors import CommunicatorError, CommunicatorTimeoutError
from braid.strategies.everyone import Present, say, wait_for_others
from braid.strategies.store import Meeting, hearing


def restore_first(
    meeting: Meeting,
    key: str,
    timeout_s: float,
    restore: Callable[[], dict[str, Any]],
    present: Present,
) -> dict[str, Any]:
    """Let worker 0 restore the state once no other worker has a request under way. Else a push could follow it.

    All workers that began together call this, after their own requests have ended. A late worker only hears.

    Args:
        meeting: where the workers met.
        key: of this call, in the meeting's store.
        timeout_s: how long each waits for another one.
        restore: on worker 0 it gives the servers the state. It returns notes for all, which JSON can hold.
        present: on worker 0 it returns those who have to come; a worker that died is not among them.

    Returns:
        Worker 0's notes.

    Raises:
        ValueError: the state does not fit; on all workers.
        CommunicatorError: worker 0 cannot restore it for another reason.
        CommunicatorTimeoutError: a worker did not call this in time.
    """
    if meeting.member == 0:
        try:
            wait_for_others(meeting, key, timeout_s, present, "come to load the state")
            notes = restore()
        except Exception as error:
            why = f"worker 0 cannot load the state: {error}"
            meeting.store.set(key, json.dumps({"why": why, "is bad": isinstance(error, ValueError)}).encode())
            raise
        meeting.store.set(key, json.dumps(notes).encode())
        return notes
    if not meeting.is_late:
        say(meeting, key)
    try:
        with hearing(meeting.name):
            said = json.loads(meeting.store.get(key, timeout_s))
    except TimeoutError:
        why = f"worker 0 did not load the state within {timeout_s:g} s: all workers must load it"
        raise CommunicatorTimeoutError(why, 0) from None
    if "why" in said:
        raise ValueError(said["why"]) if said["is bad"] else CommunicatorError(said["why"], 0)
    return dict(said)
