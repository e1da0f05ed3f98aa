# SPDX-License-Identifier: Apache-2.0
"""``braid aggregator``: an aggregator that helps a job's ranks to sum."""

import os
from typing import Annotated

import typer

from braid import _core
from braid._array.rendezvous import join_store
from braid._errors import CommunicatorError
from braid._links import stated_links
from braid._notices import tell
from braid.cli.errors import CommandError, check_settings
from braid.cli.signals import Ending

_WHO = "braid aggregator"
_LONGEST_CAUSE = 200


Store = Annotated[
    str,
    typer.Option(
        help="The job's store: host:port, its MASTER_ADDR and MASTER_PORT; for ranks that meet through "
        "braid.Communicator what they were given, tcp://host:port or file:///folder.",
        metavar="STORE",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option(help="How long to try to reach the store.", metavar="SECONDS", min=0.1)]


def under_former_name(join: Store, timeout: Timeout = 60.0) -> int:
    """Do what `braid aggregator` does, which had this name once."""
    tell("`braid server` is called `braid aggregator` now; a parameter server is `braid serve`")
    return aggregator(join, timeout)


def aggregator(join: Store, timeout: Timeout = 60.0) -> int:
    """Help a job to sum: add up a share of every large all_reduce, on a machine that has no rank of it.

    An aggregator has no data and trains nothing. It takes work off the network cards of the ranks, which pays when
    those are what the job waits for, on three hosts or more. Start it before the ranks or while they run, one
    on each machine to spare. Ranks look for aggregators if BRAID_SERVERS is set on all of them: to how many to
    await at first, or to 0 where they may come later. On every host of ranks, and then on the machine to spare:

        BRAID_SERVERS=1 torchrun --master-addr node0 --master-port 29500 ... train.py

        braid aggregator --join node0:29500

    It ends with the job, or with Ctrl-C, or it dies: the ranks go on without it.
    """
    # Else torch's store tells of every wait that was in vain.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    check_settings()
    try:
        store, reach = join_store(join, timeout)
    except ValueError as error:
        raise CommandError(f"--join: {error}") from error
    except CommunicatorError as error:
        raise CommandError(f"--join {join}: {error}", 1) from error

    joined = False

    def say(line: str) -> None:
        nonlocal joined
        joined = True
        tell(line, _WHO)

    try:
        with Ending() as ending:
            try:
                _core.serve(store, reach, stated_links(), ending.has_come, say)
            except Exception as error:
                if not joined and not ending.has_come():
                    raise CommandError(f"--join {join}: {error}", 1) from error
                # Any other error would look the same without its words.
                words = next(iter(str(error).splitlines()), "")[:_LONGEST_CAUSE]
                cause = f"{type(error).__name__}: {words}" if words else type(error).__name__
                tell(f"the job's store is gone; so is this aggregator ({cause})", _WHO)
    finally:
        store.close()
    return 0
