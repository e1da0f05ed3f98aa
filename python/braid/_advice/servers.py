# SPDX-License-Identifier: Apache-2.0
"""Strategies whose workers, or groups of them, push to servers in all ranks: predicted, each as fast as it can."""

from collections import Counter
from collections.abc import Iterator, Sequence

from braid._advice.candidate import Candidate, Preference
from braid._advice.drift import drift_from_centre
from braid._advice.network import Network
from braid._advice.ports import Traffic, there_and_back
from braid._advice.workload import Workload
from braid._array.servers.shares import Host, best_shares

PERIOD, ELASTIC_BETA = 10, 0.9  # of elastic averaging: what bs.ElasticAverage takes if not told
ALIKE = 1.15  # step times of one group of Hybrid differ by at most this factor


def with_servers(work: Workload, network: Network, times: Sequence[float]) -> Iterator[Candidate]:
    """Yield the asynchronous server, hybrid groups where there are some, and elastic averaging.

    Args:
        work: what a step computes and sends.
        network: of the ranks.
        times: seconds of computing of each rank's step.
    """
    count = len(times)
    alone = [[rank] for rank in range(count)]
    yield _at_servers(work, network, alone, times, "asynchronous server", "parameter_server:mode=async", count - 1)
    groups = groups_of(times)
    if 1 < len(groups) < count:
        text = "hybrid:groups=" + "/".join("+".join(map(str, group)) for group in groups)
        yield _at_servers(work, network, groups, times, "hybrid groups", text, len(groups) - 1)
    text, apart = f"elastic:sync_every={PERIOD}", drift_from_centre(PERIOD, ELASTIC_BETA / count)
    yield _at_servers(work, network, alone, times, "elastic averaging", text, 0, PERIOD, apart)


def groups_of(times: Sequence[float]) -> list[list[int]]:
    """Return ranks whose step times are alike, the fastest group first."""
    groups: list[list[int]] = []
    for rank in sorted(range(len(times)), key=lambda rank: times[rank]):
        if groups and times[rank] <= ALIKE * times[groups[-1][0]]:
            groups[-1].append(rank)
        else:
            groups.append([rank])
    return [sorted(group) for group in groups]


def server_shares(network: Network) -> list[float]:
    """Return the part of the vector that each rank serves: what a process group on braid agrees on."""
    ranks = Counter(network.hosts)
    rates = {rank: 1 / max(network.up_s_per_byte(rank), network.down_s_per_byte(rank)) for rank in network.ranks}
    hosts = {network.hosts[rank]: rate for rank, rate in rates.items()}
    found = best_shares([Host(rate, ranks[host], ranks[host]) for host, rate in hosts.items()])
    share = dict(zip(hosts, found, strict=True))
    return [share[host] / ranks[host] for host in network.hosts]


def _at_servers(
    work: Workload,
    network: Network,
    groups: Sequence[Sequence[int]],
    times: Sequence[float],
    name: str,
    text: str,
    staleness: float,
    period: int = 1,
    alone: float = 1.0,
) -> Candidate:
    """Each group averages its gradients in each step, and its speaker exchanges with all servers every `period`.

    A request goes to all servers, also to those without a share. So its answer from a slow host waits behind the
    bytes that the worker there sends.
    """
    count, size = len(times), work.gradient_bytes
    shares = server_shares(network)
    steps_s = []  # of each group between two exchanges
    for group in groups:
        slowest = max(times[rank] for rank in group)
        steps_s.append(period * (slowest + work.exposed_s(slowest, network.all_reduce_s(group, size))))
    traffic = Traffic(
        network,
        [
            there_and_back(network, group[0], {rank: size * share for rank, share in enumerate(shares)})
            for group in groups
        ],
    )
    traffic.settle(lambda seconds: [1 / (own + each) for own, each in zip(steps_s, seconds, strict=True)])
    per_step = work.batch / count
    return Candidate(
        name,
        text,
        Preference.ASYNCHRONOUS,
        tuple(range(count)),
        (per_step,) * count,
        sum(rate * period * per_step * len(group) for rate, group in zip(traffic.rates, groups, strict=True)),
        sum(times),
        staleness=staleness,
        period=period,
        alone=alone,
    )
