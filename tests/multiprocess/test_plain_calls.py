# SPDX-License-Identifier: Apache-2.0
"""Calls that the core carries out without Python, between ranks: as Python would have carried them out."""

from typing import Any

import braid
import numpy as np
import pytest
from arrays import join, same
from braid._array import calls
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

CASES = 60
KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")
DTYPES = ("float64", "float32", "int8", "bool", "complex64", "longlong")


def draw(name: str, n: int, dice: np.random.Generator) -> tuple[dict[str, Any], int]:
    """Draw the other arguments and the number of elements of a block, which now and then do not fit together."""
    root = int(dice.integers(n))
    block = int(dice.integers(5))
    options: dict[str, Any] = {}
    if name in ("all_reduce", "reduce", "reduce_scatter"):
        options["op"] = str(dice.choice(["sum", "avg", "max", "prod", "median"], p=[0.3, 0.2, 0.3, 0.1, 0.1]))
    if name in ("reduce", "broadcast", "gather", "scatter"):
        options["root"] = root
    return options, block


def make(name: str, n: int, block: int, dtype: str, rank: int, dice: np.random.Generator) -> dict[str, Any]:
    """Return x and out of one rank, right but for one of some mistakes that all ranks make."""
    whole_in = name in ("scatter", "reduce_scatter", "all_to_all")
    whole_out = name in ("gather", "all_gather", "all_to_all")
    mistake = int(dice.integers(12))  # so most have none
    x = ((np.arange(block * (n if whole_in else 1)) + rank) % 3).astype(dtype)
    out = np.zeros(block * (n if whole_out else 1) + (mistake == 0), "int16" if mistake == 1 else dtype)
    if mistake == 2:
        out.flags.writeable = False
    if mistake == 3:
        x = np.repeat(x, 2)[::2]
    if mistake == 4:
        out = out.reshape(1, -1)
    if mistake == 5:
        x = x[1:]
    arguments = {"x": x, "out": out}
    if name == "broadcast" or (name in ("all_reduce", "reduce") and dice.integers(2)):
        del arguments["out"]
    return arguments


def carry_out_both_ways(rank: Rank) -> None:
    with join(rank) as comm:
        for name in KINDS:
            done = sum(carry_out_one(name, case, comm) for case in range(CASES))
            assert done > CASES // 5, name
            comm.barrier()


def carry_out_one(name: str, case: int, comm: braid.Communicator) -> bool:
    """Compare both ways of one call; return whether it was no wrong one."""
    n, r, dtype = comm.size, comm.rank, DTYPES[case % len(DTYPES)]
    options, block = draw(name, n, np.random.default_rng([case, 0]))
    short, long = (make(name, n, block, dtype, r, np.random.default_rng([case, 1])) for _ in range(2))
    method = getattr(braid.Communicator, name)
    # A call that is refused on some ranks only would leave the others waiting.
    refused = end_of(pure_call, name, comm, **short, **options)
    if comm.all_reduce(np.array([isinstance(refused, str)]), "max")[0]:
        if isinstance(refused, str):
            for each in (method, method.__wrapped__):
                assert end_of(each, comm, **short, **options) == refused, (name, case)
        return False
    ends = end_of(method, comm, **short, **options), end_of(method.__wrapped__, comm, **long, **options)
    for key in short:
        assert same(short[key], long[key]), (name, case, key)
        assert (ends[0] is short[key]) == (ends[1] is long[key]), (name, case, key)
    if isinstance(ends[0], np.ndarray):
        assert same(ends[0], ends[1]), (name, case)
        return True
    assert ends[0] == ends[1], (name, case)
    return ends[0] is None


def pure_call(name: str, comm: braid.Communicator, x: Any, out: Any = None, op: Any = None, root: int = 0) -> None:
    """Check arguments as the method does, without a group."""
    place = (comm.rank, comm.size)
    match name:
        case "all_reduce":
            calls.all_reduce(x, op, out)
        case "reduce":
            calls.reduce(x, op, root, out, place)
        case "broadcast":
            calls.broadcast(x, root, place)
        case "all_gather":
            calls.all_gather(x, out, None, place)
        case "gather":
            calls.gather(x, root, out, None, place)
        case "scatter":
            calls.scatter(x, root, out, None, place)
        case "reduce_scatter":
            calls.reduce_scatter(x, op, out, None, place)
        case "all_to_all":
            calls.all_to_all(x, out, None, None, comm.size)


def end_of(call: Any, *arguments: Any, **options: Any) -> Any:
    """Return the result, or the error in words."""
    try:
        return call(*arguments, **options)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("size", [2, 3])
def test_both_ways_agree(size: int) -> None:
    run_ranks(carry_out_both_ways, size, wire="shm,tcp", join=False)
