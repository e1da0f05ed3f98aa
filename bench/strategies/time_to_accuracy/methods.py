# SPDX-License-Identifier: Apache-2.0
"""The ways to train that are compared: plain DistributedDataParallel first, then what braid offers."""

from dataclasses import dataclass

RATES = (0.05, 0.1, 0.2)  # learning rates that are tried for each method
ONE_GRADIENT = 0.25  # servers apply each worker's gradient by itself, where others apply a mean of four


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: what tables and pictures call it.
        advice: the candidate of `braid advise` that it is; empty if it is none.
        strategy: the text form of a strategy; empty for DistributedDataParallel.
        backend: of torch.distributed.
        compression: a policy of braid.hooks.auto; empty for exact gradients.
        balanced: batches follow the workers' speeds.
        scale: a factor of the learning rates.
    """

    name: str
    advice: str = ""
    strategy: str = ""
    backend: str = "braid"
    compression: str = ""
    balanced: bool = False
    scale: float = 1.0

    @property
    def rates(self) -> list[float]:
        """The learning rates that are tried."""
        return [self.scale * rate for rate in RATES]


METHODS = (
    Method("DDP on Gloo", backend="gloo"),
    Method("DDP on braid", "all_reduce"),
    Method("DDP on braid, int8", "all_reduce, int8", compression="int8"),
    Method("balanced batches", "balanced batches", balanced=True),
    Method("balanced batches, int8", "balanced batches, int8", compression="int8", balanced=True),
    Method("ParameterServer, async", "asynchronous server", "parameter_server:mode=async", scale=ONE_GRADIENT),
    Method("ParameterServer, ssp", "", "parameter_server:mode=ssp,staleness=3", scale=ONE_GRADIENT),
    Method("Hybrid", "hybrid groups", "hybrid:groups=auto,rate_rule=none", scale=ONE_GRADIENT),
    Method("ElasticAverage", "elastic averaging", "elastic:sync_every=10"),
    Method("Gossip", "gossip", "gossip:mode=symmetric"),
    Method("LocalSGD", "LocalSGD", "local:sync_every=10"),
    Method("DiLoCo", "DiLoCo", "diloco:sync_every=10"),
)
