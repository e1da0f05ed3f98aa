# SPDX-License-Identifier: Apache-2.0
"""Where shards lie, in words; and how worker 0 and processes of `braid serve` find each other, as threads."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from braid import CommunicatorTimeoutError, _machine, cli
from braid._array.servers import duty
from braid._array.servers.asking import engage
from braid._array.servers.duty import ParameterServer
from braid._array.servers.placement import FIRST_ALONE, items_of, placement_of
from braid._array.servers.terms import (
    ASKS,
    PROCESSES,
    RUNNING,
    Offer,
    Process,
    Vector,
    claim,
    pack,
    size_text,
    unpack,
)
from braid.cli.errors import CommandError
from braid.cli.serve import memory_of
from braid.strategies.text import read
from fake_service import FakeStore
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.unit

OFFER = Offer("t", "folder", "net", 3, 2, (Vector("parameters", 1000, "sgd:momentum", "sync"),), 20.0)
ONE_OFFER = OFFER.nbytes + 1000  # and not two


@pytest.mark.parametrize(
    ("servers", "members"),
    [
        (None, [0, 1, 2]),
        ("ranks", [0, 1, 2]),
        ([2, 0], [0, 2]),
        ("2+0", [0, 2]),
        ("serve:2", [FIRST_ALONE, FIRST_ALONE + 1]),
        ("ranks+serve:1", [0, 1, 2, FIRST_ALONE]),
        ([1, "serve:1"], [1, FIRST_ALONE]),
    ],
)
def test_places(servers: Any, members: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAID_PARAMETER_SERVERS", raising=False)
    assert placement_of(servers, 3).members == members


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_PARAMETER_SERVERS", "2")
    assert placement_of(None, 3).members == [FIRST_ALONE, FIRST_ALONE + 1]
    assert placement_of([0], 3).members == [0]
    monkeypatch.setenv("BRAID_PARAMETER_SERVERS", "0")
    assert placement_of(None, 2).members == [0, 1]


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ("serve:0", "'serve:0' is no place: give a rank, 'ranks', or 'serve:N' with N from 1 to 64"),
        ("both:2", "'both:2' is no place"),
        ("", "'' is no place"),
        (["0", 3], "give one or more different ranks from 0 to 2"),
        ("0+ranks", "give one or more different ranks from 0 to 2"),
        ("serve:40+serve:40", "at most 64 processes of `braid serve`"),
        ([None], "it takes a list of ranks, or text such as '0+2', 'serve:2', 'ranks+serve:2'"),
    ],
)
def test_no_such_place(servers: Any, why: str) -> None:
    with pytest.raises(ValueError, match="servers=") as caught:
        placement_of(servers, 3)
    assert why in str(caught.value)


def test_places_as_text() -> None:
    assert read("parameter_server:servers=ranks+serve:2")[1] == {"servers": ["ranks", "serve:2"]}
    assert items_of("0+2") == [0, 2]
    with pytest.raises(ValueError, match=r"servers=serve: expected ranks, 'ranks' or 'serve:N'"):
        read("parameter_server:servers=serve")


@pytest.mark.parametrize(("text", "nbytes"), [("8G", 8 << 30), ("1.5M", 3 << 19), ("64KiB", 65536), ("7", 7)])
def test_sizes(text: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "memory_bytes", lambda: {"total": 8 << 30})
    assert memory_of(text) == nbytes


def test_more_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "memory_bytes", lambda: {"total": 3 << 29})
    with pytest.raises(CommandError, match=r"--memory: 2G is more than the 1\.5G of this machine"):
        memory_of("2G")


@pytest.mark.parametrize("text", ["0", "much", "-1G", "1E"])
def test_no_such_size(text: str) -> None:
    with pytest.raises(CommandError, match="--memory"):
        memory_of(text)


def test_what_a_server_needs() -> None:
    def needed(**other: Any) -> int:
        vector = Vector("parameters", 1000, **{"rule": "sgd", **other})
        return replace(OFFER, vectors=(vector,)).nbytes

    # Half of the vector, and what rounding to cache lines adds; tests of the core count the vectors.
    half, plain = 4 * 517, needed()
    assert needed(rule="sgd:compensates") == plain + OFFER.workers * half
    assert needed(mode="sync") == needed(mode="quorum:at_least=1,grace_ms=1") == plain + half
    assert needed(rule="sgd:momentum") == plain + 4 * half  # in three whole shards on their way, too
    assert OFFER.workers * half * 3 // 2 < needed(pull_codec="fp16") - plain < OFFER.workers * half * 2
    assert needed(push_codec="int8") > plain + half
    assert needed(share=0.25) < plain < needed(share=0.75)
    assert needed(replicas=1) > plain + 3 * half
    with pytest.raises(ValueError, match="mode is 'syn'"):
        needed(mode="syn")
    small, large = replace(OFFER, vectors=OFFER.vectors + OFFER.vectors), OFFER.vectors[0].needs(3, 2)
    assert small.numbers_within(small.nbytes) == [500, 500]
    assert small.numbers_within(2 * large[0] - 1) == [0, 0]
    assert small.numbers_within(large[0] + large[1]) == [250, 250]
    assert Offer.of(OFFER.pack()) == OFFER
    assert [size_text(n) for n in (7, 2048, 3 << 29)] == ["7 bytes", "2 KiB", "1.5 GiB"]


def test_the_former_name_of_aggregators(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["server", "--join", "nowhere"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "braid: `braid server` is called `braid aggregator` now; a parameter server is `braid serve`"
    assert second.startswith("braid: --join: 'nowhere'")
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out.split()
    assert "aggregator" in shown
    assert "serve" in shown
    assert "server" not in shown


class Held(threading.Thread):
    """In place of a Duty: holds nothing, until the test lets it go."""

    made: list["Held"] = []  # noqa: RUF012

    def __init__(self, store: Any, offer: Offer, vector: Vector, member: int, *rest: Any) -> None:
        super().__init__(daemon=True)
        self.takes = rest[3]
        self.is_serving = self.has_served = self.takes is not None
        self.offer, self.member, self.over = offer, member, threading.Event()
        self.failure, self.updates, self.has_given = "", 9, False
        Held.made.append(self)

    def run(self) -> None:
        self.over.wait(limit(20))


@contextmanager
def server(store: FakeStore, name: str, memory: int = 1 << 20) -> Iterator[list[str]]:
    """A parameter server in a thread; yields what it says."""
    said: list[str] = []
    end = threading.Event()

    def look() -> None:
        process = ParameterServer(store, name, memory, "", said.append)
        while not end.wait(0.01):
            process.look()
        process.leave()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield said
    finally:
        end.set()
        thread.join(limit(10))


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    Held.made = []
    monkeypatch.setattr(duty, "Duty", Held)


def names(found: list[Process]) -> list[str]:
    return sorted(process.name for process in found)


def test_a_strategy_finds_its_servers() -> None:
    store = FakeStore()
    with server(store, "a") as a, server(store, "b") as b:
        assert names(engage(store, OFFER, 2, "here:1")) == ["a", "b"]
        eventually(lambda: len(Held.made) == 2)
        assert sorted(held.member for held in Held.made) == [FIRST_ALONE, FIRST_ALONE + 1]
        # Another one beside it. Then both are over.
        assert len(engage(store, replace(OFFER, token="u", folder="other"), 2, "here:1")) == 2
        eventually(lambda: len(Held.made) == 4)
        for held in Held.made:
            held.over.set()
        eventually(lambda: len(a) == len(b) == 4)
    assert a[2:] == ["strategy 'net' is over after 9 updates"] * 2


def test_one_that_is_not_taken_is_free_again() -> None:
    store = FakeStore()
    with server(store, "a", ONE_OFFER) as a, server(store, "b", ONE_OFFER) as b:
        eventually(lambda: f"{PROCESSES}/1" in store._values)  # who comes later joins by itself
        for number in range(3):
            offer = replace(OFFER, token=str(number), folder=str(number))
            assert len(engage(store, offer, 1, "here:1")) == 1
            eventually(lambda: len(Held.made) == 1)
            Held.made.pop().over.set()
            eventually(lambda number=number: sum(" is over after " in line for line in a + b) == number + 1)


def test_one_that_comes_late_joins_what_runs_as_far_as_its_memory_goes() -> None:
    store = FakeStore()
    with server(store, "a"):
        engage(store, OFFER, 1, "here:1")
        eventually(lambda: len(Held.made) == 1)
        Held.made = []
        fixed, _ = OFFER.vectors[0].needs(OFFER.workers, OFFER.servers)
        half_bytes = (fixed + OFFER.nbytes) // 2
        with server(store, "half", half_bytes) as half, server(store, "whole", OFFER.nbytes):
            eventually(lambda: len(Held.made) == 2)
            assert sorted(held.takes for held in Held.made) == [250, 500]
            for held in Held.made:
                held.over.set()
            eventually(lambda: half[-1:] == ["strategy 'net' is over after 9 updates"])


def test_too_little_memory_is_said_at_once() -> None:
    store = FakeStore()
    with server(store, "a", ONE_OFFER), server(store, "small", 1000):
        begun = time.monotonic()
        with pytest.raises(ValueError, match="the parameter server small has 1000 bytes of memory") as caught:
            engage(store, OFFER, 2, "here:1")
        assert time.monotonic() - begun < OFFER.patience_s / 2
        needed = size_text(OFFER.nbytes)
        assert f"needs {needed}: give it more with --memory, or start more servers" in str(caught.value)
        assert names(engage(store, replace(OFFER, token="u", folder="u"), 1, "here:1")) == ["a"]
    store = FakeStore()
    with server(store, "b", ONE_OFFER):
        engage(store, replace(OFFER, token="v", folder="v"), 1, "here:1")
        with pytest.raises(ValueError, match=f"{needed} beside the {needed} of other strategies"):
            engage(store, replace(OFFER, token="w", folder="w"), 1, "here:1")


def test_dead_and_gone_processes_do_not_count() -> None:
    store = FakeStore()
    claim(store, PROCESSES, pack({"id": "dead", "name": "dead"}))
    with server(store, "gone"):
        eventually(lambda: f"{PROCESSES}/1" in store._values)
    with server(store, "a"):
        assert names(engage(store, OFFER, 1, "here:1")) == ["a"]
        with pytest.raises(CommunicatorTimeoutError) as caught:
            engage(store, replace(OFFER, token="u", folder="u", patience_s=3), 2, "here:1")
    assert str(caught.value) == (
        "strategy 'net' waits for 2 parameter servers, and 1 came within 3 s; start them with "
        "`braid serve --rendezvous here:1`"
    )


def test_two_that_take_the_same_place_both_get_one() -> None:
    store = FakeStore()
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda value=value: taken.append(claim(store, "folder", value)))
        for value in (b"1", b"2", b"3")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 3
    assert {store.get(key, 0) for key in taken} == {b"1", b"2", b"3"}
    assert unpack(pack({"a": 1})) == {"a": 1}


class ChangingStore(FakeStore):
    """A store in which others write at the moment when somebody looks at a key: before it, or after it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def get(self, key: str, timeout_s: float) -> bytes:
        if key in self.before:
            self.before.pop(key)()
        try:
            return super().get(key, timeout_s)
        finally:
            if key in self.after:
                self.after.pop(key)()


