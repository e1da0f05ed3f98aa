# SPDX-License-Identifier: Apache-2.0
"""The options of ``braid run``: torchrun's, and some more."""

import difflib
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import NoReturn

from braid._notices import tell
from braid._settings import USUAL_TAKEOVER
from braid.cli.errors import CommandError

_WHICH_SCRIPT = "which script? Write, for example, braid run --nproc 2 train.py"
# Scripts may well have others of these names.
_OWN_OPTIONS = ("--takeover", "--compression", "--strategy", "--survive")


def parse(arguments: list[str]) -> Namespace:
    """Return what torchrun and `braid run` read in a command line; CommandError for what neither knows."""
    from torch.distributed.run import get_args_parser

    parser: ArgumentParser = get_args_parser()
    parser.prog = "braid run"
    own = (
        "[--nproc N] [--takeover LIST] [--compression TEXT] [--strategy TEXT] [--links FILE] [--servers N] "
        "[--aggregators N] [--survive]"
    )
    parser.usage = f"braid run {own} [torchrun options] (script | -m module) [arguments]"
    parser.description = "torchrun, with the backends that the script asks for carried by braid."
    parser.add_argument(
        "--nproc", dest="nproc_per_node", default=SUPPRESS, metavar="N", help="Short for --nproc-per-node."
    )
    parser.add_argument(
        "--takeover",
        default=USUAL_TAKEOVER,
        metavar="LIST",
        help="Backends to carry, comma separated; none is for calls that name no backend. "
        f"Default: {USUAL_TAKEOVER}. An empty list takes over nothing.",
    )
    parser.add_argument(
        "--compression",
        default="",
        metavar="TEXT",
        help="Send gradients of DistributedDataParallel in fewer bytes between hosts, where the script has no "
        "hook of its own: auto, or a codec as int8, with rules as in int8,head.*=exact. docs/compression.md tells "
        "more. Default: what BRAID_COMPRESSION says; else all is exact.",
    )
    parser.add_argument(
        "--strategy",
        default="",
        metavar="TEXT",
        help="Train modules in DistributedDataParallel with a strategy, as elastic:sync_every=10, which does not "
        "average gradients in each step. docs/strategies.md tells more. Default: what BRAID_STRATEGY says; else "
        "none.",
    )
    parser.add_argument(
        "--links",
        default="",
        metavar="FILE.toml",
        help="How fast the hosts' network cards are, for jobs of several hosts; on each node a file that says the "
        "same. Also measure or assume. Default: what BRAID_LINKS says; else links are measured, once a day.",
    )
    parser.add_argument(
        "--servers",
        type=int,
        default=0,
        metavar="N",
        help="Also start N parameter servers here, as `braid serve` does. A strategy in the script that names no "
        "servers places its shards there. With --nnodes every node starts N, and strategies wait for all, or for "
        "as many as BRAID_PARAMETER_SERVERS says. Default: none.",
    )
    parser.add_argument(
        "--aggregators",
        type=int,
        default=0,
        metavar="N",
        help="Also start N aggregators here, which can add up a share of large all_reduces. On hosts of ranks "
        "they share the card with them, and get no share: this is to try them, with BRAID_HOST set by each rank. "
        "Where machines are to spare, set BRAID_SERVERS and start `braid aggregator` there. With --nnodes every "
        "node starts N, and ranks wait for all, or as many as BRAID_SERVERS says. Default: none.",
    )

    parser.add_argument(
        "--survive",
        action="store_true",
        help="Ranks go on where another one fails; torchrun ends them all. The exit code is 0 if one of them ends "
        "well. For strategies in which a worker that dies stops nobody, as gossip.",
    )

    def error(message: str) -> NoReturn:
        raise CommandError(_WHICH_SCRIPT if "training_script" in message else f"{message}{nearest(message)}")

    def nearest(message: str) -> str:
        unknown = "unrecognized arguments: "
        if not message.startswith(unknown):
            return ""
        option = message.removeprefix(unknown).split(" ")[0].partition("=")[0]
        near = difflib.get_close_matches(option, parser._option_string_actions, 1)
        return f"; did you mean {near[0]}?" if near else "; see braid run --help"

    parser.error = error  # type: ignore[method-assign]
    options = parser.parse_args(arguments)
    for argument in options.training_script_args:
        if (name := argument.partition("=")[0]) in _OWN_OPTIONS:
            tell(
                f"{name} stands behind the script, so the script gets it; braid's options stand before the script"
            )
    return options
