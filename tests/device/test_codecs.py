# SPDX-License-Identifier: Apache-2.0
"""Lossy reductions whose tensors are encoded on the simulated device: the host's bits, and encoded bytes alone."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]

CODECS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "sign", "top_k:0.05")


def apart(function: Any, ranks: int, per_host: int = 1, leg: str = "off") -> list[Any]:
    """Run a function on ranks of several hosts. The core has the algorithm of the device, in one segment."""
    environment = {
        "BRAID_ALGORITHM": "all_reduce=direct,reduce_scatter=direct", "BRAID_CHUNK_BYTES": str(1 << 26),
        "BRAID_LOCAL_LEG": leg,
    }  # fmt: skip
    return run_ranks(there, ranks, function, per_host, wire="shm,tcp", join=False, environment=environment)


def there(rank: Rank, function: Any, per_host: int) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["BRAID_HOST"] = f"host-{rank.rank // per_host}"
    os.environ["BRAID_LINKS"] = "assume"
    import coder
    import simulated
    import torch.distributed as dist

    sim = simulated.load()
    coder.register()
    rank.join()
    try:
        return function(rank, sim)
    finally:
        dist.destroy_process_group()


def copied() -> tuple[int, int]:
    """Return the bytes that the default group has copied down and up."""
    import braid

    row = braid.stats()[0]
    return row["copied_down_bytes"], row["copied_up_bytes"]


def as_on_the_host(rank: Rank, sim: Any) -> None:
    """Three steps with residuals, all codecs and dtypes, under every schedule; then the bytes that were copied."""
    import braid
    import torch
    import torch.distributed as dist
    from schedules import SCHEDULES, delays

    def gradient(step: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        drawn = torch.randn(elements, generator=torch.Generator().manual_seed(100 * step + rank.rank))
        return drawn.to(dtype)

    for number, codec in enumerate(CODECS):
        for dtype in (torch.float32, torch.bfloat16):
            if 4 * braid.Codec(codec).ratio >= dtype.itemsize:
                continue
            elements = 6000 if number % 2 else 5003
            left = {device: torch.zeros(elements, device=device) for device in ("cpu", "sim")}
            so_far = copied()[0]
            for step, op in enumerate((dist.ReduceOp.AVG, dist.ReduceOp.SUM, dist.ReduceOp.AVG)):
                sim.set_delays(**delays(SCHEDULES[(number + step) % len(SCHEDULES)], rank.rank))
                results = {}
                for device in ("cpu", "sim"):
                    tensor = gradient(step, elements, dtype).to(device)
                    tensor.mul_(2)  # queued: the codec must wait for it
                    work = braid.lossy_all_reduce(tensor, codec, residual=left[device], op=op, async_op=True)
                    assert work is not None
                    work.wait()
                    results[device] = tensor.clone().cpu()
                    coded = braid.Codec(codec).encoded_bytes(-(-elements // rank.size))
                    before, so_far = so_far, copied()[0]
                    assert so_far - before <= rank.size * coded, "whole tensors were copied"
                    assert (so_far > before) == (device == "sim")
                assert torch.equal(results["cpu"].view(torch.uint8), results["sim"].view(torch.uint8)), (
                    codec,
                    dtype,
                )
                assert torch.equal(left["cpu"], left["sim"].cpu()), (codec, dtype, step)
    sim.set_delays()
    tensor = gradient(0, 4096 * rank.size, torch.float32).to("sim")
    before = copied()
    braid.lossy_all_reduce(tensor, "int8")
    down, up = (now - then for now, then in zip(copied(), before, strict=True))
    message = braid.Codec("int8").encoded_bytes(4096)
    assert down == rank.size * message, (down, up, message)  # a part for each other rank, and the sum
    assert up == (2 * rank.size - 1) * message  # the parts of the others, and all sums


@pytest.mark.parametrize("ranks", [2, 3])
def test_bits_are_those_of_the_host(ranks: int) -> None:
    """And bytes copied down equal message bytes."""
    apart(as_on_the_host, ranks)


def parts_as_on_the_host(rank: Rank, sim: Any) -> None:
    import braid
    import torch

    for dtype in (torch.float32, torch.float16):
        left = {device: torch.zeros(1500 * rank.size, device=device) for device in ("cpu", "sim")}
        for step in range(3):
            results = {}
            for device in ("cpu", "sim"):
                generator = torch.Generator().manual_seed(10 * step + rank.rank)
                given = torch.randn(1500 * rank.size, generator=generator).to(dtype).to(device)
                part = torch.empty(1500, dtype=dtype, device=device)
                before = copied()[0]
                braid.lossy_reduce_scatter(part, given, "int8", residual=left[device])
                results[device] = part.cpu()
                message = braid.Codec("int8").encoded_bytes(1500) if device == "sim" else 0
                assert copied()[0] - before == (rank.size - 1) * message
            assert torch.equal(results["cpu"], results["sim"]), dtype
            assert torch.equal(left["cpu"], left["sim"].cpu()), dtype


def test_parts_of_a_reduce_scatter_are_those_of_the_host() -> None:
    apart(parts_as_on_the_host, 3)


def encoded_on_the_host(rank: Rank, sim: Any) -> None:
    """Random codecs, and hosts of two ranks: whole tensors are copied, and results are right."""
    import braid
    import torch

    for codec in ("qsgd", "int8"):
        tensor = torch.full((1000,), float(rank.rank), device="sim")
        before = copied()[0]
        braid.lossy_all_reduce(tensor, codec)
        assert copied()[0] - before == 4000
        torch.testing.assert_close(tensor.cpu(), torch.full((1000,), (rank.size - 1) / 2), rtol=0.02, atol=0)


def test_what_the_host_encodes() -> None:
    apart(encoded_on_the_host, 4, per_host=2)


def with_a_leg(rank: Rank, sim: Any) -> None:
    """Shards are encoded on the device, and on the host, where it says so. Several chunks, with residuals."""
    import braid
    import torch
    from braid._torch import coders
    from schedules import SCHEDULES, delays

    def between_hosts() -> tuple[int, int]:
        rows = [row for row in braid.stats() if ":place" in row["group"]]
        return rows[0]["copied_down_bytes"], rows[0]["copied_up_bytes"]

    coder = coders._registered["sim"]
    for number, (codec, dtype) in enumerate(
        [("int8", torch.float32), ("top_k:0.05", torch.float32), ("int4", torch.bfloat16), ("qsgd", torch.float32)]
    ):
        for elements in (5003, (2 << 20) + 5 if dtype == torch.float32 and number == 0 else 64):
            found = {}
            sim.set_delays(**delays(SCHEDULES[(number + elements) % len(SCHEDULES)], rank.rank))
            for where in ("device", "host"):
                coders._registered.pop("sim", None)
                if where == "device":
                    coders.register("sim", coder)
                left = torch.zeros(elements, device="sim")
                part_left, part = torch.zeros(4 * 320, device="sim"), torch.zeros(320, dtype=dtype, device="sim")
                told = []
                for step in range(2):
                    drawn = torch.Generator().manual_seed(100 * step + rank.rank)
                    tensor = torch.randn(elements, generator=drawn).to(dtype).to("sim")
                    tensor.mul_(2)  # queued: the codec must wait for it
                    before = between_hosts()
                    work = braid.lossy_all_reduce(tensor, codec, residual=left, async_op=True)
                    assert work is not None
                    work.wait()
                    told += [tensor.clone().cpu(), left.clone().cpu()]
                    copied = between_hosts()[0] - before[0]
                    given = torch.randn(4 * 320, generator=drawn).to(dtype).to("sim")
                    before = between_hosts()
                    braid.lossy_reduce_scatter(part, given, codec, residual=part_left)
                    told += [part.clone().cpu(), part_left.clone().cpu()]
                    copied_part = between_hosts()[0] - before[0]
                found[where] = (told, copied, copied_part)
            coders.register("sim", coder)
            if codec == "qsgd":  # its bits depend on the number of the operation
                assert found["device"][1:] == found["host"][1:]
                continue
            for mine, hosts in zip(found["device"][0], found["host"][0], strict=True):
                assert torch.equal(mine.view(torch.uint8), hosts.view(torch.uint8)), (codec, dtype, elements)
            kind = braid.Codec(codec)
            assert found["device"][2] == kind.encoded_bytes(320)  # for the other host
            assert found["host"][2] >= 2 * 320 * dtype.itemsize
            if elements == 64:  # a shard of 32 elements, of which each host owns 16
                assert found["device"][1] == 2 * kind.encoded_bytes(16)
            else:
                assert found["device"][1] < found["host"][1] / 2
    sim.set_delays()


def test_shards_of_a_local_leg_are_encoded_on_the_device() -> None:
    """Bits and residuals are those of the host; bytes copied down are message bytes."""
    apart(with_a_leg, 4, per_host=2, leg="sim:braid")


def with_a_leg_that_fails(rank: Rank, sim: Any) -> str:
    """The coder of one rank raises; all ranks get an error, and no rank hangs."""
    import braid
    import coder
    import torch
    import torch.distributed as dist
    from braid._torch import coders

    class Broken(coder.SimulatedCoder):
        def encode(self, *args: Any) -> None:
            raise ValueError("no kernel for this")

    if rank.rank == 1:
        coders.register("sim", Broken())
    rank.set_timeout(20)
    try:
        for _ in range(3):
            braid.lossy_all_reduce(torch.ones(1000, device="sim"), "int8")
            dist.all_reduce(torch.ones(1000, device="sim"))
            torch.sim.synchronize()
    except dist.DistBackendError as error:
        return str(error)
    return ""


def test_a_coder_that_fails() -> None:
    """The rank's error has the reason, in one line."""
    told = apart(with_a_leg_that_fails, 4, per_host=2, leg="sim:braid")
    assert all(told)
    assert "ValueError: no kernel for this" in told[1]
    assert "Traceback" not in told[1]


