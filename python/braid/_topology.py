# SPDX-License-Identifier: Apache-2.0
"""A cluster as a user writes it down: how fast hosts' network cards are, in TOML.

    latency_us = 50
    rate = "1gbit"          # of every card, both ways

    [within]                # between ranks of one host
    latency_us = 2
    rate = "50gbit"

    [hosts.slow]            # BRAID_HOST or the hostname of a machine
    up = "200mbit"
    down = "200mbit"

Everything may be left out. The file does not say which rank is where: that is known when the ranks have met.
"""

import math
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# As in csrc/communicator/choice.cc: ordinary memory, and a gigabit network.
_WITHIN_US, _WITHIN_BYTES_PER_S = 2.0, 1 / 1.5e-10
_BETWEEN_US, _BETWEEN_BYTES_PER_S = 50.0, 125e6

_POWERS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BITS = re.compile(r"([0-9.]+) *([kmgt]?)bit(?:/s|ps)?", re.IGNORECASE)
_BYTES = re.compile(r"([0-9.]+) *([kKMGT]?)B/s")


@dataclass(frozen=True)
class Rate:
    """A network card's bytes per second."""

    up: float
    down: float


@dataclass(frozen=True)
class ClusterFile:
    """What a file says of a cluster. `hosts` are those whose cards are not like all others, by name."""

    latency_us: float = _BETWEEN_US
    rate: float = _BETWEEN_BYTES_PER_S
    within_latency_us: float = _WITHIN_US
    within_rate: float = _WITHIN_BYTES_PER_S
    hosts: Mapping[str, Rate] = field(default_factory=dict)

    def rate_of(self, hostname: str) -> Rate:
        """Return the rates of a host's card."""
        return self.hosts.get(hostname, Rate(self.rate, self.rate))

    def core_text(self, hostnames: Sequence[str]) -> str:
        """Return the core's text form of the topology of ranks on these hosts, one name per rank."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(hostnames))}
        lines = [
            "topology hosts=" + ",".join(str(numbers[name]) for name in hostnames),
            f"within alpha_s={self.within_latency_us / 1e6!r} beta_s_per_byte={1 / self.within_rate!r}",
            f"between alpha_s={self.latency_us / 1e6!r} beta_s_per_byte={1 / self.rate!r}",
        ]
        for name, number in numbers.items():
            card = self.rate_of(name)
            if card != Rate(self.rate, self.rate):
                lines.append(f"card {number} up_s_per_byte={1 / card.up!r} down_s_per_byte={1 / card.down!r}")
        return "\n".join(lines) + "\n"


def parse(text: str) -> ClusterFile:
    """Read the contents of a file.

    Raises:
        ValueError: for what is not TOML, and for keys and values that mean nothing; says where.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    _check_keys(table, ("latency_us", "rate", "within", "hosts"), "")
    within = _table(table, "within")
    _check_keys(within, ("latency_us", "rate"), "within.")
    rate = _rate(table, "rate", "", _BETWEEN_BYTES_PER_S)
    hosts = {}
    for name, entry in _table(table, "hosts").items():
        if not isinstance(entry, dict):
            raise ValueError(f"hosts.{name} must be a table: [hosts.{name}]")
        where = f"hosts.{name}."
        _check_keys(entry, ("up", "down"), where)
        hosts[name] = Rate(_rate(entry, "up", where, rate), _rate(entry, "down", where, rate))
    return ClusterFile(
        latency_us=_latency(table, "", _BETWEEN_US),
        rate=rate,
        within_latency_us=_latency(within, "within.", _WITHIN_US),
        within_rate=_rate(within, "rate", "within.", _WITHIN_BYTES_PER_S),
        hosts=hosts,
    )


def load(path: str | Path) -> ClusterFile:
    """Read a file.

    Raises:
        OSError: for one that cannot be read.
        ValueError: as parse() does, with the path.
    """
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {where}{key}; there are: {', '.join(known)}")


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be a table: [{key}]")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _latency(table: Mapping[str, Any], where: str, default: float) -> float:
    value = table.get("latency_us", default)
    if not _is_number(value) or value < 0:
        raise ValueError(f"{where}latency_us is {value!r}: expected a number of microseconds")
    return float(value)


def _rate(table: Mapping[str, Any], key: str, where: str, default: float) -> float:
    value = table.get(key, default)
    bytes_per_s = _bytes_per_s(value)
    if bytes_per_s is None or not 0 < bytes_per_s < math.inf:
        raise ValueError(
            f'{where}{key} is {value!r}: expected a rate such as "200mbit", "1gbit" or "12.5MB/s", '
            "or a number of bytes per second above 0"
        )
    return bytes_per_s


def _bytes_per_s(value: Any) -> float | None:
    if _is_number(value):
        return float(value)
    if not isinstance(value, str):
        return None
    in_bits = _BITS.fullmatch(value.strip())
    found = in_bits or _BYTES.fullmatch(value.strip())
    if not found:
        return None
    try:
        number = float(found[1])
    except ValueError:  # "1.2.3"
        return None
    return number * _POWERS[found[2].lower()] / (8 if in_bits else 1)
