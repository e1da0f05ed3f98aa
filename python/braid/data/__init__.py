# SPDX-License-Identifier: Apache-2.0
"""Batches whose sizes follow the speeds of the workers. docs/balanced.md tells more.

sampler = braid.data.BalancedSampler(dataset, batch_size=32)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
sampler.attach(ddp)
"""

from braid.data.sampler import BalancedSampler

__all__ = ["BalancedSampler"]
