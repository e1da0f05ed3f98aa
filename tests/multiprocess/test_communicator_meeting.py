# SPDX-License-Identifier: Apache-2.0
"""The ways in which the ranks of a communicator find each other, and what is said when they do not."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import braid
import numpy as np
import pytest
from arrays import join
from braid._array.rendezvous.mpi import meet_through_mpi
from braid._array.rendezvous.server import Server
from braid._array.rendezvous.tcp import TcpStore
from ports import free_port
from ranks import Rank, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess


def check(comm: braid.Communicator) -> None:
    assert comm.all_gather(np.array(comm.rank)).tolist() == list(range(comm.size))


def meet_by_tcp(rank: Rank, port: int) -> None:
    where = f"tcp://localhost:{port}"
    for _ in range(3):  # rank 0 closes its server and opens it again, while others may be connected
        with braid.Communicator(where, rank=rank.rank, size=rank.size, timeout_s=30) as comm:
            check(comm)
    first = braid.Communicator(where, rank=rank.rank, size=rank.size, timeout_s=30)
    with pytest.raises(ValueError, match="another name"):
        braid.Communicator(where, rank=rank.rank, size=rank.size)
    second = braid.Communicator(where, rank=rank.rank, size=rank.size, name="second", timeout_s=30)
    first.close()
    part = second.split(rank.rank % 2)
    assert part is not None
    second.close()
    check(part)


def meet_by_variables(rank: Rank, port: int) -> None:
    os.environ.update(RANK=str(rank.rank), WORLD_SIZE=str(rank.size), MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(port)
    with braid.Communicator("env://", timeout_s=30) as comm:
        check(comm)


def meet_as_under_torchrun(rank: Rank, port: int) -> None:
    """The agent itself listens at MASTER_PORT, with a store of torch's, and says so."""
    import torch.distributed as dist

    rank.store = dist.TCPStore("127.0.0.1", port, None, rank.rank == 0, wait_for_workers=False)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    meet_by_variables(rank, port)


def meet_in_a_store_of_torch(rank: Rank, port: int) -> None:
    import torch.distributed as dist

    rank.store = store = dist.TCPStore("127.0.0.1", port, rank.size, rank.rank == 0, wait_for_workers=False)
    with braid.Communicator(dist.PrefixStore("some", store), rank=rank.rank, size=rank.size) as comm:
        check(comm)
    if rank.rank == 0:
        with pytest.raises(TimeoutError, match="rank 1 has not come"):
            braid.Communicator(store, rank=0, size=2, name="alone", timeout_s=0.5)


def miss_somebody(rank: Rank, port: int) -> None:
    if rank.rank == 1:
        with pytest.raises(braid.CommunicatorTimeoutError, match=f"does not listen at localhost:{port}"):
            braid.Communicator(f"tcp://localhost:{port}", rank=1, size=2, timeout_s=0.5)
    else:
        with pytest.raises(braid.CommunicatorTimeoutError, match="rank 1 has not come") as caught:
            join(rank, timeout_s=0.5)
        assert caught.value.rank == 1


def meet_a_stranger(rank: Rank) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        where = f"tcp://127.0.0.1:{port}"
        with pytest.raises(braid.CommunicatorError, match="Address already in use; choose another port"):
            braid.Communicator(where, rank=0, size=2)

        def answer() -> None:
            connection, _ = stranger.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(braid.CommunicatorError, match="is no rank 0 of braid"):
            braid.Communicator(where, rank=1, size=2)
        thread.join()


@pytest.mark.parametrize(
    "function", [meet_by_variables, meet_as_under_torchrun, meet_in_a_store_of_torch, miss_somebody]
)
def test_meeting(function: Any) -> None:
    run_ranks(function, 2, free_port(), wire="shm,tcp", join=False)


def test_meeting_by_tcp() -> None:
    run_ranks(meet_by_tcp, 3, free_port(), wire="shm,tcp", join=False)


def test_meeting_a_stranger() -> None:
    run_ranks(meet_a_stranger, 1, wire="shm,tcp", join=False)


def test_server_that_goes_and_comes_back() -> None:
    server = Server("127.0.0.1", 0, token := os.urandom(16))
    store = TcpStore(["127.0.0.1"], server.port, timeout_s=5, token=token)
    store.set("key", b"value")
    assert store.get("key", 10) == b"value"
    with pytest.raises(TimeoutError, match="'other'"):
        store.get("other", 0.05)
    server.leave()
    server = Server("127.0.0.1", server.port, token)
    assert store.get("key", 10) == b"value"  # the store has told it again
    with pytest.raises(TimeoutError):
        TcpStore(["127.0.0.1"], server.port, timeout_s=0.2).get("key", 0.1)  # no token, no answer
    # A waiting client does not outlive the server.
    threading.Timer(0.1, server.leave).start()
    with pytest.raises(braid.CommunicatorTimeoutError, match="does not listen"):
        store.get("other", 60)
    store.close()


def test_mpi_rank_0_that_cannot_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no sockets left")

    monkeypatch.setattr("braid._array.rendezvous.mpi.Server", refuse)
    comm = SimpleNamespace(
        Get_rank=lambda: 0, allgather=lambda mine: [mine, mine], bcast=lambda value, root: value
    )
    with pytest.raises(braid.CommunicatorError, match="rank 0 cannot listen: no sockets left"):
        meet_through_mpi(comm, 1.0)


# ---- whole programs

PROGRAM = """
    import sys
    sys.modules["torch"] = None  # any import of torch fails
    import numpy as np, braid
    with braid.Communicator({where}, timeout_s=30) as comm:
        part = comm.split(comm.rank % 2)
        assert part.all_reduce(np.ones(1)) == (comm.size + 1 - comm.rank % 2) // 2
        print("sum", comm.all_reduce(np.full(1000, comm.rank + 1.0), "sum")[-1])
    assert not any(name.startswith("torch.") for name in sys.modules)
"""


def test_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM.format(where="'env://'")))
    variables = {"WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, **variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    assert [rank.communicate(timeout=limit(200))[0] for rank in ranks] == ["sum 6.0\n"] * 3


def test_under_mpi(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun") or shutil.which("mpirun", path=Path(sys.executable).parent)
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py or mpirun is not installed")
    script = tmp_path / "script.py"
    script.write_text("from mpi4py import MPI\n" + textwrap.dedent(PROGRAM.format(where="MPI.COMM_WORLD")))
    options = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    done = subprocess.run(
        [mpirun, "-n", "3", sys.executable, script],
        env={**os.environ, **options},
        capture_output=True,
        text=True,
        timeout=limit(200),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n").count("sum 6.0") == 3, done.stdout
