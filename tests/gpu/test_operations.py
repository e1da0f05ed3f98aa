# SPDX-License-Identifier: Apache-2.0
"""Operations and training on tensors of a GPU give the CPU's results. All ranks share the GPU.

The cases are those of the simulated device. Idle kernels keep the streams busy, so a missing wait shows.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import SOON_S, Rank, error_of, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = [pytest.mark.multiprocess]

BOTH_WAITS = pytest.mark.parametrize("stream_waits", ["0", "1"])
SMALL = {"BRAID_PIECE_BYTES": "512", "BRAID_CHUNK_BYTES": "1024"}
BUSY_CYCLES = 100_000  # some 0.05 ms
HERE = Path(__file__).parent


def start(rank: Rank) -> None:
    """Find the modules of the simulated device's tests, and make the default group."""
    sys.path.append(str(HERE.parent / "device"))
    rank.join()


def late(tensor: Any) -> Any:
    """Return a copy on the GPU, whose stream is then busy for a while."""
    import torch

    there = tensor.cuda()
    torch.cuda._sleep(BUSY_CYCLES)
    return there


def cases(rank: Rank) -> int:
    """Run every case on both devices; return the number of tensors that were compared."""
    start(rank)
    import torch
    from cases import CASES, bits
    from pipelined import PIPELINED

    compared = 0
    for case in (*CASES, *PIPELINED):
        expected = list(bits(case(rank.rank, rank.size, torch.Tensor.clone)))
        for index, (mine, cpu) in enumerate(zip(bits(case(rank.rank, rank.size, late)), expected, strict=True)):
            assert mine == cpu, f"{case.__name__}: tensor {index} differs"
            compared += 1
    return compared


@BOTH_WAITS
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_has_the_bits_of_the_cpu(ranks: int, stream_waits: str) -> None:
    """All operations and dtypes, small ones and ones of many pieces."""
    environment = {"BRAID_STREAM_WAITS": stream_waits, **SMALL}
    assert min(run_ranks(cases, ranks, join=False, environment=environment)) > 100


def trainings(rank: Rank) -> None:
    """Train in each way on both devices, and compare the parameters."""
    start(rank)
    import torch
    from test_training import WAYS, trained

    for way in WAYS:
        expected, found = trained(way, "cpu", rank.rank), trained(way, "cuda", rank.rank)
        for mine, cpu in zip(found, expected, strict=True):
            assert torch.allclose(mine, cpu, atol=1e-4), f"{way}: {(mine - cpu).abs().max().item()} off"


@BOTH_WAITS
def test_training(stream_waits: str) -> None:
    """DDP, DDP with a hook that uses futures, FSDP2."""
    run_ranks(trainings, 2, join=False, environment={"BRAID_STREAM_WAITS": stream_waits})


def parts_of_torch(rank: Rank, hybrid: bool) -> None:
    """Run each part on both devices and compare."""
    start(rank)
    import torch
    from test_users import PARTS, hybrid_sharding

    for part in (hybrid_sharding,) if hybrid else PARTS:
        expected, found = part(rank, "cpu"), part(rank, "cuda")
        for mine, cpu in zip(found, expected, strict=True):
            assert torch.allclose(mine.detach().cpu(), cpu.detach(), atol=1e-4), part.__name__


@pytest.mark.parametrize("hybrid", [False, True])
def test_parts_of_torch(hybrid: bool) -> None:
    """DTensor, ZeRO, functional collectives, distributed checkpoints; HSDP on four ranks."""
    run_ranks(parts_of_torch, 4 if hybrid else 2, hybrid, join=False)


def late_peer(rank: Rank) -> float:
    """Rank 1 calls when wait() of rank 0 has returned; return how long that took."""
    start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.full((5000,), rank.rank + 1.0, device="cuda")
    copy = tensor.clone()
    dist.all_reduce(copy)
    assert (copy * 2).cpu().eq(6).all()  # a kernel's first call loads it, which waits for all streams
    rank.mark("warm")
    rank.wait_for("warm", 1 - rank.rank)
    if rank.rank == 1:
        rank.wait_for("goes on", 0)
    began = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    took = time.monotonic() - began
    used = tensor * 2  # on the caller's stream, without a wait of the CPU
    if rank.rank == 0:
        assert not work.is_completed()
        rank.mark("goes on")
    assert used.cpu().eq(6).all()
    return took


def test_wait_returns_while_the_peer_is_late() -> None:
    """With waits of the stream. The CPU goes on, and the stream's next operator sees the result."""
    print(run_ranks(late_peer, 2, join=False, environment={"BRAID_STREAM_WAITS": "1"}))


