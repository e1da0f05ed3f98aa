# SPDX-License-Identifier: Apache-2.0
"""``braid.Request``: a started operation."""

from numbers import Real
from typing import Any

from braid import _core
from braid._array.arrays import Output


class Request:
    """A started operation, from one of a communicator's i-methods or from isend and irecv.

    It keeps its arrays alive. Do not change them, and do not read its output, before wait() has returned or test()
    was true. The operation of a dropped request goes on, but does not fill an output that is not C-contiguous
    or lies on a GPU.
    """

    __slots__ = ("_also", "_output", "_owner", "_started")

    def __init__(
        self, started: _core.Request, output: Output | None, owner: object, *, also: Output | None = None
    ) -> None:
        """Not for users. `also` is changed by the operation, but is not its result."""
        self._started = started
        self._also = also
        self._output = output
        self._owner = owner  # keeps the communicator open while the operation runs

    def wait(self, timeout_s: float | None = None) -> Any:
        """Wait for the operation, and return the result of the blocking call.

        Ctrl-C interrupts the wait. The operation goes on.

        Raises:
            CommunicatorTimeoutError: `timeout_s` has passed. The operation goes on. The communicator stays usable.
            CommunicatorError: the operation failed.
        """
        self._started.wait(checked_timeout(timeout_s))
        if self._also is not None:
            self._also.bring_home()
        return None if self._output is None else self._output.bring_home()

    def test(self) -> bool:
        """Return whether the operation has ended, without waiting. Raise its error if it failed."""
        if not self._started.done():
            return False
        self.wait()
        return True

    @property
    def source(self) -> int | None:
        """The sender of a received message; None while it is unknown, and for other operations."""
        rank = self._started.source()
        return None if rank < 0 else rank

    @property
    def done(self) -> bool:
        """Whether the operation has ended, with success or failure."""
        return self._started.done()


def checked_timeout(given: Any) -> float | None:
    """Return a timeout in seconds, above 0, or None for no limit. Otherwise raise TypeError or ValueError."""
    if given is None:
        return None
    if not isinstance(given, Real):
        raise TypeError(f"a timeout is a number of seconds, or None for no limit, not {type(given).__name__}")
    seconds = float(given)
    if not seconds > 0:
        raise ValueError(f"a timeout must be more than 0 seconds, or None for no limit, not {given}")
    return seconds


Request.__module__ = "braid"
