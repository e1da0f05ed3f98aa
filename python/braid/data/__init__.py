# SPDX-License-Identifier: Apache-2.0
"""Batches whose sizes follow the speeds of the workers. docs/balanced.md tells more.

sampler = braid.data.BalancedSampler(dataset, batch_size=32)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
sampler.attach(ddp)
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    from braid._errors import needs_torch

    raise needs_torch(__name__, error) from None

from braid.data.sampler import BalancedSampler

__all__ = ["BalancedSampler"]
