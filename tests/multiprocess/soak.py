# SPDX-License-Identifier: Apache-2.0
"""A soak: ranks carry out a long random sequence of collectives, each at its own pace, and check all of it.

python tests/multiprocess/soak.py --ranks 3 --seconds 600
"""

import argparse
import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import braid
import numpy as np
from numpy.typing import NDArray

KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")
DTYPES = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool")
LARGEST_BLOCK = 1 << 23  # bytes; with some that one rank lends to another
PENDING = 4  # operations under way at once, at most
ROUND = 100  # operations between two looks at the clock

Array = NDArray[Any]


class Operation:
    """One collective of the sequence: all ranks draw the same, and know everybody's input and the right result."""

    def __init__(self, ranks: int, dice: np.random.Generator, largest_block: int) -> None:
        self.ranks = ranks
        self.name = str(dice.choice(KINDS))
        self.dtype = str(dice.choice(DTYPES))
        self.op = str(dice.choice(["sum", "max", "min"]))
        self.root = int(dice.integers(ranks))
        largest = largest_block // np.dtype(self.dtype).itemsize
        self.elements = int(largest ** dice.random()) - 1 + int(dice.integers(2))
        self.in_place = bool(dice.integers(2))
        self.pending = bool(dice.random() < 0.3)
        self.seed = int(dice.integers(1 << 30))

    def input_of(self, rank: int) -> Array:
        """Return small whole numbers, whose sums every dtype holds exactly."""
        blocks = self.ranks if self.name in ("scatter", "reduce_scatter", "all_to_all") else 1
        period = 97 + self.seed % 64
        return (((np.arange(self.elements * blocks) + self.seed + 31 * rank) % period) % 5).astype(self.dtype)

    def result_on(self, rank: int) -> Array | None:
        """Return what NumPy makes of it; None where the rank gets nothing."""
        inputs = [self.input_of(r) for r in range(self.ranks)]
        cut = slice(rank * self.elements, (rank + 1) * self.elements)
        if self.name in ("reduce", "gather") and rank != self.root:
            return None
        if self.name == "broadcast":
            return inputs[self.root]
        if self.name == "scatter":
            return inputs[self.root][cut]
        if self.name in ("all_gather", "gather"):
            return np.concatenate(inputs)
        if self.name == "all_to_all":
            return np.concatenate([x[cut] for x in inputs])
        combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[self.op]
        whole: Array = combine.reduce(np.stack(inputs), axis=0, dtype=self.dtype)
        return whole[cut] if self.name == "reduce_scatter" else whole

    def start(self, comm: braid.Communicator) -> Any:
        """Start it; a request if it is to be pending, else the result."""
        x = self.input_of(comm.rank)
        options: dict[str, Any] = {}
        if self.name in ("all_reduce", "reduce", "reduce_scatter"):
            options["op"] = self.op
        if self.name in ("reduce", "broadcast", "gather", "scatter"):
            options["root"] = self.root
        expected = self.result_on(comm.rank)
        if self.name == "broadcast":
            x = x if comm.rank == self.root else np.zeros_like(x)
        elif expected is not None and not (self.in_place and self.name in ("all_reduce", "reduce")):
            options["out"] = np.full(expected.shape, 7, self.dtype)
        return getattr(comm, ("i" if self.pending else "") + self.name)(x, **options)

    def check(self, found: Any, rank: int) -> None:
        """Raise unless the result is right."""
        expected = self.result_on(rank)
        if expected is not None and not np.array_equal(found, expected):
            wrong = np.flatnonzero(np.asarray(found) != expected)
            raise AssertionError(
                f"rank {rank}: {self.name} of {self.elements} {self.dtype}, {self.op}, root {self.root}: "
                f"{wrong.size} wrong, first at {wrong[0]}"
            )


def soak(comm: braid.Communicator, seconds: float, seed: int, largest_block: int = LARGEST_BLOCK) -> int:
    """Carry out operations for so long, with blocks of up to so many bytes; return how many."""
    agreed, own = np.random.default_rng(seed), np.random.default_rng([seed, comm.rank])
    end, count = time.monotonic() + seconds, 0
    under_way: list[tuple[Operation, Any]] = []
    while comm.all_reduce(np.array([time.monotonic() < end]), "min")[0]:
        for _ in range(ROUND):
            operation = Operation(comm.size, agreed, largest_block)
            if own.random() < 0.1:
                time.sleep(own.exponential(0.003))
            outcome = operation.start(comm)
            if operation.pending:
                under_way.append((operation, outcome))
            else:
                operation.check(outcome, comm.rank)
            if len(under_way) > PENDING or (under_way and own.random() < 0.3):
                started, request = under_way.pop(0)
                started.check(request.wait(), comm.rank)
            count += 1
        for started, request in under_way:
            started.check(request.wait(), comm.rank)
        under_way.clear()
    return count


def run_rank(folder: str, rank: int, ranks: int, seconds: float, seed: int) -> None:
    with braid.Communicator(f"file://{folder}", rank=rank, size=ranks, timeout_s=60) as comm:
        count = soak(comm, seconds, seed)
        if rank == 0:
            print(f"{count} operations on {ranks} ranks in {seconds:g} s, seed {seed}: all right")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    arguments = parser.parse_args()
    spawn = get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="braid-soak-") as folder:
        place = str(Path(folder, "meeting"))
        ranks = [
            spawn.Process(target=run_rank, args=(place, r, arguments.ranks, arguments.seconds, arguments.seed))
            for r in range(arguments.ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return max(abs(process.exitcode or 0) for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
