# SPDX-License-Identifier: Apache-2.0
"""BRAID_LOCAL_LEG=auto on the simulated device: where a leg pays, and where ranks share a device."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]

SIZES = (100, 10_000, 1_000_000)  # bytes
SECONDS = {"fast": 1e-9, "slow": 10.0}


def on_two_hosts(function: Any, *args: Any, **more: Any) -> list[Any]:
    return run_ranks(
        there, 4, function, *args, wire="shm,tcp", join=False, environment={"BRAID_LOCAL_LEG": "auto"}, **more
    )


def there(rank: Rank, function: Any, *args: Any) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["BRAID_HOST"] = f"host-{rank.rank // 2}"
    os.environ["BRAID_LINKS"] = "assume"
    import simulated
    import torch.distributed as dist
    from braid._torch import local_leg
    from braid._torch.adapter import load_adapter

    simulated.load()
    # braid itself, as no other backend here carries the device. For torch it is another one.
    dist.Backend.register_backend(
        "relay",
        lambda options, _: load_adapter().create_backend(
            options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
            options.global_ranks_in_group,
        ),
        extended_api=True,
        devices=["sim"],
    )  # fmt: skip
    dist.Backend.default_device_backend_map["sim"] = "relay"
    told: list[str] = []
    local_leg.tell = told.append
    try:
        return function(rank, told, *args)
    finally:
        dist.destroy_process_group()


def calls_by_legs() -> int:
    import braid

    return sum(
        row["calls"] for group in braid.stats() if ":place" in group["group"] for row in group["operations"]
    )


def reduced(rank: Rank, nbytes: int) -> bool:
    """Return whether an all_reduce of so many bytes went by the leg."""
    import torch
    import torch.distributed as dist

    before = calls_by_legs()
    tensor = torch.full((nbytes // 4,), 1.0 + rank.rank, device="sim")
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(10).all()
    return calls_by_legs() > before


def explained(nbytes: int, **more: Any) -> tuple[bool, str]:
    import torch
    import torch.distributed as dist

    backend: Any = dist.group.WORLD._get_backend(torch.device("sim"))  # type: ignore[union-attr]
    told = backend.explain("all_reduce", nbytes, **({"device": "sim"} | more))
    return told["local_leg"], told["local_leg_reason"]


def given(rank: Rank, told: list[str], within: str) -> list[tuple[bool, str]]:
    """The backend within hosts takes no time, or very long."""
    from braid._torch import leg_costs

    line = leg_costs.Line(SECONDS[within], 0)
    leg_costs.measured = lambda local, device: leg_costs.Within(local.size(), line, line, line)
    rank.join()
    choices = [explained(nbytes) for nbytes in SIZES]
    assert [reduced(rank, nbytes) for nbytes in SIZES] == [by_leg for by_leg, _ in choices]
    assert explained(SIZES[0], op="band", dtype="int32") == (False, "relay carries no band of int32")
    assert explained(SIZES[0], device="cpu") == (False, "relay carries no tensors of this device")
    return choices


def test_the_leg_is_used_where_it_pays() -> None:
    """A large tensor is copied in halves, so a leg that takes no time wins."""
    choices = on_two_hosts(given, "fast")
    assert choices[1:] == choices[:1] * 3
    by_leg, why = choices[0][-1]
    assert by_leg
    assert why.startswith("relay carries the part within hosts: the cost model says ")


def test_the_leg_is_not_used_where_it_does_not_pay() -> None:
    """Sums are right without it."""
    choices = on_two_hosts(given, "slow")
    assert choices[1:] == choices[:1] * 3
    for by_leg, why in choices[0]:
        assert not by_leg
        assert why.startswith("relay is not used for this size: the cost model says 20")
        assert " us with it and " in why


def as_measured(rank: Rank, told: list[str]) -> list[bool]:
    """Ranks measure for themselves, and agree all the same."""
    rank.join()
    choices = [explained(nbytes)[0] for nbytes in SIZES]
    assert [reduced(rank, nbytes) for nbytes in SIZES] == choices
    assert not told
    return choices


def test_ranks_agree_on_what_was_measured() -> None:
    """Whatever the numbers are."""
    choices = on_two_hosts(as_measured)
    assert choices[1:] == choices[:1] * 3


def shared(rank: Rank, told: list[str]) -> tuple[str, list[str]]:
    """Ranks 2 and 3 are on one device."""
    if rank.rank >= 2:
        os.environ["SIM_UUID"] = "same"
    rank.join()
    assert not any(reduced(rank, nbytes) for nbytes in SIZES)
    by_leg, why = explained(SIZES[-1])
    assert not by_leg
    return why, told


def test_ranks_of_one_device_take_the_flat_way() -> None:
    """One line says which ranks, and what to do."""
    why = "ranks 2 and 3 share device same; set the device of each rank before the group is made"
    line = f"BRAID_LOCAL_LEG=auto is not used in a group of 4 ranks: {why}"
    assert on_two_hosts(shared) == [(why, [line]), (why, []), (why, []), (why, [])]


def off(rank: Rank, told: list[str]) -> tuple[bool, str]:
    """No leg is asked for."""
    os.environ["BRAID_LOCAL_LEG"] = "off"
    rank.join()
    return explained(SIZES[-1])


def test_explain_names_the_setting() -> None:
    """Where no leg is asked for."""
    assert on_two_hosts(off) == [(False, "BRAID_LOCAL_LEG asks for none")] * 4


def late(rank: Rank, told: list[str]) -> tuple[list[str], str, list[str]]:
    """Ranks of a host are on one device until the group is made. Odd ranks then take another."""
    os.environ["SIM_UUID"] = "first"
    rank.join()
    if rank.rank % 2 == 1:
        os.environ["SIM_UUID"] = "second"
    before = list(told)
    for _ in range(2):
        assert not reduced(rank, SIZES[-1])
    return before, explained(SIZES[-1])[1], told[len(before) :]


def test_a_device_that_is_set_late() -> None:
    """The first operation on it tells, in one line; explain() does so on each rank that was late."""
    setting = "BRAID_LOCAL_LEG=auto is not used in a group of 4 ranks: "
    shared = "ranks 0 and 1 share device first; set the device of each rank before the group is made"
    late_1, late_3 = (
        f"rank {rank} uses device second, but had first when the group was made; "
        "call torch.sim.set_device() before init_process_group()"
        for rank in (1, 3)
    )
    assert on_two_hosts(late) == [
        ([setting + shared], shared, []),
        ([], late_1, [setting + late_1]),
        ([], shared, []),
        ([], late_3, []),
    ]
