# SPDX-License-Identifier: Apache-2.0
"""A rank that calls MPI through mpi4py."""

import re
from collections.abc import Callable
from typing import Any

from braid._bench.ranks.array_rank import ArrayRank
from braid._bench.ranks.contestant_rank import Buffers
from braid._bench.ranks.mpi_libraries import MPI_LIBRARIES
from braid._bench.workload import Workload

# Those whose name is not theirs in capitals, and _T.
_DATATYPES = {
    "bool": "C_BOOL",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX",
}


class MpiRank(ArrayRank):
    """A rank of MPI.COMM_WORLD, in a process that mpirun started."""

    def __init__(self, library: str) -> None:
        """Initialise MPI; RuntimeError when what mpi4py loaded is not the library that was asked for."""
        from mpi4py import MPI

        self._mpi, self._comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._comm.rank, self._comm.size
        self._version = MPI.Get_library_version().split("\n")[0].split(",")[0].strip()
        if MPI_LIBRARIES[library].version_says not in self._version.lower():
            raise RuntimeError(f"mpi4py was built for, or loaded, {self._version}, not {library}")

    def call_for(self, work: Workload, buffers: Buffers) -> Callable[[], object]:
        """Return a blocking call of mpi4py."""
        comm, mpi = self._comm, self._mpi
        op = self._op(work) if work.op else mpi.OP_NULL
        kind = self._datatype(work.dtype)
        x, out = [buffers.input, kind], [buffers.output, kind]
        root = self.rank == 0
        match work.collective:
            case "all_reduce":
                source = mpi.IN_PLACE if work.in_place else x
                return lambda: comm.Allreduce(source, out, op)
            case "reduce":
                source = mpi.IN_PLACE if work.in_place and root else x
                return lambda: comm.Reduce(source, out if root else None, op)
            case "broadcast":
                return lambda: comm.Bcast(x)
            case "all_gather":
                source = mpi.IN_PLACE if work.in_place else x
                return lambda: comm.Allgather(source, out)
            case "reduce_scatter":
                return lambda: comm.Reduce_scatter_block(x, out, op)
            case "all_to_all":
                return lambda: comm.Alltoall(x, out)
            case "gather":
                return lambda: comm.Gather(x, out if root else None)
            case "scatter":
                return lambda: comm.Scatter(x if root else None, out)
            case "barrier":
                return comm.Barrier
            case "send_recv":
                following, preceding = self.neighbours
                return lambda: comm.Sendrecv(x, following, 0, out, preceding, 0)
            case "ping_pong":
                return self.ping_pong(comm.Send, comm.Recv, x, out)
        raise ValueError(f"unknown collective {work.collective}")

    def _op(self, work: Workload) -> Any:
        if work.op == "avg":
            raise ValueError("MPI has no operator for averages")
        if work.dtype == "bool":
            raise ValueError("MPI has logical operators, but no arithmetic ones, for bool")
        return getattr(self._mpi, "PROD" if work.op == "product" else work.op.upper())

    def _datatype(self, dtype: str) -> Any:
        name = _DATATYPES.get(dtype, f"{dtype.upper()}_T")
        found = getattr(self._mpi, name, self._mpi.DATATYPE_NULL)
        if found == self._mpi.DATATYPE_NULL:
            raise ValueError(f"this MPI has no datatype for {dtype}")
        return found

    def barrier(self) -> None:
        """Wait in MPI_Barrier."""
        self._comm.Barrier()

    def about(self) -> str:
        """Return the library's version."""
        return version_number(self._version)

    def close(self) -> None:
        """Finalise MPI."""
        self._mpi.Finalize()


def version_number(text: str) -> str:
    """Return the number in a line like "Open MPI v5.0.11", or the line where it has none."""
    found = re.search(r"\d[\w.]*", text)
    return found[0] if found else text
