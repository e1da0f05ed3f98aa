# SPDX-License-Identifier: Apache-2.0
"""Gloo carries collectives within hosts that are not there, and braid carries them between these hosts."""

import copy
import os
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from braid._torch import leg_costs
from braid._torch.leg_costs import Between, Line, Within, leg_s
from braid._torch.local_leg import Wanted, sharing, wanted, why_flat
from legs import calls_by_legs, expected, on_hosts, values
from ranks import SOON_S, Rank, run_ranks
from torch import nn

pytestmark = pytest.mark.multiprocess

SIZES = (0, 1, 2, 3, 1023, 1 << 20, (2 << 20) + 5)  # with float32 the last is three chunks
REDUCED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8,
           torch.uint8, torch.int16, torch.bool, torch.complex64)  # fmt: skip
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def all_reduces(rank: Rank) -> int:
    """All types and operators; what the leg does not take goes the flat way."""
    for dtype in REDUCED:
        for op in OPS:
            all_values = [values(each, 77, dtype, 1) for each in range(rank.size)]
            mine = all_values[rank.rank].clone()
            try:
                dist.all_reduce(mine, getattr(dist.ReduceOp, op))
            except ValueError:  # undefined for this type
                continue
            want = expected(op, all_values)
            if dtype == torch.bool:
                want = (want != 0).to(want.dtype)
            if op == "AVG" and not (dtype.is_floating_point or dtype.is_complex):
                want = want.trunc()
            torch.testing.assert_close(mine.to(want.dtype), want, rtol=1e-2, atol=1e-2, msg=f"{dtype} {op}")
    for elements in SIZES:
        mine = values(rank.rank, elements, torch.float32)
        dist.all_reduce(mine)
        assert torch.equal(mine, sum(values(each, elements, torch.float32) for each in range(rank.size)))
    strided = values(rank.rank, 12, torch.float32).view(3, 4).t().requires_grad_()
    dist.all_reduce(strided)
    want = sum(values(each, 12, torch.float32) for each in range(rank.size))
    assert torch.equal(strided.detach(), want.view(3, 4).t())
    return calls_by_legs()


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0)])
def test_all_reduces(hosts: tuple[int, ...]) -> None:
    """Ranks side by side, in turns, and all on one host."""
    calls = on_hosts(all_reduces, hosts)
    assert all((count > 0) == (len(set(hosts)) > 1) for count in calls)


def moves(rank: Rank) -> int:
    """Broadcast, all_gather and reduce_scatter, from all roots and in all types."""
    for root in range(rank.size):
        for dtype in (*REDUCED, torch.float8_e4m3fn):
            mine = values(rank.rank, 55, dtype)
            dist.broadcast(mine, root)
            assert torch.equal(mine.float(), values(root, 55, dtype).float()), (root, dtype)
    large = values(rank.rank, SIZES[-1], torch.float32)
    dist.broadcast(large, rank.size - 1)
    assert torch.equal(large, values(rank.size - 1, SIZES[-1], torch.float32))
    for elements in (1, 31, 70_001):
        for dtype in (torch.float32, torch.int16, torch.bool):
            pieces = [values(each, elements, dtype) for each in range(rank.size)]
            whole = torch.empty(rank.size * elements, dtype=dtype)
            dist.all_gather_into_tensor(whole, pieces[rank.rank])
            assert torch.equal(whole, torch.cat(pieces))
        for op in ("SUM", "AVG"):
            inputs = [values(each, rank.size * elements, torch.float64) for each in range(rank.size)]
            piece = torch.empty(elements, dtype=torch.float64)
            dist.reduce_scatter_tensor(piece, inputs[rank.rank], getattr(dist.ReduceOp, op))
            want = expected(op, inputs)[rank.rank * elements : (rank.rank + 1) * elements]
            torch.testing.assert_close(piece, want)
    return calls_by_legs()


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0)])
def test_moves(hosts: tuple[int, ...]) -> None:
    """Every rank gets the values of the right ranks in the right order."""
    calls = on_hosts(moves, hosts)
    assert all((count > 0) == (len(set(hosts)) > 1) for count in calls)


