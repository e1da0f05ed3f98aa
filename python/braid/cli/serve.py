# SPDX-License-Identifier: Apache-2.0
"""``braid serve``: a parameter server on a machine without a rank."""

import os
import re
import socket
import sys
import time
from typing import Annotated, NoReturn

import typer

from braid import _machine
from braid._array.rendezvous import join_store
from braid._array.rendezvous.stores import KeyValueStore
from braid._array.servers.duty import ParameterServer
from braid._errors import CommunicatorError
from braid._notices import tell
from braid.cli.errors import CommandError, check_settings
from braid.cli.signals import Ending

_WHO = "braid serve"
_PAUSE_S = 0.05
_AWAY_S = 10.0
_FAREWELL_S = 2.0
_LONGEST_CAUSE = 200
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def serve(
    rendezvous: Annotated[
        str,
        typer.Option(
            help="The job's store: host:port, its MASTER_ADDR and MASTER_PORT.",
            metavar="STORE",
            show_default=False,
        ),
    ],
    memory: Annotated[
        str,
        typer.Option(
            help="The most that shards may take, as 8G or 500M; by default what the machine has available now.",
            metavar="BYTES",
        ),
    ] = "",
    timeout: Annotated[
        float, typer.Option(help="How long to try to reach the store.", metavar="SECONDS", min=0.1)
    ] = 60.0,
    name: Annotated[
        str,
        typer.Option(
            "--name", help="What messages call this server; by default its host and process.", metavar="NAME"
        ),
    ] = "",
) -> int:
    """Hold parameters for a job's strategies, on a machine that has no rank of it.

    A parameter server has no data and computes no gradients. It applies the optimizer's rule to what workers push.
    Start it before the ranks or while they wait for it, and say in the strategy how many there are:

        bs.ParameterServer(model, torch.optim.SGD, lr=0.1, servers="serve:1")

        torchrun --master-addr node0 --master-port 29500 ... train.py

        braid serve --rendezvous node0:29500

    It ends with the job. Ctrl-C gives its shards to the job's other servers first, with all that the rule keeps.
    That is done when every worker has made its next step. A second Ctrl-C ends it at once.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    check_settings()
    limit = memory_of(memory)
    try:
        store, reach = join_store(rendezvous, timeout, _AWAY_S)
    except ValueError as error:
        raise CommandError(f"--rendezvous: {error}") from error
    except CommunicatorError as error:
        raise CommandError(f"--rendezvous {rendezvous}: {error}", 1) from error

    with Ending() as ending:
        store.give_up_when(ending.has_come)
        return _serve(store, reach, limit, name or f"{socket.gethostname()}:{os.getpid()}", ending)


def memory_of(text: str) -> int:
    """Return the bytes that a text such as ``"8G"`` names; CommandError if it names none."""
    if not text:
        return _machine.memory_bytes().get("available", sys.maxsize)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or (nbytes := int(float(found[1]) * _UNITS[found[2].upper()])) <= 0:
        raise CommandError(f"--memory: {text!r} is no size; give one such as 8G or 500M")
    if nbytes > (total := _machine.memory_bytes()["total"]):
        raise CommandError(f"--memory: {text} is more than the {total / _UNITS['G']:.1f}G of this machine")
    return nbytes


def _serve(store: KeyValueStore, reach: str, limit: int, name: str, ending: Ending) -> int:
    def say(line: str) -> None:
        tell(line, _WHO)

    server = None
    cause = ""
    try:
        server = ParameterServer(store, name, limit, reach, say)
        say(f"{name} waits for strategies")
        while not ending.wait(_PAUSE_S):
            server.look()
    except Exception as error:
        # Any other error would look the same without its words.
        words = next(iter(str(error).splitlines()), "")[:_LONGEST_CAUSE]
        cause = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if server is None:
        raise CommandError(f"the job's store is gone ({cause})", 1)
    while cause and server.is_busy and not ending.wait(_PAUSE_S):  # workers may still train without their store
        server.tend()
    if not cause:
        server.leave()
    if ending.has_come() and server.is_serving:
        say("gives its shards to other servers; interrupt it again to end it at once")
    server.stop()
    try:
        while server.is_serving:
            time.sleep(_PAUSE_S)
            server.tend()
    except KeyboardInterrupt:
        _exit(130)
    until = time.monotonic() + _FAREWELL_S
    while server.has_threads and time.monotonic() < until:  # those that serve no more close their connections
        time.sleep(_PAUSE_S)
    server.tend()
    if cause and not ending.has_come():
        say(f"the job's store is gone; so is this server ({cause})")
    if not server.served:
        say("no strategy has asked for this server")
    if server.has_threads:
        _exit(0)  # a thread waits in the core, for workers that may never come
    store.close()
    return 0


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
