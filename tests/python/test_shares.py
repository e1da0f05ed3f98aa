# SPDX-License-Identifier: Apache-2.0
"""Shares of servers by the rates of network cards."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from braid._array.servers import shares
from braid._array.servers.shares import Host, agreed_shares, best_shares
from braid._errors import CommunicatorTimeoutError
from fake_service import FakeStore
from slowness import limit


def slowest(hosts: list[Host], found: list[float]) -> float:
    """Return the time of the card that takes longest."""
    count = sum(host.workers for host in hosts)
    return max(
        (host.workers * (1 - part) + (count - host.workers) * part) / host.rate
        for host, part in zip(hosts, found, strict=True)
    )


def test_one_worker_and_server_per_host_follow_the_closed_form() -> None:
    draw = random.Random(1)
    for _ in range(200):
        rates = [draw.uniform(0.2, 5) for _ in range(draw.randint(3, 9))]
        hosts = [Host(rate, 1, 1) for rate in rates]
        best = max(1 / min(rates), 2 * (len(rates) - 1) / sum(rates))
        found = best_shares(hosts)
        assert sum(found) == pytest.approx(1)
        assert min(found) >= 0
        assert slowest(hosts, found) == pytest.approx(best)
        if best > 1 / min(rates) * 1.001:
            assert found == pytest.approx([(best * rate - 1) / (len(rates) - 2) for rate in rates])


def test_servers_without_workers_follow_their_cards() -> None:
    hosts = [Host(100, 1, 0), Host(100, 1, 0), Host(100, 1, 0), Host(2, 0, 1), Host(6, 0, 1)]
    found = best_shares(hosts)
    assert found == pytest.approx([0, 0, 0, 0.25, 0.75])
    assert slowest(hosts, found) == pytest.approx(3 / 8)  # n S / (the sum of their rates)


def test_both_kinds_follow_the_closed_form() -> None:
    workers, alone = [1.0, 1.5, 2.0, 1.2], [3.0, 0.5]
    hosts = [Host(rate, 1, 1) for rate in workers] + [Host(rate, 0, 1) for rate in alone]
    best = max(1 / min(workers), 2 * 3 / (sum(workers) + 2 / 4 * sum(alone)))
    assert slowest(hosts, best_shares(hosts)) == pytest.approx(best)


def test_no_random_shares_are_better() -> None:
    draw = random.Random(2)
    for _ in range(100):
        hosts = [Host(draw.uniform(0.2, 5), draw.randint(0, 4), draw.randint(0, 2)) for _ in range(4)]
        hosts.append(Host(draw.uniform(0.2, 5), 1, 1))
        best = slowest(hosts, best_shares(hosts))
        for _ in range(100):
            guess = [draw.random() if host.servers else 0.0 for host in hosts]
            assert slowest(hosts, [part / sum(guess) for part in guess]) >= best * (1 - 1e-9)


def test_two_hosts_and_one_host() -> None:
    assert best_shares([Host(1, 1, 1), Host(3, 1, 1)]) == pytest.approx([0.25, 0.75])
    assert best_shares([Host(1, 4, 4)]) == [1.0]


def agree(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], servers: list[int], timeout_s: float = limit(20)
) -> list[Any]:
    """Return what members with cards of these rates agree on, each on a host of its own; rate 0: no file."""
    here = threading.local()

    class Card:
        problem = ""
        digest = "same"

        @property
        def up_s_per_byte(self) -> float:
            return 1 / rates[here.member]

        down_s_per_byte = 0.0

    monkeypatch.setattr(shares, "stated_links", lambda: Card() if rates[here.member] else None)
    monkeypatch.setattr(shares, "host_identity", lambda: f"host {here.member}")
    store = FakeStore()
    found: list[Any] = [None] * len(rates)

    def work(member: int) -> None:
        here.member = member
        try:
            place: tuple[Any, ...] = (store, "test", member, len(rates))
            found[member] = agreed_shares(*place, servers, timeout_s)
        except CommunicatorTimeoutError as error:
            found[member] = str(error)

    threads = [threading.Thread(target=work, args=(member,)) for member in range(len(rates))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_members_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    found = agree(monkeypatch, [1.0, 1.5, 2.0, 1.5], [0, 1, 2, 3])
    assert all(each == found[0] for each in found)
    assert found[0] == pytest.approx([0, 0.25, 0.5, 0.25])
    assert agree(monkeypatch, [1.0, 1.0, 4.0], [0, 2])[1] == pytest.approx([0, 1])
    assert agree(monkeypatch, [0.0, 0.0], [0, 1]) == [None, None]
    assert agree(monkeypatch, [1.0, 2.0], [0, 60_000]) == [None, None], "it has promised memory for an equal part"


def test_measured_cards_count_where_no_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that joins late has measured nothing, and is told the shares."""
    here = threading.local()
    monkeypatch.setattr(shares, "host_identity", lambda: f"host {here.member}")
    store, servers, rates = FakeStore(), [0, 1, 2], [1.0, 1.0, 4.0]
    found: dict[int, Any] = {}

    def work(member: int, rate: float | None) -> None:
        here.member = member
        found[member] = agreed_shares(store, "test", member, 3, servers, 5.0, rate)  # type: ignore[arg-type]

    threads = [threading.Thread(target=work, args=(member, rate)) for member, rate in enumerate([*rates, None])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[3] == pytest.approx([0, 0, 1])
    assert all(each == found[3] for each in found.values())


def test_who_joins_late_is_told_that_shares_are_equal() -> None:
    store = FakeStore()
    assert agreed_shares(store, "test", 0, 2, [0, 1], 1.0) is None  # type: ignore[arg-type]
    assert agreed_shares(store, "test", 5, 2, [0, 1], 1.0) is None  # type: ignore[arg-type]


def test_a_file_on_some_members_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = agree(monkeypatch, [1.0, 0.0, 1.0], [0, 1, 2], timeout_s=0.5)
    assert "member 1 has not said how fast its network card is within 0.5 s: set BRAID_LINKS" in found[0]
    assert found[1] is None


def test_a_wrong_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[betwixt]\n")
    monkeypatch.setenv("BRAID_LINKS", str(path))
    with pytest.raises(ValueError, match=r"wrong\.toml: betwixt is no key"):
        agreed_shares(FakeStore(), "test", 0, 2, [0, 1], 1.0)  # type: ignore[arg-type]
