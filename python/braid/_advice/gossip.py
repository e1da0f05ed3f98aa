# SPDX-License-Identifier: Apache-2.0
"""Gossip, predicted: pairs that average in the background."""

from collections.abc import Sequence

from braid._advice.candidate import Candidate, Preference
from braid._advice.drift import drift_in_pairs
from braid._advice.network import Network
from braid._advice.ports import Traffic, there_and_back
from braid._advice.workload import Workload

# A step copies the whole vector so often in memory. strategies/gossip/local.py takes the model's values (1) and
# the values before away (1.5). It adds the rest to the vector (1.5), reads the vector (1), puts it into the model
# (1), and notes it (1).
COPIES = 7.0


def gossip(work: Workload, network: Network, times: Sequence[float]) -> Candidate:
    """Return the candidate in which no step waits for another worker. A step waits for its copies of the values.

    As in AD-PSGD (Lian et al. 2018) every other worker begins exchanges, each with one of those that do not, drawn
    at random. It begins one at the end of a step, if the last one has ended. A slow link in one pair so keeps its
    worker from all others.

    Args:
        work: what a step computes and sends.
        network: of the ranks.
        times: seconds of computing of each rank's step.
    """
    count, size = len(times), work.gradient_bytes
    steps_s = [each + COPIES * size * network.copy_s_per_byte for each in times]
    passive = range(1, count, 2)
    pairs = [(active, other) for active in range(0, count, 2) for other in passive]
    traffic = Traffic(network, [there_and_back(network, one, {other: size}) for one, other in pairs])

    def rates_of(seconds: list[float]) -> list[float]:
        lap_s = dict.fromkeys(range(0, count, 2), 0.0)  # one exchange with each, and the steps in which they end
        for (active, _), each in zip(pairs, seconds, strict=True):
            lap_s[active] += max(steps_s[active], each + steps_s[active] / 2)
        return [1 / lap_s[active] for active, _ in pairs]

    seconds = traffic.settle(rates_of)
    rates = dict(zip(pairs, traffic.rates, strict=True))
    exchange_s = sum(rate * each for rate, each in zip(traffic.rates, seconds, strict=True)) / sum(traffic.rates)
    # What comes back lacks the steps that the active worker has taken since it began. What has arrived at the
    # passive one lacks those of the way there.
    lag_s = (exchange_s + exchange_s / 2) / 2
    share = work.batch / count
    return Candidate(
        "gossip",
        "gossip:mode=symmetric",
        Preference.ASYNCHRONOUS,
        tuple(range(count)),
        (share,) * count,
        sum(share / each for each in steps_s),
        sum(times),
        alone=drift_in_pairs(count, rates, sum(1 / each for each in steps_s) / count, lag_s),
    )
