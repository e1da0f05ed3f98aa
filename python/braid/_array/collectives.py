# SPDX-License-Identifier: Apache-2.0
"""The collectives of a communicator, each as a blocking method and as a method that only starts it."""

from collections.abc import Sequence
from typing import Any

from braid import _core
from braid._array import calls
from braid._array.calls import Call
from braid._array.request import Request
from braid._array.staged import land
from braid._core import quick


class Collectives:
    """The part of a communicator with the methods of all collectives. calls.py checks their arguments."""

    _core: _core.Communicator
    _place: tuple[int, int]  # rank, size

    def _run(self, call: Call) -> Any:
        self._core.run(*call.arguments())
        return None if call.output is None else call.output.bring_home()

    def _start(self, call: Call) -> Request:
        return Request(self._core.start(*call.arguments()), call.output, self)

    @quick
    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """Combine the ranks' x element by element, in `out` or else in place. Returns the result."""
        return self._run(calls.all_reduce(x, op, out))

    def lossy_all_reduce(self, x: Any, codec: Any, *, residual: Any = None, op: str = "avg", seed: int = 0) -> Any:
        """Average (or sum) the ranks' x in place, in fewer bytes between hosts; see ``braid.lossy_all_reduce``.

        x is an array of float32, float16 or ml_dtypes' bfloat16. residual is a C-contiguous array of float32.
        Returns x.
        """
        return self.ilossy_all_reduce(x, codec, residual=residual, op=op, seed=seed).wait()

    @quick
    def reduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None) -> Any:
        """Combine the ranks' x on the root, in its `out` or else in its x. Returns the result, None elsewhere."""
        return self._run(calls.reduce(x, op, root, out, self._place))

    @quick
    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Fill every rank's x with the root's. Returns x."""
        return self._run(calls.broadcast(x, root, self._place))

    @quick
    def all_gather(self, x: Any, out: Any = None, *, counts: Sequence[int] | None = None) -> Any:
        """Collect every rank's x on all ranks, by rank. Returns `out`, or a new array of shape (size, *x.shape).

        With `counts`, each rank's number of elements, x may differ in size. A new array is then one-dimensional.
        """
        return self._run(calls.all_gather(x, out, counts, self._place))

    @quick
    def gather(self, x: Any, root: int = 0, out: Any = None, *, counts: Sequence[int] | None = None) -> Any:
        """Collect every rank's x on the root, as all_gather does. Returns None elsewhere."""
        return self._run(calls.gather(x, root, out, counts, self._place))

    @quick
    def scatter(
        self, x: Any = None, root: int = 0, out: Any = None, *, counts: Sequence[int] | None = None
    ) -> Any:
        """Cut the root's x into one block per rank. Returns this rank's block.

        Blocks are equal unless there are `counts`. Ranks other than the root must give `out`, and no x.
        """
        return self._run(calls.scatter(x, root, out, counts, self._place))

    @quick
    def reduce_scatter(
        self, x: Any, op: str = "sum", out: Any = None, *, counts: Sequence[int] | None = None
    ) -> Any:
        """Combine the ranks' x, and cut the result into blocks, as scatter. Returns this rank's block."""
        return self._run(calls.reduce_scatter(x, op, out, counts, self._place))

    @quick
    def all_to_all(
        self,
        x: Any,
        out: Any = None,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
    ) -> Any:
        """Send block d of x to rank d, and return the received blocks, in the order of ranks.

        Blocks are equal unless both counts are given: the numbers of elements to and from each rank.
        """
        return self._run(calls.all_to_all(x, out, send_counts, recv_counts, self._place[1]))

    @quick
    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self._run(Call("barrier"))

    # ---- the same collectives, only started

    def iall_reduce(self, x: Any, op: str = "sum", out: Any = None) -> Request:
        """Start an all_reduce."""
        return self._start(calls.all_reduce(x, op, out))

    def ilossy_all_reduce(
        self, x: Any, codec: Any, *, residual: Any = None, op: str = "avg", seed: int = 0
    ) -> Request:
        """Start a lossy_all_reduce."""
        output, kept = calls.lossy_all_reduce(x, residual)
        name = calls.op_name(op)
        land(output.memory)
        memory = None if kept is None else kept.memory
        land(memory)
        started = self._core.lossy_all_reduce(output.memory, str(codec), name, memory, seed % 2**32)
        return Request(started, output, self, also=kept)

    def ireduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None) -> Request:
        """Start a reduce."""
        return self._start(calls.reduce(x, op, root, out, self._place))

    def ibroadcast(self, x: Any, root: int = 0) -> Request:
        """Start a broadcast."""
        return self._start(calls.broadcast(x, root, self._place))

    def iall_gather(self, x: Any, out: Any = None, *, counts: Sequence[int] | None = None) -> Request:
        """Start an all_gather."""
        return self._start(calls.all_gather(x, out, counts, self._place))

    def igather(self, x: Any, root: int = 0, out: Any = None, *, counts: Sequence[int] | None = None) -> Request:
        """Start a gather."""
        return self._start(calls.gather(x, root, out, counts, self._place))

    def iscatter(
        self, x: Any = None, root: int = 0, out: Any = None, *, counts: Sequence[int] | None = None
    ) -> Request:
        """Start a scatter."""
        return self._start(calls.scatter(x, root, out, counts, self._place))

    def ireduce_scatter(
        self, x: Any, op: str = "sum", out: Any = None, *, counts: Sequence[int] | None = None
    ) -> Request:
        """Start a reduce_scatter."""
        return self._start(calls.reduce_scatter(x, op, out, counts, self._place))

    def iall_to_all(
        self,
        x: Any,
        out: Any = None,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
    ) -> Request:
        """Start an all_to_all."""
        return self._start(calls.all_to_all(x, out, send_counts, recv_counts, self._place[1]))

    def ibarrier(self) -> Request:
        """Start a barrier."""
        return self._start(Call("barrier"))
