# SPDX-License-Identifier: Apache-2.0
"""Options of all commands that make a lab."""

from typing import Annotated

import typer

RanksPerHost = Annotated[
    str,
    typer.Option(metavar="N[,N...]", help="In a lab: for all hosts, or for each; 0 leaves a host without ranks."),
]
Survive = Annotated[
    bool,
    typer.Option(
        "--survive",
        help="Ranks go on where another one fails. The exit code is 0 if one of them ends well. It is for "
        "strategies in which a worker that dies stops nobody.",
    ),
]
RoundRobin = Annotated[
    bool,
    typer.Option("--round-robin", help="In a lab: number the ranks over the hosts in turn, not host by host."),
]
