# SPDX-License-Identifier: Apache-2.0
"""Ranks that misbehave, for a benchmark to notice."""

import os
import signal
import time

from braid._bench.ranks.communicator_rank import CommunicatorRank


class Careless(CommunicatorRank):
    """Spoils two elements on rank 1."""

    def call_for(self, work, buffers):
        call = super().call_for(work, buffers)

        def careless():
            call()
            if self.rank == 1:
                self.bits(buffers.output)[[0, -1]] ^= 1

        return careless


class Idle(CommunicatorRank):
    """Moves nothing at all."""

    def call_for(self, work, buffers):
        return lambda: None


class Mortal(CommunicatorRank):
    """Rank 1 is killed in its first timed block."""

    def block(self, calls, warmups):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().block(calls, warmups)


class Sleepy(CommunicatorRank):
    """Rank 0 does not come back from a check."""

    def check(self, seed):
        if self.rank == 0:
            time.sleep(600)
        return super().check(seed)


class Stillborn:
    """Cannot be made."""

    def __init__(self, rank, size, folder):
        raise RuntimeError(f"rank {rank} has no engine\nand a second line")