def lone_server(store: FakeStore, memory: int) -> ParameterServer:
    return ParameterServer(store, "a", memory, "127.0.0.1", lambda line: None)  # type: ignore[arg-type]


def ask(store: FakeStore, server: ParameterServer, number: int, offer: Offer) -> None:
    store.set(f"{ASKS}/{server._process.id}/{number}", offer.pack())


def answer(store: FakeStore, server: ParameterServer, offer: Offer) -> Any:
    return unpack(store.get(f"{offer.folder}/serve/answer/{server._process.id}", 0))


def test_what_was_not_chosen_meanwhile_does_not_count() -> None:
    store = ChangingStore()
    server, second = lone_server(store, OFFER.nbytes), replace(OFFER, token="u", folder="u")
    ask(store, server, 0, OFFER)
    server.look()
    assert answer(store, server, OFFER) == {"why": ""}

    def go_elsewhere() -> None:
        store.set(f"{OFFER.folder}/serve/chosen", pack({"ids": []}))
        ask(store, server, 1, second)

    store.after[f"{OFFER.folder}/serve/chosen"] = go_elsewhere
    server.look()
    assert answer(store, server, second) == {"why": ""}


def test_who_was_asked_does_not_join_as_a_latecomer() -> None:
    store = ChangingStore()
    server = lone_server(store, OFFER.nbytes)

    def begin_without_it() -> None:
        ask(store, server, 0, OFFER)
        store.set(f"{RUNNING}/0", OFFER.pack())

    store.before[f"{RUNNING}/0"] = begin_without_it
    server.look()
    server.look()
    assert not any(strategy.is_late for strategy in server._strategies)
    assert answer(store, server, OFFER) == {"why": ""}


def test_who_was_held_up_looks_again_before_it_takes_a_place() -> None:
    store = ChangingStore()

    def be_held_up() -> None:
        store.set("folder/0", b"another's")
        threading.Event().wait(0.1)

    store.after["folder/0"] = be_held_up
    assert claim(store, "folder", b"mine") == "folder/1"  # type: ignore[arg-type]
    assert store.get("folder/0", 0) == b"another's"
