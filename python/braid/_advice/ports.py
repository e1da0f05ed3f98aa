# SPDX-License-Identifier: Apache-2.0
"""What exchanges of some workers wait for that are under way at any time: network cards, and each other.

A card has a port out and a port in. Who comes while another worker's message passes finds half of it, on
average. The two share the port, as flows of TCP do. So the later one loses as much time as its own bytes take,
and the queue in front of the port. It loses no more than the rest of the other message takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from braid._advice.network import Network

Port = tuple[int, str]  # host, "up" or "down"
Phase = Mapping[Port, float]  # seconds for which its messages occupy each port; 0: a message without a body

# In front of a port while a long message passes; as in the lab.
QUEUE_BYTES = 256 * 1024
_ROUNDS = 60  # at most, until the rates stand still; they change by half of the way
_STILL = 1e-4  # of a rate


@dataclass(frozen=True)
class Exchange:
    """Messages of a worker, with which nothing else of this worker passes.

    Attributes:
        owner: who begins it.
        phases: each begins when the one before it has ended. Nothing leaves a host in one without ports.
    """

    owner: int
    phases: Sequence[Phase]


def there_and_back(network: Network, owner: int, bytes_to: Mapping[int, float]) -> Exchange:
    """Return an exchange with ranks: as many bytes go to each as come back from there.

    Args:
        network: of the ranks.
        owner: the rank that begins.
        bytes_to: the bytes for each rank. A rank without bytes has to answer, too.
    """
    there: dict[Port, float] = {}
    back: dict[Port, float] = {}
    for rank, size in bytes_to.items():
        if network.are_on_one_host([owner, rank]):
            continue
        for phase, sender, receiver in ((there, owner, rank), (back, rank, owner)):
            up, down = (network.hosts[sender], "up"), (network.hosts[receiver], "down")
            phase[up] = phase.get(up, 0.0) + size * network.up_s_per_byte(sender)
            phase[down] = phase.get(down, 0.0) + size * network.down_s_per_byte(receiver)
    return Exchange(owner, [there, back] if there else [])


class Traffic:
    """Exchanges of all workers, each as often as its rate says."""

    def __init__(self, network: Network, exchanges: Sequence[Exchange]) -> None:
        """Begin with no traffic."""
        self._network, self._exchanges = network, exchanges
        self.rates = [0.0] * len(exchanges)
        self._queue_s: dict[Port, float] = {}
        for rank, host in enumerate(network.hosts):
            self._queue_s[host, "up"] = QUEUE_BYTES * network.up_s_per_byte(rank)
            self._queue_s[host, "down"] = QUEUE_BYTES * network.down_s_per_byte(rank)

    def seconds(self) -> list[float]:
        """Return how long each exchange takes, with what the others of now make it wait for."""
        # Of each port, and of each worker there: the part of the time with messages, and their mean rest.
        busy: dict[tuple[Port, int | None], float] = {}
        rest: dict[tuple[Port, int | None], float] = {}
        for each, rate in zip(self._exchanges, self.rates, strict=True):
            for port, own in ((port, own) for phase in each.phases for port, own in phase.items()):
                for key in ((port, None), (port, each.owner)):
                    busy[key] = busy.get(key, 0.0) + rate * own
                    rest[key] = rest.get(key, 0.0) + rate * own * own / 2

        def wait_s(port: Port, owner: int, own: float) -> float:
            others = busy[port, None] - busy[port, owner]
            return min(rest[port, None] - rest[port, owner], others * (own + self._queue_s[port]))

        return [
            sum(
                self._network.latency_s + max(own + wait_s(port, each.owner, own) for port, own in phase.items())
                for phase in each.phases
            )
            for each in self._exchanges
        ]

    def settle(self, rates_of: Callable[[list[float]], Sequence[float]]) -> list[float]:
        """Find the rates that fit the waits they cause; return how long each exchange takes with them.

        Args:
            rates_of: says how often exchanges begin if they take so many seconds. The ports may pass fewer.
        """
        for _ in range(_ROUNDS):
            before = self.rates.copy()
            self._approach(rates_of(self.seconds()))
            if all(abs(new - old) <= _STILL * new for new, old in zip(self.rates, before, strict=True)):
                break
        return self.seconds()

    def _approach(self, wanted: Sequence[float]) -> None:
        busy: dict[Port, float] = {}
        for each, rate in zip(self._exchanges, wanted, strict=True):
            for phase in each.phases:
                for port, own in phase.items():
                    busy[port] = busy.get(port, 0.0) + rate * own
        for at, each in enumerate(self._exchanges):
            most = max((busy[port] for phase in each.phases for port, own in phase.items() if own), default=0.0)
            self.rates[at] = (self.rates[at] + wanted[at] / max(1.0, most)) / 2
