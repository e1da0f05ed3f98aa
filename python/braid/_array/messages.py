# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank of a communicator to another."""

from typing import Any

import numpy as np

from braid import _core
from braid._array.arrays import Array, Output, dtype_name, source, target
from braid._array.numbers import whole
from braid._array.request import Request
from braid._array.staged import land

_MOST_TAG = 2**31 - 1
_ANY_RANK = -1


class Messages:
    """The part of a communicator that has send and recv.

    Messages between the same two ranks with the same tag arrive in the order of the sends. Receives get them in
    the order of the receives. A message must have as many bytes as its receiving array, or the communicator fails.
    """

    _core: _core.Communicator
    _place: tuple[int, int]  # rank, size

    def send(self, x: Any, dest: int, tag: int = 0) -> None:
        """Send x to another rank. Returns when x may be changed again, perhaps only after it was received."""
        self.isend(x, dest, tag).wait()

    def recv(self, out: Any, source: int | None = None, tag: int = 0) -> Any:
        """Fill `out` with the next message of this tag from rank `source`, or from any rank. Returns `out`."""
        return self.irecv(out, source, tag).wait()

    def sendrecv(self, x: Any, dest: int, out: Any, source: int, tag: int = 0) -> Any:
        """Send and receive at the same time; dest and source may both be this rank. Returns `out`."""
        memory, output = _sent(x), _received(out)
        to, by, number = whole(dest, "dest"), whole(source, "source"), _checked_tag(tag)
        if to == by == self._place[0]:
            return _copy(memory, output)
        to, by = self._peer(to, "dest"), self._peer(by, "source")
        land(memory)
        receiving = self._core.recv(output.memory, by, number)
        sending = self._core.send(memory, to, number)
        receiving.wait()
        sending.wait()
        return output.bring_home()

    def isend(self, x: Any, dest: int, tag: int = 0) -> Request:
        """Start a send."""
        memory, peer, number = _sent(x), self._peer(dest, "dest"), _checked_tag(tag)
        land(memory)
        return Request(self._core.send(memory, peer, number), None, self)

    def irecv(self, out: Any, source: int | None = None, tag: int = 0) -> Request:
        """Start a recv; Request.source is the sender."""
        output = _received(out)
        started = self._core.recv(output.memory, self._peer_or_any(source), _checked_tag(tag))
        return Request(started, output, self)

    def _peer(self, given: Any, what: str) -> int:
        rank, size = self._place
        peer = whole(given, what)
        if not 0 <= peer < size or peer == rank:
            raise ValueError(f"rank {rank} of {size} can only exchange messages with another rank, not {peer}")
        return peer

    def _peer_or_any(self, given: Any) -> int:
        if given is not None:
            return self._peer(given, "source")
        if self._place[1] == 1:
            raise ValueError("a communicator of one rank has nobody to receive from")
        return _ANY_RANK


def _checked_tag(given: Any) -> int:
    tag = whole(given, "tag")
    if not 0 <= tag <= _MOST_TAG:
        raise ValueError(f"the tag is {tag}, but tags are from 0 to {_MOST_TAG}")
    return tag


def _sent(x: Any) -> Array:
    memory = source(x, "send: x")
    dtype_name(memory.dtype, "send: x")
    return memory


def _received(out: Any) -> Output:
    output = target(out, "recv: out")
    dtype_name(output.memory.dtype, "recv: out")
    return output


def _copy(memory: Array, output: Output) -> Any:
    if memory.nbytes != output.memory.nbytes:
        raise ValueError(f"sendrecv: {memory.nbytes} bytes do not fit into {output.memory.nbytes}")
    land(memory)
    output.memory.reshape(-1).view(np.uint8)[:] = memory.reshape(-1).view(np.uint8)
    return output.bring_home()
