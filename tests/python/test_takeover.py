# SPDX-License-Identifier: Apache-2.0
"""The takeover, with a stand-in adapter that makes Gloo backends: what counts is which name torch gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from braid._torch.takeover import parse_names, translate
from slowness import limit

ALL = "gloo,nccl,mpi,none"
STAND_IN = """
import sys, types, warnings
from datetime import timedelta
import torch, torch.distributed as dist
profiled = []
def create_backend(store, rank, size, timeout, group_id, members, known_as, servers, links, equal):
    assert isinstance(timeout, timedelta) and isinstance(group_id, str) and len(members) == size
    assert links is None and servers is None
    profiled.append(known_as)
    return dist.ProcessGroupGloo(store, rank, size, timeout)
dist.ProcessGroupGloo.topology = lambda self: "topology hosts=0"
dist.ProcessGroupGloo.wires = lambda self: ["rank 0: this process", "rank 1: shm, single copy"]
def next_signals(descriptor):
    return False, None
sys.modules["braid._c10d"] = types.SimpleNamespace(
    create_backend=create_backend, next_signals=next_signals, on_derived=lambda call: None
)
def carrier(group=None):
    # what torch was really told to make the group with
    return dist.distributed_c10d._world.pg_map[group or dist.group.WORLD][0]
"""


@pytest.mark.unit
@pytest.mark.parametrize(
    ("backend", "taken", "expected"),
    [
        ("gloo", ALL, "braid"),
        ("GLOO", ALL, "braid"),
        ("nccl", ALL, "braid"),
        ("mpi", ALL, "braid"),
        (None, ALL, "braid"),
        (None, "gloo", None),
        ("undefined", ALL, "braid"),
        ("nccl", "gloo", "nccl"),
        ("ucc", ALL, "ucc"),
        ("braid", ALL, "braid"),
        ("cpu:gloo,cuda:nccl", ALL, "braid"),
        ("cpu:gloo,cuda:nccl", "gloo", "cpu:braid,cuda:nccl"),
        ("cpu:gloo,cuda:nccl", "mpi", "cpu:gloo,cuda:nccl"),
        ("cuda:nccl", ALL, "braid"),
        ("cpu:gloo,xpu:xccl", ALL, "cpu:braid,xpu:xccl"),
        ("xpu:gloo", ALL, "xpu:braid"),
        ("CPU:Gloo, cuda:NCCL", ALL, "braid"),
    ],
)
def test_translate(backend: str | None, taken: str, expected: str | None) -> None:
    assert translate(backend, parse_names(taken)) == expected


@pytest.mark.unit
def test_parse_names() -> None:
    assert parse_names(" Gloo, nccl,,NONE ") == {"gloo", "nccl", "none"}


def start(code: str, takeover: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", STAND_IN + code],
        env={**os.environ, "BRAID_TAKEOVER": takeover, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.multiprocess
def test_every_way_to_name_a_backend(tmp_path: Path) -> None:
    code = """
from torch.distributed.device_mesh import init_device_mesh
world = dict(store=dist.HashStore(), rank=0, world_size=1)
def told(name, *args, **kwargs):
    # the script sees the name it asked for; torch makes every group on braid
    profiled.clear()
    dist.init_process_group(*args, **{**world, "store": dist.HashStore(), **kwargs})
    groups = [dist.group.WORLD]
    for given in ({}, {"backend": "gloo"}, {"backend": "nccl"}):
        groups.append(dist.new_group(**given))
    groups.append(dist.new_group([0], None, "gloo"))
    groups.append(dist.new_subgroups(1)[0])
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    groups.append(mesh.get_group("b"))
    assert {carrier(group) for group in groups} == {"braid"}
    names = [dist.get_backend(group) for group in groups]
    assert names == [name, name, "gloo", "nccl", "gloo", name, name], (args, kwargs, names)
    assert profiled[:4] == [name.split(",")[0].split(":")[-1]] * 2 + ["gloo", "nccl"], profiled
    dist.monitored_barrier(groups[2])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
told("braid")
told("braid", None)
told("gloo", "gloo")
told("nccl", dist.Backend.NCCL)
told("cpu:gloo,cuda:nccl", backend="cpu:gloo,cuda:nccl")
told("mpi", "mpi", rank=0)
told("braid", "braid")  # nothing of the groups before is remembered
assert not dist.is_nccl_available() or torch.cuda.is_available()
# by whatever path a script imports them
from torch.distributed import init_process_group as one
from torch.distributed.distributed_c10d import init_process_group as two
import torch.distributed.device_mesh as mesh
assert one is two is dist.init_process_group and mesh.new_group is dist.new_group
from braid._torch.autoload import register
register()
assert dist.init_process_group is one
model = torch.nn.Linear(2, 2)
dist.init_process_group("nccl", **world)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ddp(torch.ones(1, 2)).sum().backward()
assert ddp._get_ddp_logging_data()["backend_name"] == "nccl"
# Gloo's threads end here: one that wants the interpreter while it shuts down aborts the process
del ddp
dist.destroy_process_group()
"""
    process = start(code, ALL, PYTHONFAULTHANDLER="1")
    _, err = process.communicate(timeout=limit(200))
    assert process.returncode == 0, err
    carried = [
        line.partition(": 1 rank on 1 host, by shm; ")[2] for line in err.splitlines() if "runs the script" in line
    ]
    assert carried[:2] == [
        "runs the script's default backend (taken over; unset BRAID_TAKEOVER to stop)",
        'runs the script\'s backend "gloo" (taken over; unset BRAID_TAKEOVER to stop)',
    ], "each line once"


@pytest.mark.multiprocess
def test_what_is_not_listed_is_left_alone() -> None:
    code = """
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
assert dist.get_backend() == carrier() == "gloo"
inherited = dist.new_group()
assert dist.get_backend(inherited) == carrier(inherited) == "gloo"
taken = dist.new_group(backend="nccl")
assert dist.get_backend(taken) == "nccl" and carrier(taken) == "braid"
try:
    dist.new_group(backnd="gloo")
except TypeError as error:
    print(error)
"""
    process = start(code, "nccl")
    out, err = process.communicate(timeout=limit(200))
    assert process.returncode == 0, err
    assert "backnd" in out
    assert "runs the script" not in err


@pytest.mark.multiprocess
def test_only_rank_0_says_so_and_mpi_scripts_may_pass_any_rank(tmp_path: Path) -> None:
    code = """
dist.init_process_group("mpi", rank=0, world_size=0)
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(dist.get_backend(), carrier(), dist.get_rank(), dist.get_world_size(), tensor.item())
dist.destroy_process_group()  # Gloo's threads may abort a process that ends without
"""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "WORLD_SIZE": "2"}
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [start(code, ALL, RANK=str(rank), **common) for rank in range(2)]
    outputs = [rank.communicate(timeout=limit(200)) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert [out.strip() for out, _ in outputs] == ["mpi braid 0 2 2.0", "mpi braid 1 2 2.0"]
    assert ['the script\'s backend "mpi"' in err for _, err in outputs] == [True, False]
