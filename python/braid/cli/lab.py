# SPDX-License-Identifier: Apache-2.0
"""``braid lab``: a job on a cluster of unequal hosts that are emulated on this machine."""

import contextlib
import os
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from braid import _settings
from braid._notices import how_it_ended, tell
from braid._torch.adapter import ensure_adapter
from braid.cli.errors import CommandError, check_settings_of_ranks
from braid.cli.lab_options import RanksPerHost, RoundRobin, Survive
from braid.cli.run import takeover_names
from braid.cli.signals import signals_raise
from braid.lab import Job, Lab, LabError, environments, parse_hosts, parse_ranks_per_host, parse_rate

CONTEXT = {"ignore_unknown_options": False, "allow_interspersed_args": False}
_MOST_NAMED = 8


def lab(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND [ARGS]...", help="What every rank runs.")
    ] = None,
    hosts: Annotated[
        str,
        typer.Option(
            help="Groups with a comma between, COUNTxUP/DOWN@CPU%, all but UP optional: 3x1gbit,1x1gbit/200mbit"
            "@50% are three hosts alike, and one that receives slowly and runs half of the time.",
        ),
    ] = "3x1gbit,1x200mbit",
    ranks_per_host: RanksPerHost = "1",
    round_robin: RoundRobin = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar='"SECONDS hN EVENT"',
            help="What happens later: 5 h1 rate 100mbit, 5 h1 rate 1gbit/100mbit, 5 h1 cpu 50%, 8 h2 cut, "
            "9 h2 mend, 10 h3 kill. May be given often.",
        ),
    ] = None,
    takeover: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Backends in whose place braid is used, as in `braid run`: gloo,nccl,mpi,none; none is "
            "for calls without a name. Default: what BRAID_TAKEOVER says; else none.",
        ),
    ] = "",
    survive: Survive = False,
) -> int:
    """Run a command on every rank of an emulated cluster; end with the exit code of the first that failed.

    Hosts are Linux network namespaces (root is needed) joined by a switch, their cards shaped. Ranks find each
    other through RANK, WORLD_SIZE, MASTER_ADDR and so on, as under torchrun. Nothing is left behind.
    """
    command = _checked_command(command or [], hosts)
    taken = takeover_names(takeover)
    check_settings_of_ranks()
    if taken:
        ensure_adapter()  # once, here, rather than by all ranks
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
        os.environ["BRAID_TAKEOVER"] = ",".join(taken)
        os.environ[_settings.STARTED_BY] = "braid lab"
    try:
        specs = parse_hosts(hosts)
        counts = parse_ranks_per_host(ranks_per_host, len(specs))
        events = [_parse_event(text, len(specs)) for text in at or []]
        with signals_raise(), Lab(specs) as cluster:
            places = environments(cluster, counts, round_robin)
            with Job(places, command) as job, _happening(cluster, events):
                codes = job.wait(survive=survive)
                failures, code = job.failures(), job.exit_code(codes, survive=survive)
    except LabError as error:
        raise CommandError(str(error)) from error
    for rank in failures:
        tell(f"rank {rank} on {places[rank][0].name} {how_it_ended(codes[rank])}")
    return code


def _checked_command(command: list[str], hosts: str) -> list[str]:
    if not command:
        raise CommandError(f"which command? Write, for example, braid lab --hosts {hosts} -- python train.py")
    if command[0].endswith(".py") and shutil.which(command[0]) is None:
        raise CommandError(f"{command[0]} is no program; did you mean `-- python {shlex.join(command)}`?")
    return command


@dataclass(frozen=True)
class Event:
    """Something that happens to a host."""

    at_s: float
    host: int
    text: str
    do: Callable[[Lab], None]


def _parse_event(text: str, hosts: int) -> Event:
    expected = 'expected "SECONDS hN rate UP[/DOWN] | cpu SHARE% | cut | mend | kill"'
    words = text.split()
    try:
        at_s, number = float(words[0]), int(words[1].removeprefix("h"))
        if not 0 <= at_s < float("inf"):
            raise LabError(f"--at {text!r}: expected seconds from 0, got {words[0]}")
        if not 0 <= number < hosts:
            raise LabError(f"--at {text!r}: there is no host h{number}; {_names(hosts)}")
        return Event(at_s, number, " ".join(words[1:]), _action(number, words[2], words[3:]))
    except (ValueError, IndexError):
        raise LabError(f"--at {text!r}: {expected}") from None


def _names(hosts: int) -> str:
    if hosts == 1:
        return "there is h0"
    names = [f"h{number}" for number in range(hosts)]
    return f"there are {', '.join(names)}" if hosts <= _MOST_NAMED else f"there are h0 to {names[-1]}"


def _action(number: int, verb: str, values: list[str]) -> Callable[[Lab], None]:
    if verb in ("cut", "mend", "kill") and not values:
        return lambda cluster: getattr(cluster, verb)(cluster.hosts[number])
    (value,) = values
    if verb == "rate":
        up, _, down = value.partition("/")
        rates = parse_rate(up), parse_rate(down or up)
        return lambda cluster: cluster.set_rate(cluster.hosts[number], *rates)
    if verb == "cpu" and 1 <= int(value.removesuffix("%")) <= 100:
        return lambda cluster: cluster.set_cpu(cluster.hosts[number], int(value.removesuffix("%")) / 100)
    raise ValueError(verb)


@contextlib.contextmanager
def _happening(cluster: Lab, events: list[Event]) -> Iterator[None]:
    """Let the events happen in their time, until the end of the block."""
    over = threading.Event()

    def run() -> None:
        began = time.monotonic()
        for event in sorted(events, key=lambda event: event.at_s):
            if over.wait(max(0.0, began + event.at_s - time.monotonic())):
                return
            try:
                event.do(cluster)
                tell(f"{event.at_s:g} s: {event.text}")
            except Exception as error:  # the events after it must happen all the same
                kind = "" if isinstance(error, (LabError, OSError)) else f"{type(error).__name__}: "
                tell(f"{event.at_s:g} s: {event.text}: {kind}{error}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