def train(rank: Rank, sim: Any) -> tuple[list[Any], list[Any], list[str]]:
    """DDP with the hook, on the device and on the CPU."""
    import braid.hooks
    import torch
    from schedules import delays
    from torch import nn

    trained, codecs = [], []
    for device in ("sim", "cpu"):
        sim.set_delays(**delays("random", rank.rank))
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 3)).to(device)
        ddp = nn.parallel.DistributedDataParallel(model)
        state = braid.hooks.AutoState(ddp, "int8,warmup:1")
        ddp.register_comm_hook(state, braid.hooks.auto)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(4):
            data = torch.randn(8, 100, generator=torch.Generator().manual_seed(10 * step + rank.rank)).to(device)
            optimizer.zero_grad()
            ddp(data).square().mean().backward()
            optimizer.step()
        trained.append([each.detach().cpu() for each in model.parameters()])
        codecs += [row.codec for row in state.report() if row.parameter == "0.weight"]
    return trained[0], trained[1], codecs


def test_hooks_compress_gradients_on_a_device() -> None:
    """The large parameter is encoded; parameters are near those of the CPU, and equal on all ranks."""
    import torch

    told = apart(train, 2)
    for mine, cpu, codecs in told:
        assert codecs == ["int8", "int8"]
        torch.testing.assert_close(mine, cpu, rtol=1e-3, atol=1e-4)
        assert all(torch.equal(a, b) for a, b in zip(mine, told[0][0], strict=True))


