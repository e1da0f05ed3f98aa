# SPDX-License-Identifier: Apache-2.0
"""``braid run``: torchrun, with the backends that the script asks for carried by braid."""

import contextlib
import errno
import importlib.util
import os
import shutil
import socket
import sys
from argparse import Namespace
from pathlib import Path
from typing import Annotated

import typer

from braid import _settings
from braid._notices import tell
from braid._torch.adapter import ensure_adapter
from braid._torch.backend_name import BACKEND_NAME
from braid.cli import survive
from braid.cli.cluster import checked_links
from braid.cli.errors import CommandError, check_settings_of_ranks
from braid.cli.own_servers import AGGREGATORS, PARAMETER_SERVERS, Kind, OwnServers, settle_store, tell_ranks
from braid.cli.ranks_watch import RanksWatch, in_order, words
from braid.cli.run_options import parse
from braid.compression import CompressionPolicy

_COUNTED = ("auto", "cpu", "gpu")  # torch counts these for --nproc

# All arguments go to torchrun's own parser; typer must not look at them, least of all at those of the script.
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


def run(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[--nproc N] [--takeover LIST] [--compression TEXT] [--strategy TEXT] [--links FILE] "
            "[--servers N] [--aggregators N] [--survive] "
            "[TORCHRUN OPTIONS] SCRIPT|-m MODULE [ARGS]...",
            help="`braid run --help` lists torchrun's options.",
        ),
    ] = None,
) -> int:
    """Start a script on several ranks, as torchrun does, on braid instead of the backend it names."""
    options = parse(arguments or [])
    taken = takeover_names(options.takeover)
    compression = _checked_compression(options.compression)
    strategy = _checked_strategy(options.strategy)
    ranks, (fewest_nodes, nodes) = _rank_count(options), _node_counts(options)
    _check_script(options)
    if options.survive:
        survive.check(options, (fewest_nodes, nodes))
    if options.links:
        os.environ["BRAID_LINKS"] = checked_links(options.links)
    if compression:
        os.environ["BRAID_COMPRESSION"] = compression
    if strategy:
        os.environ["BRAID_STRATEGY"] = strategy
    check_settings_of_ranks()
    if options.servers and not options.aggregators and os.environ.get(AGGREGATORS.variable):
        # As jobs did when --servers meant aggregators.
        tell(
            "--servers starts parameter servers now. BRAID_SERVERS is set, so as many aggregators are started, "
            "too; say --aggregators N for those"
        )
        options.aggregators = options.servers
    wanted: list[tuple[int, str, Kind]] = []
    for count, kind in ((options.servers, PARAMETER_SERVERS), (options.aggregators, AGGREGATORS)):
        if count:
            wanted.append((count, settle_store(options, nodes, kind), kind))
            tell_ranks(count, nodes, kind)

    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
    os.environ["BRAID_TAKEOVER"] = ",".join(taken)
    os.environ[_settings.STARTED_BY] = "braid run"
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun's choice, without its eight lines about it
    if taken:
        ensure_adapter()  # once, here, rather than by all ranks against their rendezvous timeout
        tell(f"starting {_ranks(ranks, options.nnodes)}; {_list(taken)} run on braid")
    with contextlib.ExitStack() as own:
        for each in wanted:
            own.enter_context(OwnServers(*each))
        if options.survive:
            return survive.launch(options, ranks, nodes)
        return _launch(options, _waiting(options, fewest_nodes))


def takeover_names(text: str) -> list[str]:
    """Return the backends that --takeover lists; CommandError for a name that no backend has."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _settings.KNOWN_BACKENDS:
            raise CommandError(f"--takeover: {_settings.unknown_backend(name)}")
    return [name for name in dict.fromkeys(names) if name != BACKEND_NAME]


def _checked_compression(text: str) -> str:
    try:
        CompressionPolicy.from_text(text)
    except ValueError as error:
        raise CommandError(f"--{error}") from None
    return text


def _checked_strategy(text: str) -> str:
    if text:
        from braid.strategies.text import read

        try:
            read(text)
        except ValueError as error:
            raise CommandError(f"--{error}") from None
    return text


def _rank_count(options: Namespace) -> int:
    from torch.distributed.run import determine_local_world_size

    try:
        count = int(determine_local_world_size(options.nproc_per_node))
    except ValueError as error:
        text = str(options.nproc_per_node)
        is_unknown = str(error).startswith("Unsupported")
        what = f"expected a whole number, got {text!r}; or one of {', '.join(_COUNTED)}" if is_unknown else error
        raise CommandError(f"--nproc: {what}") from error
    if count < 1:
        raise CommandError(f"--nproc: expected at least 1, got {count}")
    return count


def _node_counts(options: Namespace) -> tuple[int, int]:
    from torch.distributed.run import parse_min_max_nnodes

    try:
        low, high = parse_min_max_nnodes(options.nnodes)
    except (ValueError, RuntimeError) as error:
        raise CommandError(f"--nnodes: {error}") from error
    if not 0 < low <= high:
        raise CommandError(f"--nnodes: expected at least 1, got {options.nnodes}")
    return int(low), int(high)


def _check_script(options: Namespace) -> None:
    script = options.training_script
    if options.module:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        found = importlib.util.find_spec(script.partition(".")[0])
        sys.path.pop(0)
        if found is None:
            raise CommandError(f"no such module: {script}")
    elif options.no_python:
        if shutil.which(script) is None:
            raise CommandError(f"no such program: {script}")
    elif not Path(script).is_file():
        raise CommandError(f"no such script: {script}")


def _ranks(count: int, nodes: str) -> str:
    each = "1 rank" if count == 1 else f"{count} ranks"
    return each if nodes in ("1", "1:1") else f"{each} on each of {nodes} nodes"


def _list(taken: list[str]) -> str:
    words = ["the default backend" if name == "none" else name for name in taken]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _waiting(options: Namespace, nodes: int) -> str:
    """Return the line for a wait for other nodes; "" for a job that needs one node only."""
    if nodes < 2:
        return ""
    where = options.rdzv_endpoint or f"{options.master_addr}:{options.master_port or 29500}"
    host = where.rpartition(":")[0].strip("[]")
    if host and not _is_known(host):
        return f"waiting for the other nodes, but this machine knows no address of {host!r}"
    if nodes == 2:
        return f"waiting for 1 more of 2 nodes at {where}; is it started, is the port open?"
    return f"waiting for more of {nodes} nodes at {where}; are they started, is the port open?"


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def _launch(options: Namespace, waiting: str) -> int:
    from torch.distributed import DistNetworkError
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import run as torchrun

    notice = _settings.value_of("BRAID_STALL_NOTICE") or _settings.SETTINGS["BRAID_STALL_NOTICE"].default
    watch = RanksWatch(waiting, float(notice))
    try:
        with watch:
            torchrun(options)
    except ChildFailedError as error:
        ranks = in_order(error.failures, watch.ended)
        tell(words(error.failures, ranks))
        code = int(error.failures[ranks[0]].exitcode)
        return code if code > 0 else 128 - code
    except SignalException as error:
        return 128 + int(error.sigval)
    except DistNetworkError as error:
        if os.strerror(errno.EADDRINUSE).lower() not in str(error):
            raise
        where = f"port {options.master_port} is in use at {options.master_addr}"
        raise CommandError(f"{where}: give another --master-port", 1) from None
    return 0
