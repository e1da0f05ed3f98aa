# SPDX-License-Identifier: Apache-2.0
"""A pull sees whole updates of a shard: writers push vectors of one constant; a reader looks for two in one."""

import itertools
import os

import numpy as np
import pytest
from ranks import Rank, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

ELEMENTS = 3001  # shards that are no multiple of a cache line or of a SIMD register
READS = 10_000
MANY_READS = 1_000_000
LIMIT_S = limit(60.0)


def read_and_write(rank: Rank, reads: int) -> list[int]:
    """Rank 0 reads, the others write until it is done; return what rank 0 counted of each shard."""
    import braid

    with braid.Parameters(
        f"file://{rank.folder}/parameters", elements=ELEMENTS, rank=rank.rank, size=rank.size, rule="add",
        servers=[0, 1], timeout_s=LIMIT_S,
    ) as parameters:  # fmt: skip
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        if rank.rank == 0:
            try:
                return _read(parameters, values, reads)
            finally:
                rank.mark("done")
        # Powers of two that cancel: every sum of whole updates is a small whole number, the same in a whole shard.
        for sign in itertools.cycle((1, -1)):
            parameters.push_pull(np.full(ELEMENTS, sign * (1 << rank.rank), np.float32), None).wait()
            if (rank.folder / "done.0").exists():
                return []
    raise AssertionError


def _read(parameters, values: np.ndarray, reads: int) -> list[int]:
    """Pull so often, and return how many values were seen in each shard."""
    shards = np.split(values, parameters._core.ends()[:-1])
    seen: list[set[float]] = [set() for _ in shards]
    versions = [0] * len(shards)
    for _ in range(reads):
        request = parameters.pull(values)
        request.wait()
        for number, shard in enumerate(shards):
            assert (shard == shard[0]).all(), f"shard {number} is torn: it has {np.unique(shard)[:5]}"
            seen[number].add(float(shard[0]))
        now = list(request.versions)
        assert all(a >= b for a, b in zip(now, versions, strict=True)), "versions never fall"
        versions = now
    assert all(version > 0 for version in versions)
    return [len(values) for values in seen]


@pytest.mark.long_over_tcp
def test_no_pull_is_torn(wire: str) -> None:
    seen, *_ = run_ranks(read_and_write, 3, READS, wire=wire, join=False)
    assert min(seen) > 1, "the reader saw updates come"


@pytest.mark.skipif(
    not os.environ.get("BRAID_TEST_MANY_READS"), reason="takes many minutes: set BRAID_TEST_MANY_READS=1"
)
def test_no_pull_of_many_is_torn(wire: str) -> None:
    seen, *_ = run_ranks(read_and_write, 3, MANY_READS, wire=wire, join=False, timeout_s=3600.0)
    assert min(seen) > 1, "the reader saw updates come"
