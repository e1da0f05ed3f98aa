# SPDX-License-Identifier: Apache-2.0
"""Training strategies that do not keep replicas equal in every step. docs/strategies.md says which one to use.

import braid.strategies as bs
opt = bs.ParameterServer(model, torch.optim.SGD, lr=0.1, momentum=0.9)
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    from braid._errors import needs_torch

    raise needs_torch(__name__, error) from None

from braid.strategies.elastic.elastic_average import ElasticAverage
from braid.strategies.gossip.gossip import Gossip
from braid.strategies.hybrid.hybrid import Hybrid
from braid.strategies.local.diloco import DiLoCo
from braid.strategies.local.local_sgd import LocalSGD
from braid.strategies.parameter_server import ParameterServer
from braid.strategies.text import from_text

__all__ = ["DiLoCo", "ElasticAverage", "Gossip", "Hybrid", "LocalSGD", "ParameterServer", "from_text"]
