# SPDX-License-Identifier: Apache-2.0
"""How much of a vector each server should hold, so that no host's network card is the last to finish a step."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from braid._array.rendezvous.stores import KeyValueStore
from braid._array.servers.terms import pack, unpack
from braid._errors import CommunicatorTimeoutError
from braid._links import stated_links
from braid._machine import host_identity

_ROUNDS = 100  # of halving: more than a float has bits


@dataclass(frozen=True)
class Host:
    """A host, as the choice of shares sees it.

    Attributes:
        rate: of its network card, in any unit, the smaller of both directions. Above 0.
        workers: how many run there.
        servers: how many servers run there. Its share is divided among them.
    """

    rate: float
    workers: int
    servers: int


def best_shares(hosts: Sequence[Host]) -> list[float]:
    """Return the share of the vector that each host's servers should hold; the sum is 1.

    In a step every worker pushes and pulls the whole vector. A host with w of n workers and the share x sends
    w (1 - x) for its workers and (n - w) x for the others; it receives as much. So its card needs
    (w + (n - 2 w) x) / rate. The shares make the largest of these times least. With one worker and one server on
    each of n > 2 hosts that is x = (T rate - 1) / (n - 2) with T = 2 (n - 1) / sum(rate), unless 1 / min(rate) is
    more than T.

    Args:
        hosts: at least one of them has a server.

    Example:
        >>> best_shares([Host(1.0, 1, 1), Host(1.0, 1, 1), Host(2.0, 1, 1)])
        [0.0, 0.0, 1.0]
    """
    count = sum(host.workers for host in hosts)
    if count == 0 or len(hosts) == 1:
        return _split([0.0] * len(hosts), [float(host.servers) for host in hosts])
    slow, fast = 0.0, max((host.workers + count) / host.rate for host in hosts)
    for _ in range(_ROUNDS):
        middle = (slow + fast) / 2
        slow, fast = (slow, middle) if _bounds(hosts, count, middle) else (middle, fast)
    bounds = _bounds(hosts, count, fast)
    assert bounds is not None, "a card that has this time can do everything"
    return _split(*bounds)


def _bounds(hosts: Sequence[Host], count: int, time: float) -> tuple[list[float], list[float]] | None:
    """Return the least and the largest share of each host within this time; None if that is not possible."""
    least, most = [], []
    for host in hosts:
        spare, slope = time * host.rate - host.workers, count - 2 * host.workers
        low, high = 0.0, 0.0
        if slope < 0 and host.servers:  # most workers are here: the more shards here, the less travels
            low, high = max(0.0, spare / slope), 1.0
        elif spare < 0:
            return None
        elif host.servers:
            high = spare / slope if slope > 0 else time * host.rate
        if low > high:
            return None
        least.append(low)
        most.append(high)
    return (least, most) if sum(least) <= 1 <= sum(most) else None


def _split(least: list[float], most: list[float]) -> list[float]:
    """Return numbers between the bounds whose sum is 1, each as far along as the others."""
    room = sum(most) - sum(least)
    part = (1 - sum(least)) / room if room > 0 else 0.0
    return [low + part * (high - low) for low, high in zip(least, most, strict=True)]


def agreed_shares(
    store: KeyValueStore,
    folder: str,
    member: int,
    workers: int,
    servers: Sequence[int],
    limit_s: float,
    rate: float | None = None,
) -> list[float] | None:
    """Return the shares of the shards, equal on all members, or None for equal shares.

    Nothing is measured for it. Each worker that begins says which card its host has, and worker 0 tells all
    members the shares. A file that BRAID_LINKS names counts more than `rate`; all members need the same one.

    Args:
        store: where the members meet.
        folder: for the keys of this vector.
        member: number of this member.
        workers: members below this number begin together.
        servers: the members that hold shards.
        limit_s: how long to wait for another member.
        rate: of this host's network card, in any unit, if somebody has measured it. Either all workers that begin
            have one, or none has.

    Raises:
        ValueError: the file that BRAID_LINKS names is wrong.
        CommunicatorTimeoutError: a member did not come, or has another file, or none.
    """
    if len(servers) < 2 or any(server >= workers for server in servers):
        return None
    stated = stated_links()
    if stated is not None and stated.problem:
        raise ValueError(stated.problem)
    # A later vector of the same name may have other servers.
    place = f"{folder}/{workers}/{'+'.join(map(str, servers))}"
    if stated is not None:
        rate = 1 / max(stated.up_s_per_byte, stated.down_s_per_byte)
    if member < workers and rate is None:
        if member == 0:
            store.set(f"{place}/chosen", pack({"shares": None}))  # for those that join late
        return None
    source = stated.digest if stated is not None else "measured"
    card = {"host": host_identity(), "rate": rate}
    if member > 0:
        if member < workers:
            store.set(f"{place}/{source}/{member}", pack(card))
        told: list[float] | None = unpack(_from(store, f"{place}/chosen", 0, limit_s))["shares"]
        return told
    cards = [
        card,
        *(unpack(_from(store, f"{place}/{source}/{other}", other, limit_s)) for other in range(1, workers)),
    ]
    shares = _by_server([(str(card["host"]), float(card["rate"])) for card in cards], servers)
    store.set(f"{place}/chosen", pack({"shares": shares}))
    return shares


def _from(store: KeyValueStore, key: str, member: int, limit_s: float) -> bytes:
    try:
        return store.get(key, limit_s)
    except TimeoutError:
        raise CommunicatorTimeoutError(
            f"member {member} has not said how fast its network card is within {limit_s:g} s: "
            "set BRAID_LINKS to the same file on all members, or on none"
        ) from None


def _by_server(cards: Sequence[tuple[str, float]], servers: Sequence[int]) -> list[float]:
    """Return the share of each server, where `cards` has the host and the rate of each worker."""
    names = list(dict.fromkeys(name for name, _ in cards))
    workers, held = Counter(name for name, _ in cards), Counter(cards[server][0] for server in servers)
    rates = {name: min(rate for host, rate in cards if host == name) for name in names}
    found = best_shares([Host(rates[name], workers[name], held[name]) for name in names])
    share = dict(zip(names, found, strict=True))
    return [share[cards[server][0]] / held[cards[server][0]] for server in servers]
