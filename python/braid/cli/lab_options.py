# SPDX-License-Identifier: Apache-2.0
"""Options of all commands that make a lab."""

from typing import Annotated

import typer

RanksPerHost = Annotated[
    str,
    typer.Option(metavar="N[,N...]", help="In a lab: for all hosts, or for each; 0 leaves a host without ranks."),
]
RoundRobin = Annotated[
    bool,
    typer.Option("--round-robin", help="In a lab: number the ranks over the hosts in turn, not host by host."),
]
