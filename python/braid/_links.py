# SPDX-License-Identifier: Apache-2.0
"""Links between hosts as a user states them, in TOML. BRAID_LINKS names the file.

    [between]               # what holds for hosts and directions that are not named below
    rate = "1gbit"
    latency = "50us"        # one way

    [[host]]
    name = "gpu-box"        # host name, an address of it, or BRAID_HOST's value
    up = "200mbit"          # what it sends to all other hosts together
    down = "1gbit"          # what it receives from them

All keys but the name may be left out. A host's `rate` stands for both `up` and `down`.
"""

import hashlib
import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from braid import _core
from braid._rates import parse_rate

WORDS = ("measure", "assume")  # the values of BRAID_LINKS that are not a file
SUFFIX = ".toml"

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_LONGEST_S = 10.0
_ANY_PORT = 9  # nothing is sent there


@dataclass(frozen=True)
class Card:
    """A host's network card, in bits per second."""

    up: float
    down: float


@dataclass(frozen=True)
class LinksFile:
    """The contents of a links file. Hosts are by name, in the order of the file."""

    latency_s: float
    rate: float  # bits per second
    hosts: Mapping[str, Card] = field(default_factory=dict)

    @property
    def usual(self) -> Card:
        """The card of a host that the file does not name."""
        return Card(self.rate, self.rate)

    @property
    def digest(self) -> str:
        """A hash that is equal for files with equal contents, even if they are written differently."""
        hosts = sorted((name, astuple(card)) for name, card in self.hosts.items())
        return hashlib.sha256(repr((self.latency_s, self.rate, hosts)).encode()).hexdigest()[:12]

    def card_here(self) -> Card:
        """Return the card of the host that this process runs on.

        Raises:
            ValueError: the file names this host twice.
        """
        names = _names_here(self.hosts)
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} are both this host: name it once")
        return self.hosts[names[0]] if names else self.usual


class Stated(NamedTuple):
    """The contents of a links file for the core. csrc/options/stated_links.h has the same fields."""

    problem: str
    digest: str = ""
    alpha_s: float = 0.0
    beta_s_per_byte: float = 0.0
    up_s_per_byte: float = 0.0
    down_s_per_byte: float = 0.0


def stated_links() -> Stated | None:
    """Read the file that BRAID_LINKS names, for this host; None if it names no file.

    A problem with the file is returned, not raised. The core sends it to all ranks, which would wait for this rank
    otherwise.
    """
    path = os.environ.get("BRAID_LINKS", "")
    if not path.endswith(SUFFIX):
        return None
    try:
        links = load(path)
        card = links.card_here()
    except ValueError as error:
        return Stated(f"BRAID_LINKS={path}: " + " ".join(str(error).removeprefix(f"{path}: ").split()))
    rates = (s_per_byte(rate) for rate in (links.rate, card.up, card.down))
    return Stated("", links.digest, links.latency_s, *rates)


def s_per_byte(bits_per_s: float) -> float:
    """Return the rate in the core's unit, seconds per byte."""
    return 8 / bits_per_s


def topology_text(links: LinksFile, cards: Sequence[Card], ranks_per_host: Sequence[int]) -> str:
    """Return the text form of a topology of hosts with these cards and numbers of ranks. No job is needed."""
    hosts = [host for host, ranks in enumerate(ranks_per_host) for _ in range(ranks)]
    rates = [(s_per_byte(cards[host].up), s_per_byte(cards[host].down)) for host in hosts]
    return _core.stated_topology(hosts, links.latency_s, s_per_byte(links.rate), rates)


def load(path: str | Path) -> LinksFile:
    """Read a file.

    Raises:
        ValueError: the file cannot be read, is not TOML, or has an unknown key or a wrong value. The message names
            the file and the key.
    """
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        looked = "" if Path(path).is_absolute() else f" (looked for {Path(path).absolute()})"
        raise ValueError(f"{path}: {error.strerror}{looked}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse(text: str) -> LinksFile:
    """Read the contents of a file.

    Raises:
        ValueError: as load(), but the message does not name the file.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    _check_keys(table, ("between", "host"), "")
    between = table.get("between", {})
    if not isinstance(between, dict):
        raise ValueError("between must be a table: [between]")
    _check_keys(between, ("rate", "latency"), "between.")
    assumed_s, assumed_s_per_byte = _core.assumed_between
    rate = _rate(between, "rate", "between.", 8 / assumed_s_per_byte)
    entries = table.get("host", [])
    if not isinstance(entries, list):
        raise ValueError("host must be a list of tables: [[host]]")
    hosts: dict[str, Card] = {}
    for number, entry in enumerate(entries, 1):
        name, card = _host(entry, number, rate)
        if name in hosts:
            raise ValueError(f"host {name!r} is there twice")
        hosts[name] = card
    return LinksFile(_latency(between, assumed_s), rate, hosts)


def _host(entry: Any, number: int, usual: float) -> tuple[str, Card]:
    if not isinstance(entry, dict):
        raise ValueError("host must be a list of tables: [[host]]")
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"[[host]] number {number}: name is {name!r}, expected a host name or an address")
    where = f"host {name!r}: "
    _check_keys(entry, ("name", "rate", "up", "down"), where)
    if "rate" in entry and ("up" in entry or "down" in entry):
        raise ValueError(f"{where}rate is both ways: expected it, or up and down")
    both = _rate(entry, "rate", where, usual)
    card = Card(_rate(entry, "up", where, both), _rate(entry, "down", where, both))
    name = name.strip().lower()
    if address := _address(name):
        if address.is_loopback or address.is_unspecified:
            raise ValueError(f"{where}every host has this address")
        name = address.compressed
    return name, card


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{where}{key} is no key that is known; there are: {', '.join(known)}")


def _rate(table: Mapping[str, Any], key: str, where: str, default: float) -> float:
    value = table.get(key)
    if value is None:
        return default
    try:
        return parse_rate(value)
    except (AttributeError, ValueError):
        raise ValueError(
            f'{where}{key} is {value!r}: expected a rate of 10kbit or more, as in "200mbit" or "1gbit"'
        ) from None


def _latency(between: Mapping[str, Any], default: float) -> float:
    value = between.get("latency")
    if value is None:
        return default
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(
            f'between.latency is {value!r}: expected a time above 0, at most 10s, as in "50us" or "1.5ms"'
        )
    return seconds


# ---- which host of the file this process runs on


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _names_here(names: Mapping[str, Card]) -> list[str]:
    own = os.environ.get("BRAID_HOST", "").strip().lower()
    if own in names:
        return [own]  # one machine may emulate several hosts, so its other names do not count
    hostname = socket.gethostname().lower()
    short = hostname.partition(".")[0]
    called = {hostname, short}
    # getfqdn() may ask a name server, so it is called only if the answer may matter.
    if hostname == short and any(name.startswith(f"{short}.") for name in names):
        called.add(socket.getfqdn().lower())
    return [name for name in names if name in called or _is_local(name)]


def _is_local(name: str) -> bool:
    # To an address of this machine the kernel sends from that same address.
    address = _address(name)
    if address is None:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((name, _ANY_PORT))
            return bool(probe.getsockname()[0] == name)
    except OSError:
        return False
