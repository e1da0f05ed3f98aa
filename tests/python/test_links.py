# SPDX-License-Identifier: Apache-2.0
"""Files of links: what they mean, whose host is whose, and what is said of wrong ones."""

import socket
from pathlib import Path

import pytest
from braid import _core, _links
from braid._links import Card, LinksFile, load, parse, stated_links, topology_text
from braid.cli import main
from braid.cli.topo import Cluster, show

pytestmark = pytest.mark.unit

EXAMPLE = """
[between]
rate = "1gbit"
latency = "1.5ms"

[[host]]
name = "gpu-box"
up = "200mbit"

[[host]]
name = "10.0.0.7"
rate = "2.5 Gbit/s"

[[host]]
name = " Plain.example.org "
"""


def test_the_example_means_what_it_says() -> None:
    usual = Card(1e9, 1e9)
    assert parse(EXAMPLE) == LinksFile(
        1.5e-3,
        1e9,
        {"gpu-box": Card(2e8, 1e9), "10.0.0.7": Card(2.5e9, 2.5e9), "plain.example.org": usual},
    )


def test_what_is_left_out_is_what_is_assumed() -> None:
    latency_s, s_per_byte = _core.assumed_between
    assert parse("") == LinksFile(latency_s, 8 / s_per_byte)
    assert parse('[between]\nrate = "10mbit"') == LinksFile(latency_s, 1e7)


