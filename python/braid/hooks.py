# SPDX-License-Identifier: Apache-2.0
"""Hooks for DistributedDataParallel that send fewer bytes. docs/compression.md says which to take.

state = braid.hooks.AutoState(ddp, "auto")
ddp.register_comm_hook(state, braid.hooks.auto)
"""

import torch
import torch.distributed as dist

from braid.compression.dgc import DGCState
from braid.compression.factors import SufficientFactors, sufficient_factors
from braid.compression.fsdp import fsdp_reduce_scatter
from braid.compression.state import AutoState
from braid.compression.unasked import state_of

__all__ = [
    "AutoState",
    "DGCState",
    "SufficientFactors",
    "auto",
    "dgc",
    "fsdp_reduce_scatter",
    "state_of",
    "sufficient_factors",
]


def auto(state: AutoState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket as the state's policy says, parameter by parameter, with error feedback."""
    return state.reduce(bucket)


def dgc(state: DGCState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Give the optimizer the mean of what ranks chose to send of their accumulated momenta: see DGCState."""
    return state.reduce(bucket)
