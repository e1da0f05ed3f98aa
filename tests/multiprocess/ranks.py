# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks, each a process of its own, and brings back what they returned.

The processes are forked from one clean server that has imported torch already, so a rank starts in milliseconds.
A rank finds the function by file and name; arguments and results are pickled.
"""

import faulthandler
import importlib.util
import multiprocessing.forkserver
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from braid._rivals import has_finished
from slowness import limit, limit_now
from waiting import eventually

GROUP_TIMEOUT_S = limit(60.0)
# A rank hears of a death at once: 0.1 s on an idle machine. A rank that hears of it by silence only needs 20 s.
SOON_S = limit(12.0)
# What ranks would otherwise import one by one, every time. Not braid._torch.stats: its import reads variables.
PRELOADED = [
    "numpy",
    "pytest",
    "torch",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.distributed",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "braid._array.communicator",
    "braid._links",
    "braid._torch.adapter",
    "braid._torch.local_leg",
    "braid._torch.monitored",
    "braid._torch.names",
    "braid._torch.start_line",
    "braid.strategies",
]
LOG_BYTES = 8000
# What a rank is sent when its limit has passed: it tells which operations are under way.
TELL = signal.SIGUSR2
TOLD_OPERATIONS = 20


@dataclass
class Rank:
    """One rank of a test, as the function that runs on it sees it."""

    rank: int
    size: int
    folder: Path
    store: Any = None

    def join(
        self, prefix: str = "first", members: Collection[int] = (), timeout_s: float = GROUP_TIMEOUT_S
    ) -> None:
        """Make the default group of `members` (all ranks unless given) with backend "braid"."""
        import torch.distributed as dist

        ranks = sorted(members) or list(range(self.size))
        # Without a free descriptor torch's FileStore ends the process when it is destroyed. So we keep it.
        self.store = dist.FileStore(str(self.folder / "store"))
        dist.init_process_group(
            "braid",
            store=dist.PrefixStore(prefix, self.store),
            rank=ranks.index(self.rank),
            world_size=len(ranks),
            timeout=timedelta(seconds=timeout_s),
        )

    def meet_at(self, port: int, timeout_s: float = GROUP_TIMEOUT_S) -> None:
        """Make the default group, of Gloo, at a store of rank 0 that other processes reach."""
        import torch.distributed as dist

        self.store = dist.TCPStore("127.0.0.1", port, is_master=self.rank == 0, wait_for_workers=False)
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore("ranks", self.store),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=timeout_s),
        )

    def set_timeout(self, seconds: float) -> None:
        """Let operations of the default group time out sooner than its forming, which a busy machine delays."""
        import torch
        import torch.distributed as dist

        assert dist.group.WORLD is not None
        dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=seconds))

    def mark(self, name: str) -> None:
        """Say that this rank has come to a place, for others to wait for."""
        hidden = self.folder / f".{name}.{self.rank}"
        hidden.write_text(str(os.getpid()))
        hidden.replace(self.folder / f"{name}.{self.rank}")

    def wait_for(self, name: str, rank: int, timeout_s: float = GROUP_TIMEOUT_S) -> None:
        """Wait until another rank has come to a place, without the group under test."""
        eventually((self.folder / f"{name}.{rank}").exists, f"rank {rank} at {name!r}", timeout_s)

    def meet(self, name: str, ranks: Collection[int] = (), timeout_s: float = GROUP_TIMEOUT_S) -> None:
        """Wait until these ranks (all unless given) have come to a place, without the group under test.

        A rank may leave a collective, and die, while others are still in it: these then fail there.
        """
        self.mark(name)
        for other in ranks or range(self.size):
            self.wait_for(name, other, timeout_s)

    def wait_for_death(self, rank: int, name: str) -> None:
        """Wait until a rank that was at this place is dead. One that is about to die may stand still for long."""
        stat = Path("/proc") / (self.folder / f"{name}.{rank}").read_text() / "stat"

        def is_dead() -> bool:
            try:
                return stat.read_text().rpartition(") ")[2][0] in "ZX"
            except (FileNotFoundError, ProcessLookupError):
                return True

        eventually(is_dead, f"the death of rank {rank}")


def error_of(call: Callable[[], object]) -> str:
    """Return the message of the DistBackendError that the call must raise."""
    import torch.distributed as dist

    try:
        call()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error was raised")


class RanksFailedError(AssertionError):
    """Some ranks raised, died or hung; the text has what each of them left."""


def start_fork_server() -> None:
    """Start the server that ranks are forked from, unless it runs."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    multiprocessing.forkserver.ensure_running()


def prepare_ranks() -> None:
    """Start the server, and wait until it has imported all.

    Before any test: a benchmark in the process of pytest starts a server that lacks most of it. Then every rank
    would import by itself what takes a second.
    """
    start_fork_server()
    first = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    first.start()
    first.join()