@pytest.mark.parametrize(
    ("written", "seconds"), [("50us", 5e-5), ("50 µs", 5e-5), ("1.5ms", 1.5e-3), ("0.001 s", 1e-3), ("10s", 10.0)]
)
def test_times(written: str, seconds: float) -> None:
    assert parse(f'[between]\nlatency = "{written}"').latency_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rate = ", "not TOML: "),
        ('rate = "1gbit"', "rate is no key that is known; there are: between, host"),
        ('[between]\nup = "1gbit"', "between.up is no key that is known; there are: rate, latency"),
        ('[[host]]\nname = "a"\nlatency = "1ms"', "host 'a': latency is no key that is known"),
        ("between = 5", "between must be a table"),
        ("[host]", r"host must be a list of tables: \[\[host\]\]"),
        ("host = [5]", "host must be a list of tables"),
        ('[[host]]\nup = "1gbit"', r"\[\[host\]\] number 1: name is None, expected"),
        ('[[host]]\nname = ""', r"\[\[host\]\] number 1: name is ''"),
        ("[[host]]\nname = 7", r"\[\[host\]\] number 1: name is 7"),
        ('[[host]]\nname = "a"\n[[host]]\nname = "A"', "host 'a' is there twice"),
        ('[[host]]\nname = "::0a"\n[[host]]\nname = "0::a"', "host '::a' is there twice"),
        ('[[host]]\nname = "127.0.0.1"', "host '127.0.0.1': every host has this address"),
        ('[[host]]\nname = "a"\nrate = "1gbit"\nup = "1gbit"', "host 'a': rate is both ways: expected it, or up"),
        ('[[host]]\nname = "a"\nup = "fast"', "host 'a': up is 'fast': expected a rate of 10kbit or more"),
        *(
            (f"[between]\nrate = {wrong}", "between.rate is .*: expected a rate of 10kbit or more, as in")
            for wrong in ("5", "true", '"0mbit"', '"-1gbit"', '"1gb"', '"100MB/s"', '"1"', '""', "[]", "{}")
        ),
        *(
            (f"[between]\nlatency = {wrong}", "between.latency is .*: expected a time above 0, at most 10s")
            for wrong in ("50", "true", '"0us"', '"-1us"', '"50"', '"1min"', '"11s"', '""', "[]")
        ),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        parse(text)


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(EXAMPLE)
    assert load(path) == parse(EXAMPLE)
    path.write_text("rat = 1")
    with pytest.raises(ValueError, match=r"net\.toml: rat is no key"):
        load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"net\.toml: .*utf-8"):
        load(path)
    with pytest.raises(ValueError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_equal_files_have_equal_digests() -> None:
    def digest(text: str) -> str:
        return parse(text).digest

    a, b = '[[host]]\nname = "a"\n', '[[host]]\nname = "b"\nup = "1mbit"\n'
    assert digest(a + b) == digest(f"# another order\n{b}{a}")
    assert len({digest(a), digest(b), digest(a + b), digest('[between]\nrate = "2gbit"')}) == 4


def names_here(monkeypatch: pytest.MonkeyPatch, hostname: str, names: list[str], own: str = "") -> list[str]:
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    monkeypatch.setattr(socket, "getfqdn", lambda: "box.example.org")
    monkeypatch.setenv("BRAID_HOST", own)
    return _links._names_here(dict.fromkeys(names, Card(1, 1)))


def test_a_host_is_found_by_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_here(monkeypatch, "Box", ["bo", "box", "boxer"]) == ["box"]
    assert names_here(monkeypatch, "box.example.org", ["box"]) == ["box"]
    assert names_here(monkeypatch, "box.example.org", ["box.example.com", "box.example.org"]) == [
        "box.example.org"
    ]
    assert names_here(monkeypatch, "box", ["box.example.com", "box.example.org"]) == ["box.example.org"]
    assert names_here(monkeypatch, "box", ["one", "box", "two"], own="Two") == ["two"]
    assert names_here(monkeypatch, "box", ["one", "box"], own="two") == ["box"]
    assert names_here(monkeypatch, "box", ["other", "192.0.2.1", "2001:db8::1"]) == []


def test_a_host_is_found_by_an_address() -> None:
    # All of 127/8 is here, though files may not name it.
    assert _links._is_local("127.0.0.1")
    assert not _links._is_local("192.0.2.1")
    assert not _links._is_local("name")


def test_what_the_core_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.toml"
    path.write_text('[[host]]\nname = "me"\nup = "80mbit"\n')
    for value in ("", "measure", "assume"):
        monkeypatch.setenv("BRAID_LINKS", value)
        assert stated_links() is None
    monkeypatch.setenv("BRAID_LINKS", str(path))
    monkeypatch.setenv("BRAID_HOST", "me")
    assert stated_links() == ("", load(path).digest, *_core.assumed_between, 1e-7, 8e-9)
    monkeypatch.setenv("BRAID_HOST", "other")
    assert stated_links() == ("", load(path).digest, *_core.assumed_between, 8e-9, 8e-9)
    path.write_text('[[host]]\nname = "me"\n[[host]]\nname = "here"\n')
    monkeypatch.delenv("BRAID_HOST")
    monkeypatch.setattr(_links, "_names_here", list)
    problem = stated_links()
    assert problem is not None
    assert problem.problem == f"BRAID_LINKS={path}: me and here are both this host: name it once"
    path.unlink()
    problem = stated_links()
    assert problem is not None
    assert problem.problem == f"BRAID_LINKS={path}: No such file or directory"


def test_the_topology_of_hosts_that_are_not_there() -> None:
    links = parse(EXAMPLE)
    cards = [*links.hosts.values(), links.usual]
    assert topology_text(links, cards, [2, 1, 0, 1]) == (
        "topology hosts=0,0,1,3\n"
        "within alpha_s=2e-06 beta_s_per_byte=1.5e-10\n"
        "between alpha_s=0.0015 beta_s_per_byte=8e-09\n"
        "card 0 up_s_per_byte=4e-08 down_s_per_byte=8e-09\n"
        "card 1 up_s_per_byte=3.2e-09 down_s_per_byte=3.2e-09\n"
    )


# ---- the commands that take one


def test_topo_shows_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.toml"
    path.write_text(EXAMPLE)
    assert main(["topo", "--links", str(path)]) == 0
    shown = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    rows = {row[0]: [word for word in row[1:] if word.isdigit()] for row in shown if len(row) > 3}
    assert rows["gpu-box"] == ["200", "1000"]
    assert rows["10.0.0.7"] == ["2500", "2500"]
    assert rows["any"] == ["1000", "1000"]
    assert main(["topo", "--links", str(path), "--ranks-per-host", "1,2,1", "--text"]) == 0
    assert capsys.readouterr().out.startswith("topology hosts=0,1,1,2\n")


@pytest.mark.parametrize("command", [["topo"], ["run"]])
def test_commands_refuse_wrong_files_before_anything_starts(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    path = tmp_path / "net.toml"
    path.write_text('[between]\nrate = "fast"')
    tail = [str(script)] if command == ["run"] else []
    for value, words in [
        (str(path), f"--links: {path}: between.rate is 'fast': expected a rate"),
        ("net.ini", "--links: 'net.ini' is no file of links: its name ends in .toml"),
        ("none.toml", "--links: none.toml: No such file"),
    ]:
        assert main([*command, "--links", value, *tail]) == 2
        assert capsys.readouterr().err.startswith(f"braid: {words}")


@pytest.mark.parametrize(("hosts", "says"), [("0", "one host with 1 rank:"), ("0,0", "one host with 2 ranks:")])
def test_topo_counts_the_ranks_of_one_host(hosts: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    rates = "alpha_s=1e-06 beta_s_per_byte=1e-10"
    show(Cluster.parse(f"topology hosts={hosts}\nwithin {rates}\nbetween {rates}\n"))
    assert capsys.readouterr().out.startswith(says)


def test_topo_says_what_cards_pass_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "topology hosts=0,1",
        "within alpha_s=2e-06 beta_s_per_byte=1.5e-10",
        "between alpha_s=5e-05 beta_s_per_byte=8e-08",
        "work int8 s_per_byte=1e-09",
    ]
    show(Cluster.parse("\n".join(lines)))
    assert "at once" not in capsys.readouterr().out
    show(Cluster.parse("\n".join([*lines[:3], "burst bytes=4096", *lines[3:]])))
    told = capsys.readouterr().out
    assert "pass 4096 bytes at once" in told
    assert "int8 1" in told


@pytest.mark.parametrize(
    ("hosts", "is_measured", "says"), [("0,1", True, 1), ("0,1", False, 0), ("0,1,2", True, 0)]
)
def test_topo_says_that_two_measured_hosts_limit_each_other(
    hosts: str, is_measured: bool, says: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"topology hosts={hosts}\nwithin alpha_s=1e-06 beta_s_per_byte=1e-10\n"
        "between alpha_s=5e-05 beta_s_per_byte=8e-09\n"
    )
    show(Cluster.parse(text), is_measured=is_measured)
    assert capsys.readouterr().out.count("limited by the other host") == says


def test_a_missing_file_is_told_with_the_place_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"^net\.toml: No such file or directory \(looked for {tmp_path}/net"):
        load("net.toml")
