# SPDX-License-Identifier: Apache-2.0
"""Reads the description of a cluster from the command line."""

import re
from dataclasses import dataclass

from braid import _rates
from braid._rates import rate_text

MOST_HOSTS = 64
_GROUP = re.compile(r"(?:(\d+)x)?([^@]+?)(?:@(\d+)%)?", re.IGNORECASE)
_OTHER_SEPARATOR = re.compile(r"[;|+&]|[^\s,]\s+\d")  # between groups of hosts


class LabError(Exception):
    """A lab cannot be made as described, or not on this machine. The message says why and what to do."""


@dataclass(frozen=True)
class HostSpec:
    """One emulated host: the rates of its network card, and its share of processor time."""

    up_bits_per_s: float
    down_bits_per_s: float
    cpu_share: float = 1.0

    def __str__(self) -> str:
        """Return the text that parse_hosts() reads."""
        text = rate_text(self.up_bits_per_s)
        if self.down_bits_per_s != self.up_bits_per_s:
            text += f"/{rate_text(self.down_bits_per_s)}"
        return text if self.cpu_share == 1 else f"{text}@{self.cpu_share:.0%}"


def parse_rate(text: str) -> float:
    """Return the bits per second of a text like "200mbit" or "1.5gbit/s".

    Raises:
        LabError: the text is not a rate, or the rate is below 10 kbit/s.
    """
    try:
        return _rates.parse_rate(text)
    except ValueError as error:
        raise LabError(str(error)) from None


def parse_hosts(text: str) -> list[HostSpec]:
    """Return the hosts of a text like "3x1gbit,1x200mbit".

    Args:
        text: groups, separated by commas: ``[COUNTx]UP[/DOWN][@CPU%]``. ``2x1gbit/200mbit@50%`` are two hosts that
            send at 1 Gbit/s, receive at 200 Mbit/s and run half of the time.

    Raises:
        LabError: a group makes no sense, or there are more than 64 hosts.
    """
    try:
        return _hosts(text)
    except LabError:
        if not _OTHER_SEPARATOR.search(text):
            raise
        raise LabError(f"{text!r}: put commas between groups of hosts, as in 2x200mbit,1x50mbit") from None


def _hosts(text: str) -> list[HostSpec]:
    hosts: list[HostSpec] = []
    for group in filter(None, (part.strip() for part in text.split(","))):
        match = _GROUP.fullmatch(group)
        count = int(match[1] or 1) if match else 0
        share = int(match[3] or 100) if match else 0
        if not match or count < 1 or not 1 <= share <= 100:
            raise LabError(f"{group!r} names no hosts: expected [COUNTx]UP[/DOWN][@CPU%], as in 3x1gbit@50%")
        up, _, down = match[2].partition("/")
        if len(hosts) + count > MOST_HOSTS:
            raise LabError(f"{text!r} names more than {MOST_HOSTS} hosts")
        hosts += [HostSpec(parse_rate(up), parse_rate(down or up), share / 100)] * count
    if not hosts:
        raise LabError(f"{text!r} names no hosts: expected 1 to {MOST_HOSTS}")
    return hosts


def parse_ranks_per_host(text: str, hosts: int) -> list[int]:
    """Return the number of ranks of each host. "2" is for all hosts; "2,2,1,0" has one number per host.

    Raises:
        LabError: there is not one number per host, a number is negative, or all are 0.
    """
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise LabError(f"ranks per host: expected numbers, got {text!r}") from None
    counts = counts * hosts if len(counts) == 1 else counts
    if len(counts) != hosts:
        raise LabError(f"ranks per host: {len(counts)} numbers for {hosts} hosts")
    if min(counts) < 0 or sum(counts) < 1:
        raise LabError(f"ranks per host: {text!r} leaves no rank anywhere")
    return counts
