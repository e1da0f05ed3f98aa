# SPDX-License-Identifier: Apache-2.0
"""Chooses the client to close when there is no room: the oldest one of the address that has most clients.

So a flood from one address closes only its own connections.
"""

import ipaddress
from collections.abc import Iterator
from typing import Generic, TypeVar

_Member = TypeVar("_Member")

_IPV6_NETWORK_BITS = 64  # one host may have all addresses of such a network


def source_of(address: str) -> str:
    """Return the name of one sender: an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_NETWORK_BITS), strict=False))


class Crowd(Generic[_Member]):
    """Members by source. The members of a source are in the order in which they came."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[_Member, None]] = {}
        self.count = 0

    def add(self, source: str, member: _Member) -> None:
        """Add a member. REQUIRES: it is not in the crowd."""
        self._by_source.setdefault(source, {})[member] = None
        self.count += 1

    def remove(self, source: str, member: _Member) -> None:
        """Remove a member. REQUIRES: it is in the crowd."""
        members = self._by_source[source]
        del members[member]
        if not members:
            del self._by_source[source]
        self.count -= 1

    def __iter__(self) -> Iterator[_Member]:
        """Go through all members. The source with most members comes first."""
        for members in sorted(self._by_source.values(), key=len, reverse=True):
            yield from members

    def oldest(self) -> _Member | None:
        """Return the oldest member of the source with most members; None if the crowd is empty."""
        if not self._by_source:
            return None
        largest = max(self._by_source, key=lambda source: len(self._by_source[source]))
        return next(iter(self._by_source[largest]))