def in_other_ways(rank: Rank) -> None:
    """Works, futures, several under way, coalesced calls, wrong calls, and operations that take the flat way."""
    tensors = [values(rank.rank, 1000 + each, torch.float32, each) for each in range(5)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for each, work in enumerate(reversed(works)):
        assert work is not None
        work.wait()
        assert work.is_completed()
        assert work.get_future().value()[0] is not None
        elements, seed = 1004 - each, 4 - each
        total = sum(values(other, elements, torch.float32, seed) for other in range(rank.size))
        assert torch.equal(tensors[4 - each], total)
    with dist._coalescing_manager():
        for each in tensors:
            dist.all_reduce(each)
    with pytest.raises(ValueError, match="several of its elements share memory"):
        dist.all_reduce(torch.ones(1).expand(4))
    blocks = [torch.zeros(3) for _ in range(rank.size)]
    dist.all_gather(blocks, torch.full((3,), float(rank.rank)))
    assert [block[0].item() for block in blocks] == list(range(rank.size))
    dist.barrier()


def test_in_other_ways() -> None:
    """The group behaves as one without a leg."""
    on_hosts(in_other_ways, (0, 0, 1, 1))


def leg_after_flat(rank: Rank) -> None:
    """An operation by the leg reads, and then overwrites, what one on the flat way writes and reads."""
    for turn in range(4):
        blocks = [torch.zeros(1 << 20) for _ in range(rank.size)]
        mine = torch.full((1 << 20,), 1.0 + rank.rank)
        if rank.rank == turn:
            time.sleep(0.2)  # the others are in the first operation when they call the next
        written = dist.all_gather(blocks, mine, async_op=True)
        for each in (*blocks, mine):
            dist.all_reduce(each)
        assert written is not None
        written.wait()
        for each, block in enumerate(blocks):
            assert block.eq(rank.size * (1 + each)).all()
        assert mine.eq(10).all()


def test_the_leg_comes_after_the_flat_way() -> None:
    """Without a wait."""
    on_hosts(leg_after_flat, (0, 0, 1, 1))


def named_in_records(rank: Rank) -> set[str]:
    from braid._torch.adapter import load_adapter

    dist.all_reduce(torch.ones(10))
    return {entry["process_group"][0] for entry in load_adapter().flight_record()["entries"]}


def test_flight_records_name_the_group_between_hosts() -> None:
    """By the group that has the leg, and the place on each host."""
    names = on_hosts(named_in_records, (0, 0, 1, 1))
    for rank, found in enumerate(names):
        assert [name.rpartition(":")[2] for name in found] == [f"place{rank % 2}"]


def flat(rank: Rank) -> int:
    mine = torch.ones(10)
    dist.all_reduce(mine)
    assert mine.eq(rank.size).all()
    return calls_by_legs()


def test_unequal_hosts_take_the_flat_way() -> None:
    """Sums are right, no leg is made, and one line says why."""
    line = "BRAID_LOCAL_LEG=cpu:gloo is not used in a group of 3 ranks: hosts have 1 to 2 ranks; give every host "
    assert on_hosts(flat, (0, 0, 1)) == [(0, [line + "as many"]), (0, []), (0, [])]


def test_a_backend_that_is_missing_is_told() -> None:
    """All ranks take the flat way."""
    told = on_hosts(flat, (0, 0, 1, 1), leg="cuda:nccl")
    assert "rank 0: this torch has no nccl" in told[0][1][0]
    assert told[1:] == [(0, [])] * 3


def train(rank: Rank) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        data = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + rank.rank))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


def test_ddp_is_that_of_plain_braid() -> None:
    """Replicas are equal to the bit, and differ from those without a leg by rounding alone."""
    by_leg = on_hosts(train, (0, 0, 1, 1))
    plain = on_hosts(train, (0, 0, 1, 1), leg="off")
    for other in by_leg[1:]:
        assert all(torch.equal(a, b) for a, b in zip(by_leg[0], other, strict=True))
    torch.testing.assert_close(by_leg[0], plain[0], rtol=1e-5, atol=1e-6)


def meets_a_death(rank: Rank) -> tuple[float, str]:
    """Rank 3 dies; rank 0 shares neither host nor place with it."""
    dist.all_reduce(torch.ones(10))
    rank.meet("warm")
    if rank.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    said = ""
    try:
        for _ in range(20):
            dist.all_reduce(torch.ones(1 << 20))
    except dist.DistBackendError as error:
        said = str(error)
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(1))
    return time.monotonic() - began, said


def test_a_death_ends_in_an_error_on_all_ranks() -> None:
    """Nobody hangs, wherever the dead rank was; long before the timeout of the group."""
    for seconds, said in on_hosts(meets_a_death, (0, 0, 1, 1), killed=[3])[:3]:
        assert said
        assert seconds < SOON_S


def comes_not(rank: Rank) -> str:
    """Rank 1 does not call, so its neighbour's leg times out, and the others hear of it."""
    dist.all_reduce(torch.ones(10))
    if rank.rank == 1:
        rank.wait_for("failed", 0)
        return ""
    try:
        dist.all_reduce(torch.ones(10))
    except dist.DistBackendError as error:
        rank.mark("failed")
        return str(error)
    raise AssertionError("no error")


@pytest.mark.long
def test_an_absence_times_out() -> None:
    """The error names the leg or the failure of the group."""
    told = on_hosts(comes_not, (0, 0, 1, 1))
    assert all(said for each, said in enumerate(told) if each != 1)
    assert any("local leg gloo failed" in said for said in told)


