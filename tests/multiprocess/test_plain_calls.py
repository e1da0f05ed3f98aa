# SPDX-License-Identifier: Apache-2.0
"""Calls that the core carries out without Python, between ranks: as Python would have carried them out."""

from typing import Any

import braid
import numpy as np
import pytest
from arrays import join, same
from braid import _calls
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

CASES = 60
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
    n, r = rank.size, rank.rank
    with join(rank) as comm:
        for name in ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"):
            carried_out = 0
            for case in range(CASES):
                dtype = DTYPES[case % len(DTYPES)]
                options, block = draw(name, n, np.random.default_rng([case, 0]))
                rows = [make(name, n, block, dtype, r, np.random.default_rng([case, 1])) for _ in range(2)]
                method = getattr(braid.Communicator, name)
                # A call that is refused on some ranks only would leave the others waiting.
                refused = error_of(lambda: pure_call(name, comm, {**rows[0], **options}))
                if comm.all_reduce(np.array([refused is not None]), "max")[0]:
                    if refused is not None:
                        for each, arguments in zip((method, method.__wrapped__), rows, strict=True):
                            assert error_of(lambda: each(comm, **arguments, **options)) == refused, (name, case)
                    continue
                ends = [
                    error_of(lambda: arguments.update(result=each(comm, **arguments, **options)))
                    for each, arguments in zip((method, method.__wrapped__), rows, strict=True)
                ]
                assert ends[0] == ends[1], (name, case)
                carried_out += ends[0] is None
                for key in rows[0]:
                    short, long = rows[0][key], rows[1][key]
                    assert (short is long is None) or same(short, long), (name, case, key)
                for key in ("x", "out"):
                    assert (rows[0].get("result") is rows[0].get(key)) == (rows[1].get("result") is rows[1].get(key))
            assert carried_out > CASES // 5, name
            comm.barrier()


def pure_call(name: str, comm: braid.Communicator, arguments: dict[str, Any]) -> None:
    """Check arguments as the method does, without a group."""
    place, root, x, op = (comm.rank, comm.size), arguments.get("root"), arguments["x"], arguments.get("op")
    out, is_root = arguments.get("out"), comm.rank == root
    match name:
        case "all_reduce":
            _calls.all_reduce(x, op, out)
        case "reduce":
            _calls.reduce(x, op, root, out, is_root)
        case "broadcast":
            _calls.broadcast(x, root, is_root)
        case "all_gather":
            _calls.all_gather(x, out, None, place)
        case "gather":
            _calls.gather(x, root, out, None, place)
        case "scatter":
            _calls.scatter(x, root, out, None, place)
        case "reduce_scatter":
            _calls.reduce_scatter(x, op, out, None, place)
        case "all_to_all":
            _calls.all_to_all(x, out, None, None, comm.size)


def error_of(call: Any) -> tuple[type, str] | None:
    try:
        call()
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("size", [2, 3])
def test_both_ways_agree(size: int) -> None:
    run_ranks(carry_out_both_ways, size, wire="shm,tcp", join=False)
