# SPDX-License-Identifier: Apache-2.0
"""The key-value server without its sockets: bytes in, bytes out, and a clock that the caller reads.

Everything that a client can make the server keep has a limit: connections, unfinished requests, keys and values,
answers that nobody takes, and the time for each of them. `Limits` has the numbers. This file is longer than most,
because the rules of a conversation are easier to read in one place.
"""

import heapq
import hmac
import itertools
import math
from dataclasses import dataclass
from enum import Enum, auto

from braid._array.rendezvous.crowds import Crowd
from braid._array.rendezvous.protocol import (
    FAMILY,
    GET,
    GREETING,
    LONGEST_WAIT_S,
    MOST_KEY_BYTES,
    MOST_VALUE_BYTES,
    NONE,
    REFUSED,
    REPLY,
    REQUEST,
    SET,
    TOKEN_BYTES,
    VALUE,
)

_HELLO_BYTES = len(GREETING) + TOKEN_BYTES
_STALE_TIMERS = 64


@dataclass(frozen=True)
class Limits:
    """The most that a server keeps, and the longest that it waits."""

    clients: int = 4096  # connections, including strangers
    strangers: int = 256  # connections that have not yet greeted
    value_bytes: int = 256 << 20  # all keys and values, and `key_cost_bytes` per key
    key_cost_bytes: int = 256
    unfinished_bytes: int = 64 << 20  # all requests that have not fully arrived
    greeting_s: float = 10.0
    request_s: float = 30.0  # from the first byte of a request to its last
    answer_s: float = 30.0  # until the client has taken the whole answer


class Phase(Enum):
    """The state of a conversation."""

    GREETING = auto()
    ASKING = auto()  # there is no request, or a part of its head
    BODY = auto()  # the head is there; key and value are not complete
    WAITING = auto()  # the key does not exist yet
    ANSWERING = auto()  # the client has not taken all of the answer
    CLOSED = auto()


