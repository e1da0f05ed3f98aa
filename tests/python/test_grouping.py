# SPDX-License-Identifier: Apache-2.0
"""Which workers form a group, by times, hosts and links; and by what a group's rate is multiplied."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
from braid import _machine
from braid._machine import host_identity
from braid.strategies.hybrid.grouping import by_host, by_time, checked, in_words
from braid.strategies.hybrid.options import GroupOptions, shards_of
from braid.strategies.hybrid.places import Place, seconds_between
from braid.strategies.hybrid.step_times import StepTimes

pytestmark = pytest.mark.unit

ONE_HOST = ["a"] * 8


@pytest.mark.parametrize(
    ("times", "hosts", "expected"),
    [
        ([0.25, 0.25, 0.5, 1.0], "aaaa", [[0, 1], [2], [3]]),
        ([1.0, 0.5, 0.25, 0.25], "aaaa", [[0], [1], [2, 3]]),
        ([0.5, 0.5, 0.5], "aaa", [[0, 1, 2]]),
        ([0.5, 0.5, 0.5], "aba", [[0, 2], [1]]),
        ([0.25, 0.5, 0.25, 0.5], "aabb", [[0], [1], [2], [3]]),
        ([1.0, 1.14, 1.16, 1.3], "aaaa", [[0, 1], [2, 3]]),  # relative to the group's fastest
        ([1.0, 1.15], "aa", [[0, 1]]),
        ([0.7], "a", [[0]]),
        ([0.7, math.inf, math.inf], "aaa", [[0], [1, 2]]),
        ([0.0, 0.0, 0.1], "aaa", [[0, 1], [2]]),
    ],
)
def test_by_time(times: list[float], hosts: str, expected: list[list[int]]) -> None:
    assert by_time(times, hosts) == expected


def test_jitter_moves_nobody() -> None:
    chance = random.Random(3)
    for _ in range(200):
        times = [t * chance.uniform(0.96, 1.04) for t in (0.25, 0.25, 0.5, 1.0, 0.5)]
        assert by_time(times, ONE_HOST[:5]) == [[0, 1], [2, 4], [3]]


def test_each_worker_has_one_group_that_keeps_the_bound() -> None:
    chance = random.Random(4)
    for _ in range(200):
        times = [chance.choice([0.1, 0.11, 0.12, 0.13, 0.2, 0.3]) for _ in range(8)]
        hosts = [chance.choice("ab") for _ in range(8)]
        groups = by_time(times, hosts)
        assert sorted(itertools.chain(*groups)) == list(range(8))
        for group in groups:
            assert len({hosts[worker] for worker in group}) == 1
            assert max(times[w] for w in group) <= 1.15 * min(times[w] for w in group)


def test_links_between_hosts() -> None:
    def links(seconds: float) -> list[list[float]]:
        return [[0.0 if i == j else seconds for j in range(3)] for i in range(3)]

    hosts, times = "abc", [1.0, 1.0, 1.0]
    assert by_time(times, hosts, links(0.14)) == [[0, 1, 2]]
    assert by_time(times, hosts, links(0.16)) == [[0], [1], [2]]
    assert by_time(times, hosts, None) == [[0], [1], [2]]
    one_way = links(0.01)
    one_way[2][0] = 9.0  # a slow direction is enough, and one bad pair
    assert by_time(times, hosts, one_way) == [[0, 1], [2]]
    assert by_time(times, "aaa", links(9.0)) == [[0, 1, 2]]


def test_by_host() -> None:
    assert by_host(["b", "a", "b", "c"]) == [[0, 2], [1], [3]]


def test_named_groups() -> None:
    assert checked([[3, 2], [1, 0]], 4) == [[0, 1], [2, 3]]
    assert in_words([[0, 1], [2]]) == "0+1/2"
    for groups, why in [
        ([[0, 1], [1, 2]], r"groups=0\+1/1\+2: rank 1 is there twice; put each rank into one group"),
        ([[0, 1, 1], [0, 2]], "ranks 0, 1 are there twice"),
        ([[0]], r"ranks 1, 2 are in no group; a rank alone is a group of one"),
        ([[0, 1, 2, 3]], "rank 3 is not among the ranks 0 to 2"),
        ([[0, 1, 2], []], "a group is empty"),
    ]:
        with pytest.raises(ValueError, match=why):
            checked(groups, 3)


@pytest.mark.parametrize(
    ("options", "servers", "kind", "why"),
    [
        ({"groups": "hosts"}, None, ValueError, "groups='hosts': say 'auto', 'host', or lists of ranks"),
        ({"groups": 3}, None, TypeError, "groups=3: give lists of ranks, such as"),
        ({"groups": [0, 1]}, None, TypeError, "give lists of ranks"),
        ({"groups": [["0", "1"]]}, None, TypeError, "give lists of ranks"),
        ({"groups": [[0]]}, None, ValueError, "rank 1 is in no group"),
        ({"measure_steps": 1}, None, ValueError, "measure_steps=1: a whole number, at least 2"),
        ({"base_workers": 0}, None, ValueError, "base_workers=0: a whole number, at least 1"),
        ({"warmup_steps": 1.5}, None, ValueError, "warmup_steps=1.5: a whole number, at least 0"),
        ({"rate_rule": "square"}, None, ValueError, "rate_rule='square': there are linear, sqrt, none"),
        ({"groups": "auto"}, [0], ValueError, "servers= names speakers, and groups='auto' has none"),
        ({"groups": [[0, 1]]}, [1], ValueError, r"rank 1 speaks for no group, so it cannot be a server.* are 0$"),
    ],
)
def test_options_that_make_no_sense(
    options: dict[str, Any], servers: list[int] | None, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why) as caught:
        GroupOptions(**options).check(2, servers)
    assert "\n" not in str(caught.value)


def test_servers_are_the_shards_of_their_groups() -> None:
    assert shards_of([4, 0], [[0, 1], [2, 3], [4]]) == [2, 0]


@pytest.mark.parametrize(("rule", "full"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)])
def test_the_factor_of_the_rate(rule: str, full: float) -> None:
    options = GroupOptions(rate_rule=rule, base_workers=2, warmup_steps=4)
    found = [options.factor(8, step) for step in range(6)]
    assert found == pytest.approx([1 + (full - 1) * step / 4 for step in range(4)] + [full, full])
    assert GroupOptions(rate_rule="linear").factor(3, 0) == 3.0


def test_links_of_places() -> None:
    elements = 1000
    stated = [Place("a", (1e-3, 1e-6, 2e-6), 9.0), Place("b", (1e-3, 5e-6, 1e-6), 9.0)]
    seconds = seconds_between(stated, elements)
    assert seconds is not None
    assert seconds[0][1] == pytest.approx(1e-3 + 4000 * 1e-6)
    assert seconds[1][0] == pytest.approx(1e-3 + 4000 * 5e-6)
    assert seconds_between([Place("a", None, 0.5), Place("b", None, 0.6)], elements)[0][1] == 0.6
    assert seconds_between([Place("a", None, 0.5), Place("b")], elements) is None


def test_which_host_this_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BRAID_HOST", raising=False)
    real = host_identity()
    assert real == host_identity()
    monkeypatch.setenv("BRAID_HOST", "one")
    assert host_identity() == "set:one"
    monkeypatch.delenv("BRAID_HOST")
    (tmp_path / "boot").write_text("another boot\n")
    monkeypatch.setattr(_machine, "_BOOT_ID", tmp_path / "boot")
    assert host_identity() != real  # the same name of the host is not enough
    monkeypatch.setattr(_machine, "_BOOT_ID", tmp_path / "none")
    assert host_identity()


def test_step_times(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 11.0, 20.0, 21.5, 30.0, 90.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    times = StepTimes()
    times.end()  # before the first exchange nothing is known
    assert times.median_s() == math.inf
    for _ in range(3):
        times.begin()
        times.end()
    assert times.median_s() == 1.5
