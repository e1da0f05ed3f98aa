# SPDX-License-Identifier: Apache-2.0
"""PyTorch's suite for a backend, as a test case whose ranks are forked from a process that imported torch.

The suite is `torch.testing._internal.distributed.distributed_test`, unmodified; in PyTorch's repository a class
like this one runs it (test/distributed/test_distributed_spawn.py), which the wheel lacks. BACKEND, WORLD_SIZE and
BRAID_TAKEOVER must be set before this module is imported.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

if os.environ["BRAID_TAKEOVER"]:
    import braid  # noqa: F401  (registers the backend, and takes over, where autoload is off)
    from braid._torch.adapter import load_adapter

    load_adapter()  # once, before the ranks are forked
if os.environ["BACKEND"] == "mpi":
    # torch's wheels are built without MPI; that the name works all the same is what is being tested.
    dist.is_mpi_available = lambda: True

from torch.testing._internal import common_distributed
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

# How the ranks start: "spawn" is what PyTorch does, and costs seconds for every test.
START_METHOD = os.environ.get("BRAID_CONFORMANCE_START", "fork")
common_distributed.TIMEOUT_OVERRIDE.clear()


class SuiteCase(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc]
    """One test of the suite, on WORLD_SIZE ranks."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context(START_METHOD).Process)

    def tearDown(self) -> None:
        processes = list(self.processes)
        super().tearDown()
        for process in processes:
            process.join(5)
            process.kill()
            process.join()

    def _check_return_codes(self, fn: Callable[[], None], elapsed_time: float) -> None:
        super()._check_return_codes(fn, elapsed_time)
        if fn not in self.skip_return_code_checks:
            # PyTorch looks at the first rank alone.
            ended: list[Any] = [process.exitcode for process in self.processes]
            if any(code < 0 for code in ended):
                raise AssertionError(f"a rank was killed by a signal; the exit codes are {ended}")
