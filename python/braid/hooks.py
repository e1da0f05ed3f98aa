# SPDX-License-Identifier: Apache-2.0
"""Hooks for DistributedDataParallel that send fewer bytes. docs/compression.md says which one to use.

state = braid.hooks.AutoState(ddp, "auto")
ddp.register_comm_hook(state, braid.hooks.auto)
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    from braid._errors import needs_torch

    raise needs_torch(__name__, error) from None

from braid.compression.automatic import state_of
from braid.compression.dgc import DGCState
from braid.compression.factors import SufficientFactors, sufficient_factors
from braid.compression.fsdp import compress_fsdp, fsdp_reduce_scatter
from braid.compression.hook import auto
from braid.compression.state import AutoState

__all__ = [
    "AutoState",
    "DGCState",
    "SufficientFactors",
    "auto",
    "compress_fsdp",
    "dgc",
    "fsdp_reduce_scatter",
    "state_of",
    "sufficient_factors",
]


dgc = auto  # the state decides; the second name shows readers of a script which state it uses
