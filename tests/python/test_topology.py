# SPDX-License-Identifier: Apache-2.0
"""Cluster files: what they mean, and what is said of wrong ones."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from braid._topology import ClusterFile, Rate, load, parse

pytestmark = pytest.mark.unit

EXAMPLE = """
latency_us = 50
rate = "1gbit"

[within]
latency_us = 2
rate = "50gbit"

[hosts.slow]
up = "200mbit"
down = "400mbit"

[hosts."a.b"]
down = 25e6
"""


def test_the_example_means_what_it_says() -> None:
    cluster = parse(EXAMPLE)
    assert cluster.latency_us == 50
    assert cluster.rate == 125e6
    assert cluster.within_latency_us == 2
    assert cluster.within_rate == 6.25e9
    assert cluster.rate_of("slow") == Rate(25e6, 50e6)
    assert cluster.rate_of("a.b") == Rate(125e6, 25e6)
    assert cluster.rate_of("other") == Rate(125e6, 125e6)
    with pytest.raises(FrozenInstanceError):
        cluster.rate = 1.0  # type: ignore[misc]


def test_everything_may_be_left_out() -> None:
    assert parse("") == ClusterFile()
    assert parse("[hosts.one]").rate_of("one") == ClusterFile().rate_of("two")


@pytest.mark.parametrize(
    ("written", "bytes_per_s"),
    [
        ('"200mbit"', 25e6),
        ('"1gbit"', 125e6),
        ('"1 Gbit/s"', 125e6),
        ('"2.5Gbps"', None),
        ('"2.5gbitps"', 312.5e6),
        ('"800bit"', 100),
        ('"12.5MB/s"', 12.5e6),
        ('"12.5 kB/s"', 12.5e3),
        ('"7B/s"', 7),
        ("125000000", 125e6),
        ("1.25e8", 125e6),
        ('"12.5Mb/s"', None),
        ('"12.5MB"', None),
        ('"1.2.3gbit"', None),
        ('"-1gbit"', None),
        ('"gbit"', None),
        ('"0mbit"', None),
        ("0", None),
        ("-5", None),
        ("inf", None),
        ("nan", None),
        ("true", None),
        ("[1]", None),
    ],
)
def test_rates(written: str, bytes_per_s: float | None) -> None:
    if bytes_per_s is not None:
        assert parse(f"rate = {written}").rate == pytest.approx(bytes_per_s)
        return
    with pytest.raises(ValueError, match=r'^rate is .*: expected a rate such as "200mbit"'):
        parse(f"rate = {written}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency = 5", "unknown key latency; there are: latency_us, rate, within, hosts"),
        ("[within]\nup = 5", "unknown key within.up; there are: latency_us, rate"),
        ("[hosts.slow]\nrate = 5", "unknown key hosts.slow.rate; there are: up, down"),
        ("[hosts]\nslow = 5", "hosts.slow must be a table"),
        ("within = 5", "within must be a table"),
        ("hosts = []", "hosts must be a table"),
        ("latency_us = -1", "latency_us is -1: expected a number of microseconds"),
        ('latency_us = "2ms"', "latency_us is '2ms'"),
        ("[within]\nlatency_us = true", "within.latency_us is True"),
        ('[hosts.slow]\nup = "fast"', "hosts.slow.up is 'fast': expected a rate"),
        ("rate = ", "not TOML: "),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        parse(text)


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(EXAMPLE)
    assert load(path) == parse(EXAMPLE)
    path.write_text("rat = 1")
    with pytest.raises(ValueError, match=r"cluster\.toml: unknown key rat;"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.toml")


def test_the_text_of_the_core_has_a_card_for_unusual_hosts() -> None:
    text = parse(EXAMPLE).core_text(["usual", "usual", "slow", "other", "slow"])
    assert text == (
        "topology hosts=0,0,1,2,1\n"
        "within alpha_s=2e-06 beta_s_per_byte=1.6e-10\n"
        "between alpha_s=5e-05 beta_s_per_byte=8e-09\n"
        "card 1 up_s_per_byte=4e-08 down_s_per_byte=2e-08\n"
    )