def run_ranks(
    function: Callable[..., Any],
    size: int,
    *args: Any,
    wire: str = "shm",
    join: bool = True,
    timeout_s: float = 240.0,
    environment: Mapping[str, str] | None = None,
    killed: Collection[int] = (),
    rival: bool = False,
) -> list[Any]:
    """Run ``function(rank, *args)`` on `size` ranks and return the results by rank.

    Args:
        function: a function at the top of a module.
        size: number of ranks.
        args: picklable.
        wire: which transports the ranks may use (BRAID_TRANSPORTS).
        join: make the group before the function, destroy it afterwards.
        timeout_s: then whatever still runs is killed, and the test fails; more on a slow machine.
        environment: variables the ranks get.
        killed: ranks that are meant to die; all others must return.
        rival: the ranks use another backend, which may abort once they have returned: see braid._rivals.

    Raises:
        RanksFailedError: with the tracebacks, and the output of ranks that died or hung.
    """
    timeout_s = limit_now(timeout_s)
    variables = {"BRAID_TRANSPORTS": wire, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="braid-test-") as name:
        folder = Path(name)
        start_fork_server()
        context = multiprocessing.get_context("forkserver")
        place = (sys.modules[function.__module__].__file__, function.__qualname__)
        processes = [
            context.Process(
                target=_run_rank, args=(Rank(i, size, folder), place, args, join, variables, timeout_s)
            )
            for i in range(size)
        ]
        for rank in range(size):
            (folder / f"log.{rank}").touch()  # a rank that starts late is one that has said nothing
        for process in processes:
            process.start()
        _wait(folder, processes, timeout_s)
        return _collect(folder, processes, killed, rival)


def _wait(folder: Path, processes: list[ForkServerProcess], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for process in processes[1:]:
        process.join(max(0.0, deadline - time.monotonic()))
    (folder / "others.over").touch()
    processes[0].join(max(0.0, deadline - time.monotonic()))
    hanging = [process for process in processes if process.is_alive()]
    _send(hanging, TELL)
    for process in hanging:
        process.join(limit(1.0) / len(hanging))  # it does not end by this
    # A rank that went on would hear of the first one's death, and show that as its error.
    _send(hanging, signal.SIGSTOP)
    _send(hanging, signal.SIGKILL)
    for process in hanging:
        process.join()


def _send(processes: list[ForkServerProcess], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended meanwhile, and the server that forked it knows
            os.kill(process.pid, number)


def _collect(folder: Path, processes: list[ForkServerProcess], killed: Collection[int], rival: bool) -> list[Any]:
    results: list[Any] = []
    complaints = []
    for rank, process in enumerate(processes):
        path = folder / f"result.{rank}"
        good, value = pickle.loads(path.read_bytes()) if path.exists() else (False, "no result")
        results.append(value if good else None)
        if rank in killed:
            if process.exitcode != -signal.SIGKILL:
                complaints.append(f"rank {rank} should have been killed, but ended with {process.exitcode}")
        elif not good or not (process.exitcode == 0 or (rival and has_finished(process.exitcode, [path]))):
            log = (folder / f"log.{rank}").read_text(errors="replace")[-LOG_BYTES:]
            complaints.append(f"rank {rank} ended with status {process.exitcode}: {value}\n{log}")
    if complaints:
        raise RanksFailedError("\n".join(complaints))
    return results


def _run_rank(
    rank: Rank,
    place: tuple[str, str],
    args: tuple[Any, ...],
    join: bool,
    variables: Mapping[str, str],
    timeout_s: float,
) -> None:
    log = os.open(rank.folder / f"log.{rank.rank}", os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()  # shows where it crashes
    # Shows where it hangs, just before it is killed for that.
    faulthandler.dump_traceback_later(timeout_s * 0.9)
    signal.signal(TELL, _tell_operations)
    os.environ.update(variables)
    try:
        outcome = (True, _call(rank, _load(place), args, join))
    except BaseException:
        outcome = (False, traceback.format_exc())
    faulthandler.cancel_dump_traceback_later()
    written = rank.folder / f"writing.{rank.rank}"
    written.write_bytes(pickle.dumps(outcome))
    written.rename(rank.folder / f"result.{rank.rank}")
    if rank.rank == 0 and rank.store is not None:  # which may serve the others
        while not (rank.folder / "others.over").exists():
            time.sleep(0.01)
    if not outcome[0]:
        sys.exit(1)


def _tell_operations(*_: object) -> None:
    """Write the operations that are not over to standard error, the newest last."""
    import braid

    waiting = [entry for entry in braid.flight_record()["entries"] if entry["state"] != "completed"]
    print(f"operations that are not over: {len(waiting)}", file=sys.stderr)
    for entry in waiting[-TOLD_OPERATIONS:]:
        told = {key: entry.get(key) for key in ("profiling_name", "state", "collective_seq_id", "input_sizes")}
        print(f"  group {entry.get('process_group')}: {told}", file=sys.stderr, flush=True)


def _call(rank: Rank, function: Callable[..., Any], args: tuple[Any, ...], join: bool) -> Any:
    import braid  # noqa: F401  (registers the backend where autoload is off)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if join:
        rank.join()
    value = function(rank, *args)
    if dist.is_initialized():
        dist.destroy_process_group()
    return value


def _load(place: tuple[str, str]) -> Callable[..., Any]:
    path, name = place
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function
