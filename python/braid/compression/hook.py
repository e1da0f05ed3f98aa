# SPDX-License-Identifier: Apache-2.0
"""The hook itself: whatever the state, the state does the work."""

import torch
import torch.distributed as dist

from braid.compression.dgc import DGCState
from braid.compression.state import AutoState


def auto(state: AutoState | DGCState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce a bucket as its state says: AutoState with error feedback, DGCState with momentum."""
    return state.reduce(bucket)
