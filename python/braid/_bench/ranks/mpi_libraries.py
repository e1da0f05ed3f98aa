# SPDX-License-Identifier: Apache-2.0
"""The MPI libraries that can take part: how each is found, recognised, loaded and set."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class MpiLibrary:
    """What sets one MPI library apart from the others."""

    file: str  # the shared library, in the folder lib
    abi: str  # mpi4py's name for its binary interface
    launchers: tuple[str, ...]  # programs that start ranks, in the folder bin
    launcher_says: tuple[str, ...]  # --version of a launcher says one of these
    version_says: str  # MPI_Get_library_version says this, in lower case
    package: str  # the Python wheel that brings it
    defaults: dict[str, str] = field(default_factory=dict)  # environment variables that the user may set otherwise


MPI_LIBRARIES = {
    "openmpi": MpiLibrary(
        file="libmpi.so.40",
        abi="openmpi",
        launchers=("mpirun", "mpiexec"),
        launcher_says=("Open MPI", "Open RTE", "OpenRTE"),
        version_says="open mpi",
        package="openmpi",
    ),
    "mpich": MpiLibrary(
        file="libmpi.so.12",
        abi="mpich",
        launchers=("mpirun", "mpiexec"),
        launcher_says=("HYDRA", "MPICH"),
        version_says="mpich",
        package="mpich",
    ),
    "intelmpi": MpiLibrary(
        file="libmpi.so.12",
        abi="mpich",
        launchers=("mpiexec.hydra",),  # its mpirun is a script that finds this program on PATH only
        launcher_says=("Intel(R) MPI",),
        version_says="intel(r) mpi",
        package="impi-rt",
        # All ranks are on one host, so no fabric is needed beside shared memory.
        defaults={"I_MPI_FABRICS": "shm", "I_MPI_SHM_HEAP": "1"},
    ),
}