def hsdp(rank: Rank) -> list[list[torch.Tensor]]:
    """HSDP: Gloo in the dimension of shards, braid in that of replicas, and plain braid beside it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    trained = []
    for shard in ("gloo", "braid"):
        mesh = init_device_mesh(
            "cpu", (2, 2), mesh_dim_names=("replicate", "shard"),
            backend_override={"shard": shard, "replicate": "braid"},
        )  # fmt: skip
        assert dist.get_backend(mesh.get_group("shard")) == shard
        assert dist.get_backend(mesh.get_group("replicate")) == "braid"
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            data = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank.rank))
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        whole = [each.full_tensor() for each in model.parameters() if isinstance(each, DTensor)]
        trained.append([each.detach() for each in whole])
    return trained


def test_hsdp_with_a_backend_per_dimension() -> None:
    """The same parameters as with braid in both dimensions."""
    for mixed, plain in on_hosts(hsdp, (0, 0, 1, 1), leg="off"):
        assert len(mixed) == 4
        torch.testing.assert_close(mixed, plain, rtol=1e-5, atol=1e-6)


def costs(rank: Rank) -> tuple[float, float]:
    """Gloo is timed, and the cost model is asked for all kinds and sizes."""
    rank.join(prefix="braid")
    within = leg_costs.measured(dist.new_group(backend="gloo")._get_backend(torch.device("cpu")), "cpu")
    group: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    rows = leg_costs.table(group, group, within, "cpu")
    assert set(rows) == set(leg_costs.KINDS)
    assert all(row.flat_s > 0 and row.leg_s > row.flat_s for each in rows.values() for row in each)
    dist.destroy_process_group()
    return within.all_gather.latency_s, within.reduce_scatter.of(1 << 20)


def test_gloo_is_measured() -> None:
    """A leg whose network part is the whole operation costs more than the operation."""
    for latency_s, megabyte_s in run_ranks(costs, 2, join=False):
        assert latency_s > 0
        assert megabyte_s > 0


@pytest.mark.unit
def test_costs_of_a_leg() -> None:
    """Chunks overlap: the slower of both parts, and one chunk of the other."""
    line = Line(1.0, 0)
    within = Within(2, line, line, line)
    asked = []

    def network_s(kind: str, nbytes: int) -> float:
        asked.append((kind, nbytes))
        return 5.0

    between = Between(2, network_s, lambda kind, nbytes: 0.5)
    assert leg_s("all_reduce", 1000, within, between) == 7.5
    assert leg_s("all_reduce", 3 * leg_costs.CHUNK_BYTES, within, between) == 3 * 5.5 + 2
    assert leg_s("broadcast", 1000, within, between) == 6.5
    assert leg_s("all_gather", 1000, within, between) == 2 + 5.5
    assert leg_s("reduce_scatter", 1000, within, None) == 1
    assert asked == [("all_reduce", 1000), ("all_reduce", 4 << 20), ("broadcast", 1000), ("all_gather", 1000)]


def in_derived_groups(rank: Rank) -> list[tuple[bool, int]]:
    """Reduce in a group of new_group(), and in split groups: all ranks, a host's, a rank of each host."""
    found = []

    def reduced(group: Any, members: list[int]) -> None:
        by_leg = group._get_backend(torch.device("cpu")).explain("all_reduce", 4 << 20)["local_leg"]
        before = calls_by_legs()
        mine = values(rank.rank, 1 << 20, torch.float32)
        group.allreduce([mine]).wait()
        assert torch.equal(mine, sum(values(each, 1 << 20, torch.float32) for each in members))
        found.append((by_leg, calls_by_legs() - before))

    world = dist.distributed_c10d._get_default_group()
    options = world._get_backend(torch.device("cpu")).options
    everyone, place = list(range(rank.size)), rank.rank % 2
    reduced(dist.new_group(everyone), everyone)
    for members in (everyone, [rank.rank - place, rank.rank - place + 1], [place, place + 2]):
        part = world.split_group(members, timeout=timedelta(seconds=60), opts=copy.deepcopy(options))
        assert part is not None
        reduced(part, members)
    return found


def test_derived_groups_have_legs() -> None:
    """Groups on two hosts, and on one. A group of one rank per host has none."""
    for found in on_hosts(in_derived_groups, (0, 0, 1, 1)):
        made, split, one_host, across = found
        assert made[0]
        assert split[0]
        assert made[1] == split[1] > 0
        assert one_host == (True, 0)  # by Gloo alone
        assert across == (False, 0)


@pytest.mark.unit
def test_when_devices_are_shared() -> None:
    """On one host, by name."""
    assert sharing([0, 0, 1, 1], ["a", "b", "a", "b"]) is None
    assert sharing([0, 1, 0], ["a", "a", "a"]) == (0, 2)


@pytest.mark.unit
def test_what_a_setting_asks_for() -> None:
    """A name alone is for accelerators; on this machine there is none for auto."""
    assert wanted("off") is None
    assert wanted("") is None
    assert wanted("cpu:Gloo") == Wanted("gloo", ("cpu",))
    assert wanted("nccl") == Wanted("nccl", ("cuda",))
    if not torch.accelerator.is_available():
        assert wanted("auto") is None


@pytest.mark.unit
def test_when_hosts_are_equal() -> None:
    """At least two ranks, as many on each host."""
    assert why_flat([0, 1, 0, 1]) == ""
    assert why_flat([0, 0]) == ""
    assert why_flat([0, 1]) == "no two ranks share a host"
    assert "hosts have 1 to 2 ranks" in why_flat([0, 0, 1])
