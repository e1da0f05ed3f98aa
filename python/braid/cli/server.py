# SPDX-License-Identifier: Apache-2.0
"""``braid server``: an aggregator that helps a job's ranks to sum."""

import signal
import sys
import threading
from types import FrameType
from typing import Annotated

import typer

from braid import _core
from braid._errors import CommunicatorError
from braid._links import stated_links
from braid._rendezvous import join_store
from braid.cli.errors import CommandError


def server(
    join: Annotated[
        str,
        typer.Option(
            help="The job's store: host:port, its MASTER_ADDR and MASTER_PORT; for ranks that meet through "
            "braid.Communicator what they were given, tcp://host:port or file:///folder.",
            metavar="STORE",
            show_default=False,
        ),
    ],
    timeout: Annotated[
        float, typer.Option(help="How long to try to reach the store.", metavar="SECONDS", min=0.1)
    ] = 60.0,
) -> int:
    """Help a job to sum: add up a share of every large all_reduce, on a machine that has no rank of it.

    A server has no data and trains nothing. It takes work off the network cards of the ranks, which pays when
    those are what the job waits for. Start it before the ranks or while they run, as many as there are machines
    to spare, one on each; ranks look for them if BRAID_SERVERS is set, to 0 or the number to wait for at first:

        BRAID_SERVERS=1 torchrun ... train.py      and elsewhere      braid server --join node0:29500

    It ends with the job, or with Ctrl-C; the ranks go on without it.
    """
    stop = threading.Event()
    joined = False

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    def say(line: str) -> None:
        nonlocal joined
        joined = True
        print(f"braid server: {line}", file=sys.stderr, flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        store, reach = join_store(join, timeout)
    except ValueError as error:
        raise CommandError(f"--join: {error}") from error
    except CommunicatorError as error:
        raise CommandError(f"--join {join}: {error}", 1) from error
    try:
        _core.serve(store, reach, stated_links(), stop.is_set, say)
    except Exception as error:
        if not joined or stop.is_set():
            raise CommandError(f"--join {join}: {error}", 1) from error
        print("braid server: the job's store is gone; so is this server", file=sys.stderr)
    finally:
        store.close()
    return 0
