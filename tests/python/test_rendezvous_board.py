# SPDX-License-Identifier: Apache-2.0
"""The rendezvous server's conversations without sockets: what the fuzz target plays, and who must go first."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from braid._array.rendezvous.board import Board, Limits, Phase, Session
from braid._array.rendezvous.crowds import source_of
from braid._array.rendezvous.protocol import GET, GREETING, NO_TOKEN, REQUEST
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit

FUZZ = Path(__file__).parents[1] / "fuzz"


def fuzz_target() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rendezvous_fuzz", FUZZ / "rendezvous_fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TARGET = fuzz_target()


@pytest.mark.parametrize("seed", sorted((FUZZ / "corpus" / "rendezvous").iterdir()), ids=lambda seed: seed.name)
def test_the_corpus(seed: Path) -> None:
    TARGET.play(seed.read_bytes())


_MOVES = st.tuples(st.integers(0, 14), st.integers(0, 7), st.integers(0, 255), st.binary(max_size=20)).map(
    lambda move: bytes([move[1] << 4 | move[0], move[2]]) + move[3]
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=300), st.lists(_MOVES, max_size=40).map(b"".join)))
def test_whatever_is_sent_all_bounds_hold_and_honest_clients_are_served(data: bytes) -> None:
    TARGET.play(data)


@pytest.mark.parametrize(
    ("bound", "seed"),
    [
        ("value_bytes", "full"),
        ("unfinished_bytes", "half_requests"),
        ("strangers", "too_many"),
        ("clients", "too_many"),
    ],
)
def test_the_target_sees_a_bound_that_is_not_kept(monkeypatch: pytest.MonkeyPatch, bound: str, seed: str) -> None:
    board = TARGET.Board

    def careless(token: bytes, limits: Limits) -> Board:
        from dataclasses import replace

        return board(token, replace(limits, **{bound: 1 << 30}))

    monkeypatch.setattr(TARGET, "Board", careless)
    with pytest.raises(AssertionError):
        TARGET.play((FUZZ / "corpus" / "rendezvous" / seed).read_bytes())


def greeted(board: Board, source: str) -> Session:
    session = board.open(source, 0)
    board.take(session, GREETING + NO_TOKEN, 0)
    board.sent(session, len(GREETING), 0)
    assert session.phase is Phase.ASKING
    return session


def test_strangers_of_the_fullest_source_go_first_then_the_idle_then_those_who_wait() -> None:
    board = Board(NO_TOKEN, Limits(clients=6, strangers=4))
    waiting, idle = greeted(board, "a"), greeted(board, "b")
    board.take(waiting, REQUEST.pack(GET, 1, 0, 60), 0)
    board.take(waiting, b"k", 0)
    lone = board.open("c", 1)
    flood = [board.open("d", 2) for _ in range(20)]
    assert [session.phase is Phase.CLOSED for session in flood] == [True] * 17 + [False] * 3
    assert lone.phase is Phase.GREETING  # the flood has kept out itself alone
    assert (waiting.phase, idle.phase) == (Phase.WAITING, Phase.ASKING)
    for _ in range(4):
        board.evict()
    assert board.strangers == 0
    board.evict()
    assert (waiting.phase, idle.phase) == (Phase.WAITING, Phase.CLOSED)
    board.evict()
    assert waiting.phase is Phase.CLOSED
    assert not board.evict()
    assert board.clients == 0


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/a/path", "/a/path"),
    ],
)
def test_an_ipv6_network_is_one_source(address: str, source: str) -> None:
    assert source_of(address) == source
