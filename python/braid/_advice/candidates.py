# SPDX-License-Identifier: Apache-2.0
"""The candidates: which workers take part, by which strategy, and how fast that should be.

Synchronous candidates follow WAP: t(d) = t_c(B / d) + t_s(d) for d workers (Shin et al., "Workload-aware automatic
parallelization for multi-GPU DNN training", ICASSP 2019). Workers that do not wait are weighed by staleness, with
rate / (1 + phi * staleness).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from braid._advice.network import Network
from braid._advice.workload import Workload, balanced

PHI = 0.05  # what a stale update loses, as a part of its worth and per update that came between
CODEC = "int8"
ROUND_STEPS = 50  # of DiLoCo
PERIOD = 10  # of elastic averaging
ALIKE = 1.15  # step times of one group of Hybrid differ by at most this factor


class Preference(IntEnum):
    """How much a candidate changes the training. A larger one must gain more to be advised."""

    EXACT = 0
    COMPRESSED = 1
    LOCAL_STEPS = 2
    ASYNCHRONOUS = 3


@dataclass(frozen=True)
class Candidate:
    """One way to train, with its prediction.

    Attributes:
        name: what the table calls it.
        how: the setting, command or strategy's text that brings it about.
        preference: how much it changes the training.
        workers: the ranks that take part, in rising order.
        samples: each worker's samples in a step; fractions stand for an equal division.
        samples_per_s: of all workers together.
        staleness: the mean number of updates between a pull and its push; 0 where workers wait for each other.
        compute_s: a step's seconds of computation, summed over the workers that take part.
    """

    name: str
    how: str
    preference: Preference
    workers: tuple[int, ...]
    samples: tuple[float, ...]
    samples_per_s: float
    compute_s: float
    staleness: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def worth(self) -> float:
        """Samples per second, less what staleness is believed to lose."""
        return self.samples_per_s / (1 + PHI * self.staleness)

    @property
    def participant_seconds(self) -> float:
        """Seconds of a worker's presence for 1000 samples, a stand-in for energy."""
        return 1000 * len(self.workers) / self.samples_per_s

    @property
    def cpu_seconds(self) -> float:
        """Seconds of computation for 1000 samples, a stand-in for energy."""
        return 1000 * self.compute_s / sum(self.samples)


def candidates(work: Workload, network: Network) -> list[Candidate]:
    """Return all candidates; first the plain all-reduce of all workers.

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
        found.append(_local_steps(work, network, everyone))
        found += _asynchronous(work, network, everyone)
    return found


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
    how = {"all_reduce": "DistributedDataParallel as it is", "balanced batches": "BRAID_BALANCE=1"}[name]
    return Candidate(
        f"{name}, {codec}" if codec else name,
        f"{how}, BRAID_COMPRESSION={codec}" if codec else how,
        Preference.COMPRESSED if codec else Preference.EXACT,
        tuple(ranks),
        tuple(shares),
        work.batch / step_s,
        sum(times),
    )


def _local_steps(work: Workload, network: Network, ranks: Sequence[int]) -> Candidate:
    share = work.batch / len(ranks)
    times = [work.workers[rank].compute_s(share) for rank in ranks]
    step_s = max(times) + network.all_reduce_s(ranks, work.gradient_bytes) / ROUND_STEPS
    return Candidate(
        "local steps",
        f'bs.DiLoCo(model, optimizer, sync_every={ROUND_STEPS}), "diloco:sync_every={ROUND_STEPS}"',
        Preference.LOCAL_STEPS,
        tuple(ranks),
        (share,) * len(ranks),
        work.batch / step_s,
        sum(times),
    )


def _asynchronous(work: Workload, network: Network, ranks: Sequence[int]) -> Iterator[Candidate]:
    share = work.batch / len(ranks)
    times = [work.workers[rank].compute_s(share) for rank in ranks]
    groups = _groups(times)
    yield _at_servers(
        work,
        network,
        [[at] for at in range(len(ranks))],
        times,
        "asynchronous server",
        "parameter_server:mode=async",
        1,
    )
    if 1 < len(groups) < len(ranks):
        text = "hybrid:groups=" + "/".join("+".join(str(ranks[at]) for at in group) for group in groups)
        yield _at_servers(work, network, groups, times, "hybrid groups", text, 1)
    yield _at_servers(
        work,
        network,
        [[at] for at in range(len(ranks))],
        times,
        "elastic averaging",
        f"elastic:sync_every={PERIOD}",
        PERIOD,
    )


def _groups(times: Sequence[float]) -> list[list[int]]:
    """Workers whose step times are alike, the fastest group first."""
    groups: list[list[int]] = []
    for at in sorted(range(len(times)), key=lambda at: times[at]):
        if groups and times[at] <= ALIKE * times[groups[-1][0]]:
            groups[-1].append(at)
        else:
            groups.append([at])
    return [sorted(group) for group in groups]


def _at_servers(
    work: Workload,
    network: Network,
    groups: Sequence[Sequence[int]],
    times: Sequence[float],
    name: str,
    text: str,
    period: int,
) -> Candidate:
    """Groups that push to servers in all ranks every `period` steps, each as fast as it can."""
    count, size = len(times), work.gradient_bytes
    is_between = not network.are_on_one_host(range(count))
    rates = []  # of each group's steps
    for group in groups:
        slowest = max(times[at] for at in group)
        inside_s = work.exposed_s(slowest, network.all_reduce_s(sorted(group), size))
        wire_s = (
            max(max(network.up_s_per_byte(at), network.down_s_per_byte(at)) for at in group[:1])
            if is_between
            else 0.0
        )
        exchange_s = 2 * network.latency_s + size * (count - 1) / count * wire_s if is_between else 0.0
        rates.append(1 / (slowest + inside_s + exchange_s / period))
    bound = _server_bound(network, size, count, sum(rates) / period) if is_between else 1.0
    rates = [rate * bound for rate in rates]
    share = work.batch / count
    per_s = sum(rate * share * len(group) for rate, group in zip(rates, groups, strict=True))
    notes = ("the links of the servers bound it",) if bound < 1 else ()
    return Candidate(
        name,
        text,
        Preference.ASYNCHRONOUS,
        tuple(range(count)),
        (share,) * count,
        per_s,
        sum(times),
        (len(groups) - 1) / period,
        notes,
    )


def _server_bound(network: Network, size: int, count: int, updates_per_s: float) -> float:
    """Return by which factor at most 1 the servers' links slow down so many updates per second.

    Each rank serves an equal shard. A host receives and sends its ranks' shards of all updates of other hosts.
    """
    worst = 0.0
    for host in set(network.hosts):
        here = [rank for rank in network.ranks if network.hosts[rank] == host]
        others = updates_per_s * (count - len(here)) / count
        s_per_byte = max(network.up_s_per_byte(here[0]), network.down_s_per_byte(here[0]))
        worst = max(worst, others * size * len(here) / count * s_per_byte)
    return min(1.0, 1 / worst) if worst else 1.0