def peer_dies(rank: Rank, stream_waits: bool) -> str:
    """Rank 1 dies while rank 0 waits; return rank 0's error."""
    start(rank)
    import torch
    import torch.distributed as dist

    tensor = torch.ones(5000, device="cuda")
    dist.all_reduce(tensor)
    (tensor + 1).cpu()  # loads the kernel
    rank.mark("warm")
    rank.wait_for("warm", 1 - rank.rank)
    if rank.rank == 1:
        rank.wait_for("called", 0)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    if not stream_waits:
        rank.mark("called")
        return error_of(work.wait)
    work.wait()
    used = tensor + 1
    rank.mark("called")
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    eventually(lambda: backend.failure() is not None, "the failure")
    began = time.monotonic()
    torch.cuda.synchronize()
    assert time.monotonic() - began < SOON_S
    assert used.cpu().isnan().all(), "a result that never came must not look like one"
    return error_of(lambda: dist.all_reduce(tensor))


@pytest.mark.parametrize("stream_waits", [False, True])
def test_the_death_of_a_peer_is_an_error(stream_waits: bool) -> None:
    """The streams drain, and the error names the peer."""
    environment = {"BRAID_STREAM_WAITS": str(int(stream_waits))}
    results = run_ranks(peer_dies, 2, stream_waits, join=False, killed=[1], environment=environment)
    assert "rank 1" in results[0]


def encoded(rank: Rank) -> list[str]:
    """Lossy all_reduces between hosts; return the codecs whose tensors were copied whole."""
    os.environ.update(BRAID_HOST=f"host-{rank.rank}", BRAID_LINKS="assume")
    start(rank)
    import braid
    import torch
    from test_codecs import CODECS, copied

    whole = []
    for codec in CODECS:
        left = {device: torch.zeros(5003, device=device) for device in ("cpu", "cuda")}
        for step in range(3):
            drawn = torch.randn(5003, generator=torch.Generator().manual_seed(100 * step + rank.rank))
            results = {}
            for device in ("cpu", "cuda"):
                tensor = late(drawn) if device == "cuda" else drawn.clone()
                tensor.mul_(2)
                before = copied()[0]
                braid.lossy_all_reduce(tensor, codec, residual=left[device])
                results[device] = tensor.cpu()
                if device == "cuda" and copied()[0] - before >= 4 * drawn.numel():
                    whole.append(codec)
            assert torch.equal(results["cpu"].view(torch.int32), results["cuda"].view(torch.int32)), codec
            assert torch.equal(left["cpu"], left["cuda"].cpu()), codec
    return whole


def test_codecs_encode_on_the_gpu() -> None:
    """Results and residuals have the bits of the host's, and only encoded bytes are copied."""
    settings = {"BRAID_ALGORITHM": "all_reduce=direct", "BRAID_CHUNK_BYTES": str(1 << 26)}
    whole = run_ranks(encoded, 2, wire="shm,tcp", join=False, environment=settings)
    assert whole == [[], []]


def arrays(rank: Rank) -> None:
    """Every call of a communicator on CuPy's arrays, and one that torch and CuPy share."""
    cupy: Any = pytest.importorskip("cupy")
    import numpy as np
    import torch
    from arrays import contribution, join, known_dtypes, ops_for, reduced, same

    n, r = rank.size, rank.rank
    with join(rank) as comm, cupy.cuda.Stream(non_blocking=True):
        for dtype in known_dtypes():
            if dtype.name.startswith("float8"):  # CuPy lacks them
                continue
            for op in ops_for(dtype):
                x = cupy.asarray(contribution(r, 1003, dtype))
                torch.cuda._sleep(BUSY_CYCLES)
                assert comm.all_reduce(x, op) is x
                assert same(cupy.asnumpy(x), reduced(op, n, 1003, dtype)), (dtype, op)
        rows = np.stack([contribution(each, 501, np.dtype(np.float32), salt=1) for each in range(n)])
        mine = cupy.asarray(rows[r])
        whole = comm.all_gather(mine)
        assert isinstance(whole, cupy.ndarray)
        assert same(cupy.asnumpy(whole), rows)
        assert same(cupy.asnumpy(comm.reduce_scatter(whole)), rows[r] * n)
        back = cupy.zeros_like(mine)
        assert comm.sendrecv(mine, (r + 1) % n, back, (r - 1) % n) is back
        assert same(cupy.asnumpy(back), rows[(r - 1) % n])
        shared = torch.from_dlpack(cupy.asarray(rows[r]))
        assert comm.all_reduce(shared) is shared
        assert same(shared.cpu().numpy(), rows.sum(0))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_arrays(ranks: int) -> None:
    """braid.Communicator without a process group."""
    run_ranks(arrays, ranks, join=False)


SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
group = dist.new_group([0, 1], backend="nccl", pg_options=dist.ProcessGroupNCCL.Options())
for _ in range(3):
    model(torch.randn(8, 4, device="cuda")).square().mean().backward()
    optimizer.step()
seen = [torch.empty_like(model.module.weight) for _ in range(2)]
dist.all_gather(seen, model.module.weight.detach(), group=group)
dist.barrier(device_ids=[0])
assert torch.equal(*seen)
print("the same weights, backend", dist.get_backend(), flush=True)
dist.destroy_process_group()
"""


def test_a_script_for_nccl_runs_unedited(tmp_path: Path) -> None:
    """NCCL itself refuses two ranks on one GPU."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "braid.cli", "run", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit(120.0), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same weights, backend nccl") == 2, done.stdout + done.stderr
