# SPDX-License-Identifier: Apache-2.0
"""The candidates: which workers take part, by which strategy, and how fast that should be.

Synchronous candidates follow WAP: t(d) = t_c(B / d) + t_s(d) for d workers (Shin et al., "Workload-aware automatic
parallelization for multi-GPU DNN training", ICASSP 2019). What workers lose that do not meet in each step is
assumed: see assumptions.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from braid._advice.assumptions import Assumptions
from braid._advice.candidate import Candidate, Preference
from braid._advice.gossip import gossip
from braid._advice.network import Network
from braid._advice.servers import with_servers
from braid._advice.workload import Workload, balanced

CODEC = "int8"
# From so many steps alone DiLoCo is proposed in place of LocalSGD. Papers use it for such periods.
DILOCO_FROM = 50
# BalancedSampler gives equal batches, and AutoState exact gradients, for so many steps, if not told.
BEGINNING = 10

_ASSUMPTIONS = Assumptions()


def candidates(work: Workload, network: Network, assumptions: Assumptions = _ASSUMPTIONS) -> list[Candidate]:
    """Return all candidates; first the plain all-reduce of all workers.

    Args:
        work: what a step computes and sends.
        network: of the ranks.
        assumptions: about learning.

    Raises:
        ValueError: the workload has not one worker for each rank.
    """
    if len(work.workers) != len(network.hosts):
        raise ValueError(f"{len(work.workers)} workers for {len(network.hosts)} ranks: expected one for each")
    everyone = tuple(network.ranks)
    found = [_equal(work, network, everyone)]
    for ranks in _subsets(work, network):
        found.append(_equal(work, network, ranks))
        if len(ranks) > 1:
            found.append(_balanced(work, network, ranks))
    if len(everyone) > 1:
        found.append(_balanced(work, network, everyone))
        if not network.are_on_one_host(everyone):
            found.append(_equal(work, network, everyone, CODEC))
            found.append(_balanced(work, network, everyone, CODEC))
        found.append(_local_steps(work, network, everyone, assumptions))
        share = work.batch / len(everyone)
        times = [worker.compute_s(share) for worker in work.workers]
        found += [*with_servers(work, network, times), gossip(work, network, times)]
    return [replace(one, loss=assumptions.loss(one.staleness, one.alone), training=work.training) for one in found]


def _subsets(work: Workload, network: Network) -> Iterator[tuple[int, ...]]:
    """Fewer and fewer workers: without the slowest processors, and without the slowest links."""
    share = work.batch / len(work.workers)
    orders = (
        lambda rank: work.workers[rank].compute_s(share),
        lambda rank: max(network.up_s_per_byte(rank), network.down_s_per_byte(rank)),
    )
    seen = set()
    for order in orders:
        ranks = sorted(network.ranks, key=order)
        for count in range(len(ranks) - 1, 0, -1):
            kept = tuple(sorted(ranks[:count]))
            if kept not in seen:
                seen.add(kept)
                yield kept


def _equal(work: Workload, network: Network, ranks: Sequence[int], codec: str = "") -> Candidate:
    share = work.batch / len(ranks)
    return _synchronous(work, network, ranks, [share] * len(ranks), "all_reduce", codec)


def _balanced(work: Workload, network: Network, ranks: Sequence[int], codec: str = "") -> Candidate:
    shares = balanced(work.batch, [work.workers[rank] for rank in ranks])
    kept = [(rank, share) for rank, share in zip(ranks, shares, strict=True) if share]
    ranks, shares = [rank for rank, _ in kept], [share for _, share in kept]
    return _synchronous(work, network, ranks, shares, "balanced batches", codec)


def _synchronous(
    work: Workload, network: Network, ranks: Sequence[int], shares: Sequence[float], name: str, codec: str
) -> Candidate:
    times = [work.workers[rank].compute_s(share) for rank, share in zip(ranks, shares, strict=True)]
    communication_s = network.all_reduce_s(ranks, work.gradient_bytes, codec)
    step_s = max(times) + work.exposed_s(max(times), communication_s)
    begin_s = 0.0
    if codec or len(set(shares)) > 1:
        exact = _equal(work, network, ranks)
        begin_s = BEGINNING * max(0.0, work.batch / exact.samples_per_s - step_s)
    how = {"all_reduce": "DistributedDataParallel as it is", "balanced batches": "BRAID_BALANCE=1"}[name]
    return Candidate(
        f"{name}, {codec}" if codec else name,
        f"{how}, BRAID_COMPRESSION={codec}" if codec else how,
        Preference.COMPRESSED if codec else Preference.EXACT,
        tuple(ranks),
        tuple(shares),
        work.batch / step_s,
        sum(times),
        begin_s=begin_s,
    )


def _local_steps(work: Workload, network: Network, ranks: Sequence[int], assumptions: Assumptions) -> Candidate:
    """LocalSGD, or DiLoCo if the best period is long: it follows from the times of a step and of a round."""
    share = work.batch / len(ranks)
    times = [work.workers[rank].compute_s(share) for rank in ranks]
    exchange_s = network.all_reduce_s(ranks, work.gradient_bytes)
    period = assumptions.period(max(times), exchange_s)
    step_s = max(times) + exchange_s / period
    name, text = ("LocalSGD", "local") if period < DILOCO_FROM else ("DiLoCo", "diloco")
    return Candidate(
        name,
        f'bs.{name}(model, optimizer, sync_every={period}), "{text}:sync_every={period}"',
        Preference.LOCAL_STEPS,
        tuple(ranks),
        (share,) * len(ranks),
        work.batch / step_s,
        sum(times),
        period=period,
        alone=period,
    )
