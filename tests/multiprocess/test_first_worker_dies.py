# SPDX-License-Identifier: Apache-2.0
"""Worker 0 dies before a strategy has begun: the others hear of it from the job's store, before the timeout."""

import os
import signal
import time
from datetime import timedelta

import braid
import braid.strategies as bs
import pytest
import torch.distributed as dist
from ports import free_port
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

LIMIT_S = limit(150.0)


def begin_without_it(rank: Rank, port: int) -> str:
    """Return what the others hear."""
    limit = timedelta(seconds=LIMIT_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank.rank == 0, wait_for_workers=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank.rank, world_size=rank.size, timeout=limit)
    dist.barrier()
    if rank.rank == 0:
        for other in range(1, rank.size):
            rank.wait_for("meets", other, LIMIT_S)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    rank.mark("meets")
    begun = time.monotonic()
    with pytest.raises(braid.CommunicatorError) as error:
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, timeout=LIMIT_S)
    assert time.monotonic() - begun < LIMIT_S / 2
    return str(error.value)


def test_the_others_hear_of_it_at_once() -> None:
    said = run_ranks(begin_without_it, 3, free_port(), join=False, killed=[0], timeout_s=250.0)
    for text in said[1:]:
        assert text.startswith(
            "strategy 'parameters.0' cannot begin: the job's store is gone, and so may worker 0 be"
        )
        assert "\n" not in text
