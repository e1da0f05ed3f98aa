# SPDX-License-Identifier: Apache-2.0
"""Random deaths, stops, cut links, departures and arrivals among the members of a parameter service.

    PYTHONPATH=tests:tests/multiprocess python tests/multiprocess/storm.py --seconds 600 --mode ssp --wire tcp

Workers push ones with the rule "add", so a value says how many updates it has. Checked all the time:

- all numbers of a shard are equal: values are whole;
- no value is larger than the pushes that were begun: nothing counts twice;
- none is smaller than the answered pushes of living workers, less those that they know to be lost;
- each living worker goes on; none ends with an error, unless it was cut off or stood still for too long;
- memory and descriptors of the members that live through all of it do not grow.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import storm_worker
from serving import start as start_server
from slowness import limit
from storm_worker import (
    ANSWERED,
    BEGUN,
    LEAST,
    LOST,
    MOST,
    OVER,
    RUNS,
    SERVERS,
    SILENCE_S,
    STATE,
    WORKERS,
    Ledger,
)
from waiting import eventually

MODES = ("async", "round_robin", "ssp", "sync", "quorum:at_least=1,grace_ms=20")
MOST_LATE = 40  # servers; a service takes 64
SETTLED_S = limit(8.0)
ROOM_BYTES, ROOM_FILES = 16 << 20, 24


def let_pass(seconds: float) -> None:
    """Wait for nothing: how long a storm pauses is part of it."""
    threading.Event().wait(seconds)


@dataclass
class Member:
    """A process: a worker by its number, or a server."""

    process: "subprocess.Popen[str]"
    number: int = -1
    may_fail: bool = False
    began: float = field(default_factory=time.monotonic)
    usage: tuple[int, int] = (0, 0)  # of memory and descriptors, once it has been there for SETTLED_S

    @property
    def name(self) -> str:
        return f"worker {self.number}" if self.number >= 0 else f"server {self.process.pid}"

    def now(self) -> tuple[int, int]:
        """Return the bytes of memory and the descriptors that it has."""
        base = Path(f"/proc/{self.process.pid}")
        pages = int((base / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE"), len(list((base / "fd").iterdir()))


@dataclass
class Storm:
    """The members, and what happens to them."""

    folder: Path
    mode: str
    wire: str
    chance: random.Random
    workers: list[Member] = field(default_factory=list)
    servers: list[Member] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    late_servers: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder)
        self.environment = {
            **os.environ,
            "BRAID_TRANSPORTS": self.wire,
            "BRAID_PEER_TIMEOUT": str(SILENCE_S),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        os.environ.update(self.environment)  # for servers

    def say(self, line: str) -> None:
        self.told.append(line)
        sys.stderr.write(f"storm: {line}\n")

    def begin_worker(self, number: int) -> None:
        command = [sys.executable, storm_worker.__file__, str(self.folder), str(number), self.mode]
        with (self.folder / f"said.{number}").open("w") as said:
            process = subprocess.Popen(command, env=self.environment, stderr=said, text=True)
        self.workers.append(Member(process, number))

    def begin_server(self) -> None:
        name = f"server{len(self.told)}.{len(self.servers)}"
        self.servers.append(Member(start_server(f"file://{self.folder}/meeting", name=name)))

    def await_steps(self, members: list[Member], limit_s: float) -> None:
        """Wait until each of these workers has made two steps more."""
        before = {member.number: int(self.ledger.rows[member.number, ANSWERED]) for member in members}

        def have_stepped() -> bool:
            self.check()
            return all(
                self.ledger.rows[number, ANSWERED] >= steps + 2
                for number, steps in before.items()
                if any(member.number == number for member in self.workers)
            )

        eventually(have_stepped, "steps of all workers", limit_s)

    def check(self) -> None:
        """Look for members that have ended, and compare values with pushes."""
        rows = np.array(self.ledger.rows)  # before the pushes that are under way are counted
        begun = int(self.ledger.rows[:, BEGUN].sum())
        if (most := int(rows[:, MOST].max())) > begun:
            raise AssertionError(f"a value counts {most} updates, and {begun} were begun")
        for members in (self.workers, self.servers):
            for member in list(members):
                if member.process.poll() is None:
                    continue
                members.remove(member)
                if not member.may_fail and member.process.returncode != 0:
                    raise AssertionError(f"{member.name} has ended: {self.said_by(member)}")

    def said_by(self, member: Member) -> str:
        if member.number >= 0:
            return (self.folder / f"said.{member.number}").read_text()
        assert member.process.stderr is not None
        return member.process.stderr.read()

    # Each returns how long the workers may take to go on.

    def kill_worker(self) -> float:
        victim = self.chance.choice(self.workers)
        self.say(f"kills {victim.name}")
        self._end(self.workers, victim)
        return 10

    def kill_server(self) -> float:
        victim = self.chance.choice(self.servers)
        self.say(f"kills {victim.name}")
        self._end(self.servers, victim)
        return 10

    def interrupt_server(self) -> float:
        victim = self.chance.choice(self.servers)
        self.say(f"interrupts {victim.name}")
        victim.process.send_signal(signal.SIGINT)
        eventually(lambda: victim.process.poll() is not None, f"{victim.name} to leave", 30)
        self.servers.remove(victim)
        return 10

    def begin_late_worker(self) -> float:
        number = max(WORKERS - 1, *(int(path.name[5:]) for path in self.folder.glob("said.*"))) + 1
        self.say(f"begins worker {number}")
        self.begin_worker(number)
        eventually(lambda: self.check() or self.ledger.rows[number, STATE] == RUNS, "the late worker", 60)
        return 10

    def begin_late_server(self) -> float:
        self.say("begins a server")
        self.late_servers += 1
        self.begin_server()
        return 20

    def stop_for_a_moment(self) -> float:
        victim = self.chance.choice(self.workers + self.servers)
        self.say(f"stops {victim.name} for a moment")
        self._stop(victim, SILENCE_S / 3)
        return 10

    def stop_for_long(self) -> float:
        """Stop a member for so long that it counts as dead. It may go on, or say why it ends."""
        victim = self.chance.choice(self.workers + self.servers)
        self.say(f"stops {victim.name} for long")
        victim.may_fail = True
        self._stop(victim, 3 * SILENCE_S)
        group = self.workers if victim in self.workers else self.servers
        # What it says is checked by tests. Here it must not do harm.
        let_pass(1)
        self._end(group, victim)
        return 10 + SILENCE_S

    def cut_a_link(self) -> float:
        victim, server = self.chance.choice(self.workers), self.chance.choice(self.servers)
        self.say(f"cuts {victim.name} off from {server.name}")
        victim.may_fail = True
        (self.folder / f"cut.{victim.number}").write_text(str(server.process.pid))
        let_pass(SILENCE_S / 2)
        self._end(self.workers, victim)  # it may wait for long before it gives up
        return 10

    def _stop(self, victim: Member, seconds: float) -> None:
        victim.process.send_signal(signal.SIGSTOP)
        let_pass(seconds)
        victim.process.send_signal(signal.SIGCONT)

    def _end(self, group: list[Member], victim: Member) -> None:
        victim.process.kill()
        victim.process.wait()
        group.remove(victim)
        if victim.number >= 0:
            self.ledger.rows[victim.number, STATE] = OVER

    def possible(self) -> list[Callable[[], float]]:
        """Return what can happen now: at least one worker and two servers remain."""
        events: list[Callable[[], float]] = [self.stop_for_a_moment]
        if len(self.workers) > 1:
            events += [self.kill_worker]
        if len(self.workers) < WORKERS + 1:
            events += [self.begin_late_worker]
        if len(self.servers) > SERVERS:
            events += [self.kill_server, self.interrupt_server]
        elif self.late_servers < MOST_LATE:
            events += [self.begin_late_server] * 3
        if len(self.workers) > 1 and len(self.servers) > SERVERS:
            events += [self.stop_for_long]
            # Modes with an order wait for the one that is cut off until it gives up.
            if self.wire == "tcp" and self.mode == "async":
                events += [self.cut_a_link]
        return events

    def rage(self, seconds: float) -> None:
        """Let things happen for so long."""
        for _ in range(SERVERS):
            self.begin_server()
        for number in range(WORKERS):
            self.begin_worker(number)
        eventually(lambda: self.check() or all(self.ledger.rows[:WORKERS, STATE] == RUNS), "the beginning", 120)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            allowed_s = self.chance.choice(self.possible())()
            self.await_steps(list(self.workers), allowed_s)
            for member in self.workers + self.servers:
                if member.usage == (0, 0) and time.monotonic() > member.began + SETTLED_S:
                    member.usage = member.now()
            let_pass(self.chance.uniform(0, 0.5))

    def calm_down(self) -> None:
        """End all workers, and compare the last values with what they did."""
        for member in self.workers + self.servers:
            before, after = member.usage, member.now()
            if before == (0, 0):
                continue
            if after[0] - before[0] > ROOM_BYTES or after[1] - before[1] > ROOM_FILES:
                raise AssertionError(f"{member.name} had {before} bytes and descriptors, and has {after} now")
        keeper = self.workers[0]
        living = [member.number for member in self.workers]
        (self.folder / "stop.new").write_text(str(keeper.number))
        (self.folder / "stop.new").rename(self.folder / "stop")
        eventually(lambda: self.check() or not self.workers, "the end of all workers", 60)
        rows = np.array(self.ledger.rows)
        answered, lost = int(rows[living, ANSWERED].sum()), int(rows[living, LOST].sum())
        if self.mode.startswith(("sync", "quorum")):  # pushes of several workers are one update
            answered = int(rows[living, ANSWERED].max())
        least = int(rows[keeper.number, LEAST])
        self.say(f"{len(self.told)} events; {answered} pushes answered, {lost} parts lost, least value {least}")
        if least < answered - lost:
            raise AssertionError(f"a value counts {least} updates of {answered}; {lost} are known to be lost")

    def clear_up(self) -> None:
        for member in self.workers + self.servers:
            member.process.kill()
            member.process.wait()


def rage(folder: Path, mode: str, wire: str, seconds: float, seed: int) -> list[str]:
    """Run one storm; return what happened. Raises AssertionError, or TimeoutError of eventually()."""
    storm = Storm(folder, mode, wire, random.Random(seed))
    try:
        storm.rage(seconds)
        storm.calm_down()
    except BaseException:
        for member in storm.workers:
            sys.stderr.write(f"{member.name}: {storm.said_by(member)}\n")
        raise
    finally:
        storm.clear_up()
    return storm.told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mode", default="async", help=", ".join(MODES))
    parser.add_argument("--wire", default="shm", help="shm or tcp")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rage(Path(folder), given.mode, given.wire, given.seconds, given.seed)


if __name__ == "__main__":
    main()