class Session:
    """One client's conversation. The owner of the connection reads `output`, `wanted` and `phase`."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.phase = Phase.GREETING
        # The most bytes that take() accepts now. While the client waits it is 1, to notice a hang-up.
        self.wanted = _HELLO_BYTES
        self.output: list[memoryview] = []
        self.held = bytearray()  # the bytes of an unfinished message
        self.head: tuple[bytes, int, float] = (b"", 0, 0.0)  # which, length of the key, seconds to wait
        self.key = b""  # the key that it waits for
        self.deadline = math.inf
        self.timer = math.inf  # the time of the timer that counts; others of this session are stale
        self.greeted = False  # the server has answered its greeting
        self.leaves = False  # the conversation ends after this answer
        self.crowd: Crowd[Session] | None = None


class Board:
    """All keys and all conversations of a server. For one thread."""

    def __init__(self, token: bytes, limits: Limits) -> None:
        """Begin with no key and no client. Clients must know the `token`."""
        self._hello = GREETING + token
        self.limits = limits
        self.values: dict[bytes, bytes] = {}
        self.value_bytes = 0  # as `Limits.value_bytes` counts them
        self.unfinished_bytes = 0
        self.evicted = 0  # the number of strangers that were closed to make room
        self.refused = 0  # the number of values for which there was no room
        self._strangers: Crowd[Session] = Crowd()
        self._idle: Crowd[Session] = Crowd()
        self._busy: Crowd[Session] = Crowd()
        self._waiting: dict[bytes, dict[Session, None]] = {}
        self._timers: list[tuple[float, int, Session]] = []
        self._numbers = itertools.count()
        self._touched: dict[Session, None] = {}

    @property
    def clients(self) -> int:
        """The number of open conversations."""
        return self._strangers.count + self._idle.count + self._busy.count

    @property
    def strangers(self) -> int:
        """The number of open conversations without a greeting yet."""
        return self._strangers.count

    def crowded_source(self) -> str:
        """Return the source that has most strangers."""
        oldest = self._strangers.oldest()
        return oldest.source if oldest is not None else ""

    # ---- calls from the owner of the connections

    def open(self, source: str, now: float) -> Session:
        """Begin a conversation. If there is no room, end another one first."""
        while self._strangers.count >= self.limits.strangers or self.clients >= self.limits.clients:
            self.evict()
        session = Session(source)
        self._move(session, self._strangers)
        self._due(session, now + self.limits.greeting_s)
        self._touched[session] = None
        return session

    def evict(self, *, strangers_only: bool = False) -> bool:
        """End the least important conversation. Return False if there is none.

        Strangers go first, then clients without a request. A client of braid connects again when it needs to, and
        repeats its request. So even waiting clients may go: with more ranks than connections all ranks advance.
        """
        for crowd in (self._strangers,) if strangers_only else (self._strangers, self._idle, self._busy):
            session = crowd.oldest()
            if session is not None:
                self.evicted += crowd is self._strangers
                self.close(session)
                return True
        return False

    def close(self, session: Session) -> None:
        """End a conversation. A second call does nothing."""
        if session.phase is Phase.CLOSED:
            return
        self._forget_held(session)
        self._stop_waiting(session)
        if session.crowd is not None:
            session.crowd.remove(session.source, session)
            session.crowd = None
        session.phase, session.wanted, session.output = Phase.CLOSED, 0, []
        session.deadline = session.timer = math.inf  # its timer is stale
        self._touched[session] = None

    def take(self, session: Session, data: bytes, now: float) -> None:
        """Accept bytes from a client. REQUIRES: 0 < len(data) <= session.wanted."""
        if session.phase is Phase.WAITING:
            self.close(session)  # it sends before it has an answer
            return
        if session.phase is Phase.ASKING and not session.held:
            self._move(session, self._busy)
            self._due(session, now + self.limits.request_s)
        session.held += data
        self.unfinished_bytes += len(data)
        session.wanted -= len(data)
        if session.phase is Phase.GREETING:
            self._greet(session, now)
        elif session.wanted == 0:
            if session.phase is Phase.ASKING:
                self._read_head(session)
            if session.phase is Phase.BODY and session.wanted == 0:
                self._answer(session, now)
        while self.unfinished_bytes > self.limits.unfinished_bytes:
            victim = next((other for other in self._busy if other.held), None)
            if victim is None:
                break  # only greetings, which are short
            self.close(victim)

    def sent(self, session: Session, count: int, now: float) -> None:
        """Note that `count` bytes of `output` were sent."""
        while session.output and count >= len(session.output[0]):
            count -= len(session.output.pop(0))
        if session.output:
            session.output[0] = session.output[0][count:]
            return
        if session.leaves:
            self.close(session)
        elif session.phase is Phase.ANSWERING:
            session.phase, session.wanted, session.deadline = Phase.ASKING, REQUEST.size, math.inf
            self._move(session, self._idle)
            self._touched[session] = None

    def expire(self, now: float) -> None:
        """Handle all timers up to `now`: end late clients, and answer clients that have waited long enough."""
        while self._timers and self._timers[0][0] <= now:
            when, _, session = heapq.heappop(self._timers)
            if when != session.timer:
                continue  # stale
            session.timer = math.inf
            if session.deadline > now:
                self._due(session, session.deadline)
            elif session.phase is Phase.WAITING:
                self._stop_waiting(session)
                self._reply(session, NONE, b"", now)
            else:
                self.close(session)

    def next_timer(self) -> float:
        """Return the time of the next timer, for expire(); infinity if there is none."""
        return self._timers[0][0] if self._timers else math.inf

    def touched(self) -> list[Session]:
        """Return the conversations that have output, ended or changed since the last call."""
        touched, self._touched = list(self._touched), {}
        return touched

    # ---- one conversation

    def _greet(self, session: Session, now: float) -> None:
        greeting = bytes(session.held[: len(GREETING)])
        if not greeting.startswith(FAMILY[: len(greeting)]):
            self.close(session)
        elif session.wanted == 0:
            foreign = greeting != GREETING
            if not foreign and not hmac.compare_digest(bytes(session.held), self._hello):
                self.close(session)
                return
            session.greeted = True
            session.leaves = foreign  # but it gets our greeting, which has our version
            self._send(session, [GREETING], now)

    def _read_head(self, session: Session) -> None:
        kind, key_bytes, value_bytes, wait_s = REQUEST.unpack(session.held)
        wrong = kind not in (SET, GET) or key_bytes > MOST_KEY_BYTES or value_bytes > MOST_VALUE_BYTES
        if wrong or (kind == GET and value_bytes) or math.isnan(wait_s):
            self.close(session)
            return
        self._forget_held(session)
        session.head = kind, key_bytes, min(max(0.0, wait_s), LONGEST_WAIT_S)
        session.phase, session.wanted = Phase.BODY, key_bytes + value_bytes

    def _answer(self, session: Session, now: float) -> None:
        kind, key_bytes, wait_s = session.head
        key, value = bytes(session.held[:key_bytes]), bytes(session.held[key_bytes:])
        if kind == SET:
            self._set(session, key, value, now)
        elif key in self.values:
            self._reply(session, VALUE, self.values[key], now)
        elif wait_s == 0:
            self._reply(session, NONE, b"", now)
        else:
            self._forget_held(session)
            session.phase, session.wanted, session.key = Phase.WAITING, 1, key
            self._waiting.setdefault(key, {})[session] = None
            self._due(session, now + wait_s)

    def _set(self, session: Session, key: bytes, value: bytes, now: float) -> None:
        old = self.values.get(key)
        more = len(value) - len(old) if old is not None else self.limits.key_cost_bytes + len(key) + len(value)
        if self.value_bytes + more > self.limits.value_bytes:
            self.refused += 1
            reason = f"it is full: it keeps {self.limits.value_bytes >> 20} MiB of keys and values at most"
            self._reply(session, REFUSED, reason.encode(), now)
            return
        self.values[key] = value
        self.value_bytes += more
        self._reply(session, NONE, b"", now)
        for other in list(self._waiting.get(key, ())):
            self._stop_waiting(other)
            self._reply(other, VALUE, value, now)

    def _reply(self, session: Session, which: int, value: bytes, now: float) -> None:
        self._send(session, [REPLY.pack(which, len(value)), value], now)

    def _send(self, session: Session, parts: list[bytes], now: float) -> None:
        # The value is not copied: there is one copy, however many clients do not take it.
        self._forget_held(session)
        session.output = [memoryview(part) for part in parts if part]
        session.phase, session.wanted = Phase.ANSWERING, 0
        self._move(session, self._busy)
        self._due(session, now + self.limits.answer_s)
        self._touched[session] = None

    # ---- the state that is kept for a conversation

    def _forget_held(self, session: Session) -> None:
        self.unfinished_bytes -= len(session.held)
        session.held = bytearray()

    def _stop_waiting(self, session: Session) -> None:
        if session.phase is not Phase.WAITING:
            return
        waiting = self._waiting[session.key]
        del waiting[session]
        if not waiting:
            del self._waiting[session.key]
        session.key = b""

    def _move(self, session: Session, crowd: Crowd[Session]) -> None:
        if session.crowd is crowd:
            return
        if session.crowd is not None:
            session.crowd.remove(session.source, session)
        crowd.add(session.source, session)
        session.crowd = crowd

    def _due(self, session: Session, when: float) -> None:
        # expire() sets a timer again if it rings too early. So most requests need no timer of their own.
        session.deadline = when
        if when >= session.timer:
            return
        session.timer = when
        heapq.heappush(self._timers, (when, next(self._numbers), session))
        if len(self._timers) > 2 * self.clients + _STALE_TIMERS:
            self._timers = [entry for entry in self._timers if entry[0] == entry[2].timer]
            heapq.heapify(self._timers)
