# SPDX-License-Identifier: Apache-2.0
"""A rank that calls braid.Communicator."""

from collections.abc import Callable
from typing import Any

import braid
from braid._bench.ranks.array_rank import ArrayRank
from braid._bench.ranks.choice import describe_choice
from braid._bench.ranks.contestant_rank import Buffers
from braid._bench.workload import Workload


class CommunicatorRank(ArrayRank):
    """A rank of a braid.Communicator."""

    def __init__(self, rank: int, size: int, folder: str) -> None:
        """Join the communicator."""
        self.rank, self.size = rank, size
        self._comm = braid.Communicator(f"file://{folder}/meeting", rank=rank, size=size, timeout_s=120)

    def call_for(self, work: Workload, buffers: Buffers) -> Callable[[], object]:
        """Return a blocking call of the communicator."""
        comm, x, out, op = self._comm, buffers.input, buffers.output, work.op
        other = None if work.in_place else out
        root = self.rank == 0
        match work.collective:
            case "all_reduce":
                return lambda: comm.all_reduce(x, op, other)
            case "reduce":
                return lambda: comm.reduce(x, op, 0, other if root else None)
            case "broadcast":
                return lambda: comm.broadcast(x)
            case "all_gather":
                return lambda: comm.all_gather(x, out)
            case "reduce_scatter":
                return lambda: comm.reduce_scatter(x, op, out)
            case "all_to_all":
                return lambda: comm.all_to_all(x, out)
            case "gather":
                return lambda: comm.gather(x, 0, out if root else None)
            case "scatter":
                return lambda: comm.scatter(x if root else None, 0, out)
            case "barrier":
                return lambda: comm.barrier()
            case "send_recv":
                following, preceding = self.neighbours
                return lambda: comm.sendrecv(x, following, out, preceding)
            case "ping_pong":
                return self.ping_pong(comm.send, comm.recv, x, out)
        raise ValueError(f"unknown collective {work.collective}")

    def barrier(self) -> None:
        """Wait in the communicator's barrier."""
        self._comm.barrier()

    def describe(self) -> dict[str, Any]:
        """Ask the communicator."""
        return describe_choice(self._comm, self._work)

    def about(self) -> str:
        """Return braid's version."""
        return f"braid {braid.__version__}, braid.Communicator"

    def close(self) -> None:
        """Close the communicator."""
        self._comm.close()
