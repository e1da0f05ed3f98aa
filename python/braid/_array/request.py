# SPDX-License-Identifier: Apache-2.0
"""Operations under way."""

from numbers import Real
from typing import Any

from braid import _core
from braid._array.arrays import Output


class Request:
    """An operation that was started, by one of a communicator's i-methods or by isend and irecv.

    It keeps its arrays alive; do not change them, nor read its output, before wait() has returned or test() was
    true. A request that is dropped goes on all the same, but does not fill an output that is not C-contiguous.
    """

    __slots__ = ("_output", "_owner", "_started")

    def __init__(self, started: _core.Request, output: Output | None, owner: object) -> None:
        """Not for users."""
        self._started = started
        self._output = output
        self._owner = owner  # a communicator ends with its last reference, but not under its operations

    def wait(self, timeout_s: float | None = None) -> Any:
        """Return the result, as soon as there is one: what the blocking call would have returned.

        Ctrl-C interrupts the wait; the operation goes on.

        Raises:
            CommunicatorTimeoutError: `timeout_s` has passed. The operation goes on, and nothing is harmed.
            CommunicatorError: the operation failed.
        """
        self._started.wait(checked_timeout(timeout_s))
        return None if self._output is None else self._output.bring_home()

    def test(self) -> bool:
        """Return whether the operation has ended, without waiting; raise what it failed with."""
        if not self._started.done():
            return False
        self.wait()
        return True

    @property
    def source(self) -> int | None:
        """The rank that a received message came from; None while it is not known, and of other operations."""
        rank = self._started.source()
        return None if rank < 0 else rank

    @property
    def done(self) -> bool:
        """Whether the operation has ended, well or badly."""
        return self._started.done()


def checked_timeout(given: Any) -> float | None:
    """Return a timeout that makes sense; None stands for no limit."""
    if given is None:
        return None
    if not isinstance(given, Real):
        raise TypeError(f"a timeout is a number of seconds, or None for no limit, not {type(given).__name__}")
    seconds = float(given)
    if not seconds > 0:
        raise ValueError(f"a timeout must be more than 0 seconds, or None for no limit, not {given}")
    return seconds


Request.__module__ = "braid"
