# SPDX-License-Identifier: Apache-2.0
"""Where a command gets its cluster from: the job that it is part of, a lab, or a file."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from braid import _links
from braid.cli.errors import CommandError
from braid.lab import Job, Lab, LabError, environments, parse_hosts, parse_ranks_per_host

LabHosts = Annotated[
    str,
    typer.Option(help="Take emulated hosts, as `braid lab` makes them: 3x1gbit,1x200mbit.", metavar="HOSTS"),
]
Links = Annotated[
    str,
    typer.Option(
        help="Believe this file about the links between hosts, and measure nothing. Without --lab, and outside of "
        "a job, it is all that is looked at.",
        metavar="FILE.toml",
    ),
]
RanksPerHost = Annotated[
    str,
    typer.Option(
        metavar="N[,N...]",
        help="In a lab, or with --links alone: for all hosts, or for each; 0 leaves a host without ranks.",
    ),
]
_JOB = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SHOW_TEXT = [sys.executable, "-m", "braid.cli", "topo", "--text"]


@dataclass(frozen=True)
class Source:
    """What the command line says of the cluster."""

    lab: str = ""
    ranks_per_host: str = "1"
    links: str = ""
    hosts: int | None = None  # in all, where only a file of links is looked at
    topology: Path | None = None
    example: str = "--lab 3x1gbit,1x200mbit"  # how to say which cluster

    @property
    def is_links_alone(self) -> bool:
        """Is a file of links all there is?"""
        return bool(self.links) and not self.lab and "RANK" not in os.environ

    def text(self) -> str | None:
        """Return the topology's text form; None on ranks of a job that have nothing to say.

        Raises:
            CommandError: the options make no sense together, or there is no such cluster.
        """
        if self.topology and (self.lab or self.links):
            raise CommandError("--topology says it all: leave out --lab and --links")
        if self.hosts is not None and not self.is_links_alone:
            raise CommandError("--hosts is for --links without --lab, and outside of a job")
        if self.topology:
            return _read(self.topology)
        links = checked_links(self.links) if self.links else ""
        try:
            if self.lab:
                return self._text_of_lab(links)
            return self._text_of_file(links) if self.is_links_alone else _text_of_job(links, self.example)
        except LabError as error:
            raise CommandError(f"{'--lab' if self.lab else '--links'}: {error}") from error

    def _text_of_lab(self, links: str) -> str:
        specs = parse_hosts(self.lab)
        counts = parse_ranks_per_host(self.ranks_per_host, len(specs))
        own = {"BRAID_LINKS": links} if links else {}
        with Lab(specs) as cluster, tempfile.TemporaryFile("w+") as printed:
            places = [(host, environment | own) for host, environment in environments(cluster, counts)]
            with Job(places, _SHOW_TEXT, stdout=printed) as job:
                if any(job.wait()):
                    raise CommandError("--lab: the ranks failed", 1)
            printed.seek(0)
            return printed.read()

    def _text_of_file(self, links: str) -> str:
        file = load_links(links)
        cards = list(file.hosts.values())
        count = len(cards) if self.hosts is None else self.hosts
        if count < max(1, len(cards)):
            raise CommandError(
                f"--hosts: {links} names {len(cards)} hosts; expected how many there are in all, at least 1"
            )
        cards += [file.usual] * (count - len(cards))
        return _links.topology_text(file, cards, parse_ranks_per_host(self.ranks_per_host, count))


def checked_links(value: str) -> str:
    """Return what BRAID_LINKS should be for a value of --links: a file, which is read to see that it can be.

    Raises:
        CommandError: it cannot, or is neither a file nor one of the words that BRAID_LINKS takes.
    """
    if value in _links.WORDS:
        return value
    load_links(value)
    return str(Path(value).absolute())


def load_links(value: str) -> _links.LinksFile:
    """Read a file of links; CommandError when it is none."""
    if not value.endswith(_links.SUFFIX):
        raise CommandError(f"--links: {value!r} is no file of links: its name ends in {_links.SUFFIX}")
    try:
        return _links.load(value)
    except ValueError as error:
        raise CommandError(f"--links: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CommandError(f"--topology: {path}: {reason}") from error


def _text_of_job(links: str, example: str) -> str | None:
    from braid import Communicator

    if missing := [name for name in _JOB if name not in os.environ]:
        raise CommandError(
            f"{', '.join(missing)} not set: start it with torchrun --no-python or another launcher, or say which "
            f"cluster, for example {example}"
        )
    if links:
        os.environ["BRAID_LINKS"] = links
    with Communicator("env://", name="topo", timeout_s=120) as comm:
        text = comm.topology() if comm.rank == 0 else None
        comm.barrier()
    return text
