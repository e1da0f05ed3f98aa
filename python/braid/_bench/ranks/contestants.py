# SPDX-License-Identifier: Apache-2.0
"""Who takes part: for each name, how its ranks come to be, or why they cannot."""

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from braid import _core
from braid._bench.collectives import COLLECTIVES
from braid._bench.ranks.mpi_libraries import MPI_LIBRARIES, MpiLibrary
from braid._bench.ranks.team import Place, Recipe
from braid._bench.results import REFERENCE
from braid._bench.workload import UsageError

IN_TORCH = ("gloo", "nccl", "ucc")
KNOWN = (*IN_TORCH, *MPI_LIBRARIES)
# Keeps their session folders and segments where they are removed, whatever happens.
_OWN_FILES = dict.fromkeys(
    ("TMPDIR", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory"), "{folder}"
)
_TORCH_RANK = "braid._bench.ranks.torch_rank:TorchRank"
_COMMUNICATOR_RANK = "braid._bench.ranks.communicator_rank:CommunicatorRank"
_MPI_RANK = "braid._bench.ranks.mpi_rank:MpiRank"


class UnavailableError(Exception):
    """A contestant is not installed; the message says what is missing."""


@dataclass(frozen=True)
class Setting:
    """What the command line asks of braid itself."""

    ranks: int
    api: str = "torch"
    algorithm: str = ""
    hosts: tuple[int, ...] = ()  # ranks per host; empty: all on one
    places: tuple[Place, ...] = ()  # of a lab, by rank
    servers: tuple[Place, ...] = ()  # of a lab, one per aggregator
    device: str = ""  # of the tensors; empty: host memory


def parse_against(text: str) -> dict[str, Path | None]:
    """Return the contestants that "gloo,openmpi=/opt/ompi" names, each with its folder or None.

    Raises:
        UsageError: an unknown name, or a folder that is not one.
    """
    found: dict[str, Path | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, folder = part.partition("=")
        name = name.lower()
        if name == REFERENCE or part.lower() == "none":
            continue
        if name not in KNOWN:
            raise UsageError(
                f"--against: unknown contestant {name!r}, expected some of {', '.join(KNOWN)}, or none"
            )
        if folder and name not in MPI_LIBRARIES:
            raise UsageError(f"--against: {name} comes with torch, only an MPI can have a folder")
        if folder and not Path(folder, "bin").is_dir():
            raise UsageError(f"--against: {folder} has no bin folder with an mpirun")
        found[name] = Path(folder) if folder else None
    return found


def parse_layout(text: str, ranks: int) -> tuple[int, ...]:
    """Return the numbers of ranks per host that "2,2" or "2x3" (two hosts of three) say; empty for ""."""
    if not text:
        return ()
    try:
        if "x" in text:
            hosts, each = (int(number) for number in text.split("x"))
            layout = (each,) * hosts
        else:
            layout = tuple(int(number) for number in text.split(","))
    except ValueError:
        raise UsageError(
            f"--layout: {text!r} is neither ranks per host, as in 3,1, nor HOSTSxRANKS, as in 2x4"
        ) from None
    if min(layout, default=0) < 1 or sum(layout) != ranks:
        raise UsageError(f"--layout: {text!r} does not place {ranks} ranks, each host having one or more")
    return layout


def check_algorithm(algorithm: str, collective: str) -> str:
    """Return it; UsageError when the collective has no such algorithm."""
    if not algorithm:
        return ""
    if COLLECTIVES[collective].message:
        raise UsageError(f"--algorithm: {collective} is no collective, there is nothing to choose")
    algorithms = _core.algorithms(collective)
    if algorithm not in algorithms:
        raise UsageError(f"--algorithm: {collective} has {', '.join(algorithms)}, not {algorithm!r}")
    return algorithm


def braid_recipe(setting: Setting, collective: str = "all_reduce") -> Recipe:
    """Return how braid's own ranks are started."""
    environment = {"BRAID_ALGORITHM": f"{collective}={setting.algorithm}"} if setting.algorithm else {}
    hosts = tuple(
        {"BRAID_HOST": f"bench-{host}", "BRAID_LINKS": "measure"}
        for host, ranks in enumerate(setting.hosts)
        for _ in range(ranks)
    )
    maker, settings, join = _COMMUNICATOR_RANK, {}, "file://{folder}/meeting"
    if setting.api == "torch":
        maker, settings = _TORCH_RANK, {"backend": "braid", **_device(setting)}
    if setting.servers:
        environment["BRAID_SERVERS"] = str(len(setting.servers))
        if setting.api == "torch":  # servers of torch's jobs meet in a store that listens
            own = setting.places[0][1]
            join = settings["listen_at"] = f"{own['MASTER_ADDR']}:{own['MASTER_PORT']}"
    return Recipe(REFERENCE, maker, settings, environment, hosts, setting.places,
                  servers=setting.servers, servers_join=join)  # fmt: skip


def recipe_for(name: str, folder: Path | None, setting: Setting) -> Recipe:
    """Return how a contestant's ranks are started.

    Raises:
        UnavailableError: something that it takes is not there. Some of that only its ranks can find out.
    """
    if name in IN_TORCH:
        return Recipe(name, _TORCH_RANK, {"backend": name, **_device(setting)}, places=setting.places)
    if setting.device:
        raise UnavailableError("is called with arrays in host memory alone (--device)")
    if setting.places:
        raise UnavailableError("mpirun cannot be made to start ranks in a lab (--lab)")
    if setting.hosts:
        raise UnavailableError("cannot be made to take one machine for several hosts (--layout)")
    if importlib.util.find_spec("mpi4py") is None:
        raise UnavailableError("mpi4py is not installed (pip install '.[bench]' in a clone of braid)")
    library = MPI_LIBRARIES[name]
    launcher = _find_launcher(name, library, folder)
    libraries = launcher.parent.parent / "lib"
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
        "MPI4PY_MPIABI": library.abi,
        "MPI4PY_LIBMPI": str(libraries / library.file) if (libraries / library.file).exists() else library.file,
        **{variable: value for variable, value in library.defaults.items() if variable not in os.environ},
    }
    options: tuple[str, ...] = ()
    if name == "openmpi":
        options = ("--oversubscribe",) if setting.ranks > len(os.sched_getaffinity(0)) else ()
        if os.geteuid() == 0:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Recipe(name, _MPI_RANK, {"library": name}, environment, launcher=(str(launcher), *options),
                  launcher_environment=_OWN_FILES)  # fmt: skip


def _device(setting: Setting) -> dict[str, str]:
    return {"device": setting.device} if setting.device else {}


def _find_launcher(name: str, library: MpiLibrary, folder: Path | None) -> Path:
    looked = []
    for candidate in _candidates(name, library, folder):
        if candidate.is_file():
            says = _version_of(candidate)
            if any(word in says for word in library.launcher_says):
                return candidate
            looked.append(f"{candidate} is another MPI")
    where = (
        f"in {folder}"
        if folder
        else f"(try --against {name}=FOLDER, or install one: pip install {library.package})"
    )
    missing = f"no {library.launchers[0]} of it {where}"
    raise UnavailableError(missing + "".join(f"; {line}" for line in looked[:2]))


def _candidates(name: str, library: MpiLibrary, folder: Path | None) -> list[Path]:
    if folder:
        return [folder / "bin" / program for program in library.launchers]
    found = [Path(sys.prefix, "bin", program) for program in library.launchers]
    own = [f"{program}.{name}" for program in library.launchers]  # Debian keeps several side by side
    for program in (*own, *library.launchers):
        if path := shutil.which(program):
            found.append(Path(path))
    return list(dict.fromkeys(found))


def _version_of(launcher: Path) -> str:
    try:
        result = subprocess.run(
            [str(launcher), "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr


def preload(names: list[str], setting: Setting) -> list[str]:
    """Return the modules that forked ranks share, imported once."""
    modules = ["__main__", "numpy", "braid._bench.ranks.pattern"]
    if setting.api == "torch" or any(name in IN_TORCH for name in names):
        modules += ["torch", "torch.distributed", "braid._bench.ranks.torch_rank"]
    return modules
