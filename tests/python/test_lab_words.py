# SPDX-License-Identifier: Apache-2.0
"""What a lab is asked for, in words."""

import pytest
from braid._rates import rate_text
from braid.cli import main
from braid.cli.lab import _parse_event
from braid.lab import HostSpec, LabError, parse_hosts, parse_ranks_per_host, parse_rate
from braid.lab.namespaces import tbf

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "rate"),
    [("200mbit", 2e8), ("1gbit", 1e9), ("1.5Gbit/s", 1.5e9), (" 64 kbit ", 64e3), ("10000000bit", 1e7)],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(rate_text(rate)) == rate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "200",
        "-1gbit",
        "0mbit",
        "1tbit",
        "200mbyte",
        "9kbit",
        "1000001gbit",
        "9" * 400 + "gbit",
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="is no rate: expected"):
        parse_rate(text)


def test_hosts() -> None:
    assert parse_hosts("3x1gbit,1x200mbit") == [HostSpec(1e9, 1e9)] * 3 + [HostSpec(2e8, 2e8)]
    assert parse_hosts("1gbit") == [HostSpec(1e9, 1e9)]
    assert parse_hosts("2x1gbit/100mbit@50%, 10mbit@5%") == [HostSpec(1e9, 1e8, 0.5)] * 2 + [
        HostSpec(1e7, 1e7, 0.05)
    ]
    for host in parse_hosts("1gbit/100mbit@50%,10mbit"):
        assert parse_hosts(str(host)) == [host]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no hosts"),
        ("0x1gbit", "names no hosts"),
        ("65x1gbit", "names more than 64 hosts"),
        ("40x1gbit,25x1gbit", "names more than 64 hosts"),
        ("99999999999x1gbit", "names more than 64 hosts"),
        ("2x", "is no rate"),
        ("1gbit@0%", "names no hosts"),
        ("1gbit@101%", "names no hosts"),
        ("1gbit/", None),
        ("1gbit/fast", "is no rate"),
        ("2x200mbit;1x50mbit", "put commas between groups of hosts, as in"),
        ("2x200mbit 1x50mbit", "put commas between groups of hosts, as in"),
        ("2x200mbit, 0x50mbit", "names no hosts"),
    ],
)
def test_what_names_no_hosts_is_refused(text: str, says: str | None) -> None:
    if says is None:
        assert parse_hosts(text) == parse_hosts("1gbit")
        return
    with pytest.raises(LabError, match=says):
        parse_hosts(text)


def test_ranks_per_host() -> None:
    assert parse_ranks_per_host("2", 3) == [2, 2, 2]
    assert parse_ranks_per_host("2,0,1", 3) == [2, 0, 1]
    for text in ("", "two", "1,2", "0", "0,0,0", "1,-1,1"):
        with pytest.raises(LabError, match="ranks per host"):
            parse_ranks_per_host(text, 3)


@pytest.mark.parametrize(
    "text", ["5 h1 rate 100mbit", "0.5 h0 rate 1gbit/1mbit", "5 h1 cpu 50%", "8 h2 cut", "9 h2 mend", "1 h2 kill"]
)
def test_events(text: str) -> None:
    event = _parse_event(text, 3)
    assert event.at_s == float(text.split()[0])
    assert event.host == int(text.split()[1][1:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5 h1",
        "soon h1 cut",
        "5 h3 cut",
        "-1 h1 cut",
        "5 h1 dance",
        "5 h1 cut now",
        "5 h1 rate",
        "5 h1 cpu 0%",
    ],
)
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="--at"):
        _parse_event(text, 3)


@pytest.mark.parametrize(
    ("text", "hosts", "says"),
    [
        ("5 h9 kill", 2, "there is no host h9; there are h0, h1$"),
        ("5 h1 kill", 1, "there is no host h1; there is h0$"),
        ("5 h30 kill", 20, "there is no host h30; there are h0 to h19$"),
        ("-5 h1 kill", 2, "expected seconds from 0, got -5$"),
    ],
)
def test_the_hosts_that_there_are_are_named(text: str, hosts: int, says: str) -> None:
    with pytest.raises(LabError, match=says):
        _parse_event(text, hosts)


def test_a_script_without_python_is_told(tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["lab", "--hosts", "2x200mbit", "--", "train.py", "5"]) == 2
    assert capsys.readouterr().err == "braid: train.py is no program; did you mean `-- python train.py 5`?\n"


def test_a_bucket_holds_a_millisecond_and_two_packets() -> None:
    assert tbf(1e8) == ["tbf", "rate", "100000000bit", "burst", "12500", "limit", "274644"]
    assert tbf(1e10)[4:] == ["1250000", "limit", "13750000"]
    assert tbf(3e8)[4:] == ["131072", "limit", "506072"], "what TCP hands over at once is not cut"
    assert tbf(1e6)[4:] == ["3028", "limit", "265172"]
    assert tbf(1e8, 32768)[4:] == ["12500", "limit", "45268"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hosts", "warp9", "--", "true"],
        ["--ranks-per-host", "1,2", "--", "true"],
        ["--at", "later", "--", "true"],
    ],
)
def test_bad_words_end_the_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *arguments]) == 2
    assert capsys.readouterr().err.startswith("braid: ")


@pytest.mark.parametrize("command", [["lab"], ["topo"], ["bench", "all_reduce"]])
def test_help_can_be_read(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "--ranks-per" in capsys.readouterr().out
