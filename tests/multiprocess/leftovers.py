# SPDX-License-Identifier: Apache-2.0
"""What ranks must not leave behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Of other programs on this machine, and of benchmarks that other tests run meanwhile.
FOREIGN = (
    *("torch_", "sem.", "pym-", "psm_", "nccl-", "gloo", "braid-bench"),
    *("vader_", "sm_segment.", "pmix", "mpich", "Intel_MPI_"),
)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    left = {name for name in set(os.listdir("/dev/shm")) - before if not name.startswith(FOREIGN)}
    assert not left, f"left in /dev/shm: {left}"