def train_otherwise(rank: Rank, sim: Any) -> None:
    """DGC, a script without an edit, and FSDP2, on the device and on the CPU. The script also reads gradients."""
    import braid.hooks
    import torch
    from braid.compression import automatic
    from schedules import delays
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    # With a slow pool, what nobody waits for is read too early.
    for way, schedule in (("dgc", "random"), ("dgc", "slow pool"), ("fsdp", "random"), ("unedited", "slow pool")):
        trained = []
        if way == "unedited":
            automatic.install("int8,warmup:1")
        for device in ("sim", "cpu"):
            gradients = []
            sim.set_delays(**delays(schedule, rank.rank))
            torch.manual_seed(0)
            model: Any = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 3)).to(device)
            if way == "fsdp":
                fully_shard(model, mesh=init_device_mesh(device, (rank.size,)))
                braid.hooks.compress_fsdp(model, "int8")
            else:
                model = nn.parallel.DistributedDataParallel(model)
            if way == "dgc":
                model.register_comm_hook(braid.hooks.DGCState(model), braid.hooks.dgc)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(3):
                data = torch.randn(8, 100, generator=torch.Generator().manual_seed(10 * step + rank.rank)).to(
                    device
                )
                optimizer.zero_grad()
                model(data).square().mean().backward()
                if way != "fsdp":
                    gradients += [each.grad.cpu() for each in model.parameters()]
                optimizer.step()
            whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in model.parameters()]
            trained.append([*gradients, *(each.detach().cpu() for each in whole)])
        torch.testing.assert_close(trained[0], trained[1], rtol=1e-3, atol=1e-4, msg=f"{way}: the device differs")


def test_other_ways_to_compress_take_a_device() -> None:
    apart(train_otherwise, 2)
