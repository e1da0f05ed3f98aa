# SPDX-License-Identifier: Apache-2.0
"""Throws bytes at the conversations of the rendezvous server, over several connections at once.

    python tests/fuzz/rendezvous_fuzz.py FOUND tests/fuzz/corpus/rendezvous -max_total_time=600

Flags are libFuzzer's; the first folder, which must exist, gets the new inputs that are found. It needs atheris;
where that is missing, test_rendezvous_board.py plays generated inputs. An input is a list of moves; what follows a
move's first byte is its argument. Whatever the moves are: nothing is raised, all bounds hold, and an honest client
is served in the end.
"""

import math
import struct
import sys

from braid._array.rendezvous.board import Board, Limits, Phase, Session
from braid._array.rendezvous.protocol import GET, GREETING, NONE, REFUSED, REPLY, REQUEST, SET, VALUE

TOKEN = b"sixteen bytes...".ljust(16)[:16]
# Small, so that short inputs reach them.
LIMITS = Limits(
    clients=6,
    strangers=3,
    value_bytes=400,
    key_cost_bytes=16,
    unfinished_bytes=200,
    greeting_s=2,
    request_s=4,
    answer_s=4,
)
_HELLO_BYTES = len(GREETING) + len(TOKEN)
_SLOTS = 8
_WAITS_S = (0.0, 0.5, 3.0, -1.0, math.inf, math.nan, 1e300, 1e-300)


class Player:
    """A board, its clients, and a clock."""

    def __init__(self) -> None:
        self.board = Board(TOKEN, LIMITS)
        self.now = 1000.0
        self.slots: list[Session | None] = [None] * _SLOTS
        self.sessions: list[Session] = []

    def open(self, slot: int, source: str) -> Session:
        old = self.slots[slot]
        if old is not None:
            self.board.close(old)
        session = self.slots[slot] = self.board.open(source, self.now)
        self.sessions.append(session)
        return session

    def feed(self, session: Session, data: bytes) -> None:
        """Give bytes as a socket would: never more than are wanted."""
        while data and session.wanted > 0:
            part, data = data[: session.wanted], data[session.wanted :]
            self.board.take(session, part, self.now)

    def drain(self, session: Session) -> bytes:
        """Take the whole answer."""
        taken = b"".join(session.output)
        self.board.sent(session, len(taken), self.now)
        return taken

    def check(self) -> None:
        board = self.board
        self.sessions = [session for session in self.sessions if session.phase is not Phase.CLOSED]
        assert len(self.sessions) == board.clients <= LIMITS.clients
        strangers = [session for session in self.sessions if session.phase is Phase.GREETING]
        assert len(strangers) <= board.strangers <= LIMITS.strangers
        cost = sum(len(key) + len(value) + LIMITS.key_cost_bytes for key, value in board.values.items())
        assert cost == board.value_bytes <= LIMITS.value_bytes
        held = sum(len(session.held) for session in self.sessions)
        assert held == board.unfinished_bytes <= LIMITS.unfinished_bytes + LIMITS.strangers * _HELLO_BYTES
        assert len(board._timers) <= 2 * (LIMITS.clients + 1) + 64
        for session in self.sessions:
            self.check_session(session)
        for key, waiting in board._waiting.items():
            assert waiting
            assert key not in board.values
            assert all(session.phase is Phase.WAITING and session.key == key for session in waiting)

    def check_session(self, session: Session) -> None:
        assert session.wanted >= 0
        assert bool(session.output) == (session.phase is Phase.ANSWERING)
        assert bool(session.wanted) == (session.phase is not Phase.ANSWERING)
        # Whoever owes bytes or waits has a deadline, and a timer that rings no later.
        if not (session.phase is Phase.ASKING and not session.held):
            assert session.timer <= session.deadline < self.now + 3601

    def settle(self) -> None:
        """Let all deadlines pass. Then nobody is left but those who ask nothing."""
        for _ in range(3):
            self.now += 4000
            self.board.expire(self.now)
            for session in self.sessions:
                self.drain(session)
        self.check()
        assert all(session.phase is Phase.ASKING and not session.held for session in self.sessions)

    def serve_an_honest_client(self) -> None:
        client = self.open(0, "honest")
        self.feed(client, GREETING + TOKEN)
        assert self.drain(client) == GREETING
        self.feed(client, REQUEST.pack(SET, 1, 1, 0) + b"kv")
        which = self.drain(client)[0]
        assert which in (NONE, REFUSED)
        self.feed(client, REQUEST.pack(GET, 1, 0, 0) + b"k")
        answer = self.drain(client)
        assert answer == REPLY.pack(VALUE, 1) + b"v" or which == REFUSED
        self.check()


def play(data: bytes) -> None:
    """Play one input."""
    player, place = Player(), 0

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        return data[place - count : place]

    while place < len(data):
        move = take(1)[0]
        slot, argument = move >> 4 & 7, (take(1) or b"\0")[0]
        session = player.slots[slot]
        match move & 15:
            case 0:
                player.open(slot, f"source {argument % 4}")
            case 1 | 2 if session is not None:
                player.feed(session, take(argument))
            case 3 if session is not None:
                player.feed(session, (GREETING + TOKEN)[: argument or None])
            case 4 if session is not None:
                player.drain(session)
            case 5 if session is not None and session.output:
                player.board.sent(session, min(argument, len(session.output[0])), player.now)
            case 6:
                player.now += argument / 32
                player.board.expire(player.now)
            case 7 if session is not None:
                player.board.close(session)
            case 8 | 9 if session is not None:
                value = bytes(argument)
                player.feed(session, REQUEST.pack(SET, 1, len(value), 0) + take(1).ljust(1) + value)
            case 10 | 11 if session is not None:
                player.feed(session, REQUEST.pack(GET, 1, 0, _WAITS_S[argument % 8]) + take(1).ljust(1))
            case 12 if session is not None:
                player.feed(
                    session, struct.pack("!cIId", *(b"SG"[argument % 2 :][:1], argument << 14, argument << 16, 1))
                )
            case 13:
                player.board.touched()
            case 14:
                player.board.evict(strangers_only=bool(argument % 2))
        player.check()
    player.settle()
    player.serve_an_honest_client()


def main() -> None:
    import atheris

    atheris.instrument_func(play)
    atheris.Setup(sys.argv, play)
    atheris.Fuzz()


if __name__ == "__main__":
    try:
        import atheris
    except ImportError:
        sys.exit("this target needs atheris: pip install atheris")
    with atheris.instrument_imports(include=["braid._array.rendezvous.board", "braid._array.rendezvous.crowds"]):
        for name in [name for name in sys.modules if name.startswith("braid._array.rendezvous")]:
            del sys.modules[name]
        from braid._array.rendezvous.board import Board, Phase
    main()
