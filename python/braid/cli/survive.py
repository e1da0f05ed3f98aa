# SPDX-License-Identifier: Apache-2.0
"""``braid run --survive``: ranks that go on where another one has failed. torchrun would end them all."""

import contextlib
import errno
import os
import sys
from argparse import Namespace
from datetime import timedelta
from typing import Any

from braid._notices import how_it_ended, tell
from braid.cli.errors import CommandError
from braid.cli.signals import signals_raise
from braid.lab import Job, environments_here

_PORT = 29500
# torch's own names: a process beside the ranks has the store, so that any rank may die.
_OWN_STORE = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
_STORE_TIMEOUT = timedelta(minutes=30)
_OVER = "braid run --survive: over on node "
_SOON, _LATEST = timedelta(seconds=10), timedelta(minutes=10)


def check(options: Namespace, nodes: tuple[int, int]) -> None:
    """Raise CommandError for options of torchrun that mean something else than ranks that go on."""
    if options.log_dir or str(options.tee) != "0" or str(options.redirects) != "0":
        raise CommandError("--survive: the ranks' output is not kept; leave out --log-dir, --tee and --redirects")
    if options.max_restarts:
        raise CommandError("--survive: ranks that go on are not started again; leave out --max-restarts")
    if nodes[0] != nodes[1] or options.rdzv_backend != "static" or options.rdzv_endpoint:
        raise CommandError(
            "--survive: the nodes must be known beforehand: use --nnodes N, --node-rank, --master-addr and "
            "--master-port"
        )


def launch(options: Namespace, ranks: int, nodes: int) -> int:
    """Run the ranks of this node; return 0 if one of them ended well, else the exit code of the first to fail."""
    from torch.distributed import DistNetworkError, TCPStore

    address = options.master_addr if nodes > 1 else "127.0.0.1"
    # The store of a single node takes any port, unless one is given.
    port = options.master_port or (_PORT if nodes > 1 else 0)
    store = None
    try:
        if options.node_rank == 0:
            store = TCPStore(address, port, None, is_master=True, timeout=_STORE_TIMEOUT, wait_for_workers=False)
            port = store.port
    except DistNetworkError as error:
        why = "the port is in use" if os.strerror(errno.EADDRINUSE).lower() in str(error) else str(error)
        where = f"no store at {address}:{port}: {why.splitlines()[0]}"
        raise CommandError(f"{where}; see --master-addr, --master-port", 1) from None
    places = [
        (host, {**own, **_OWN_STORE})
        for host, own in environments_here(ranks, address, port, nodes, options.node_rank)
    ]
    with signals_raise(), Job(places, _command(options), env=dict(os.environ)) as job:
        codes = job.wait(survive=True)
        if store is None:
            _say_over(address, port, options.node_rank)
        elif nodes > 1:
            _wait_for_others(store, nodes)
    for rank in job.failures():
        tell(f"rank {options.node_rank * ranks + rank} {how_it_ended(codes[rank])}")
    if 0 in codes and any(codes):
        tell(f"{codes.count(0)} of {ranks} ranks ended well")
    return job.exit_code(codes, survive=True)


def _say_over(address: str, port: int, node: int) -> None:
    from torch.distributed import DistError, TCPStore

    with contextlib.suppress(DistError):  # the first node's launcher is gone, and waits for nobody
        TCPStore(address, port, None, is_master=False, timeout=_SOON).set(f"{_OVER}{node}", b"1")


def _wait_for_others(store: Any, nodes: int) -> None:
    """Keep the store, through which ranks say their last words, until other nodes' ranks have ended."""
    from torch.distributed import DistError

    try:
        store.wait([f"{_OVER}{node}" for node in range(1, nodes)], _LATEST)
    except DistError:
        tell(f"not all of {nodes} nodes have ended {_LATEST.seconds // 60} minutes after this one")


def _command(options: Namespace) -> list[str]:
    script = [options.training_script, *options.training_script_args]
    if options.no_python:
        return script
    return [sys.executable, "-u", *(["-m"] if options.module else []), *script]
