# SPDX-License-Identifier: Apache-2.0
"""``braid compare``: a training script, as it is, on Gloo and on braid, in turns."""

import contextlib
import functools
import json as json_format
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from braid import _core
from braid._advice.measure import MeasureError, measure
from braid._bench.show import explained, units
from braid._bench.show import plot as pictures
from braid._bench.show.progress import Progress
from braid._compare import show, ways
from braid._compare.contest import WARM_UP, Contest
from braid._compare.places import Places
from braid._compare.training import Training
from braid._cpu_quota import cores_to_use
from braid._torch.adapter import ensure_adapter
from braid.cli.errors import CommandError, check_settings_of_ranks
from braid.cli.lab_options import RanksPerHost
from braid.cli.signals import signals_raise
from braid.lab import HostSpec, Lab, LabError, parse_hosts, parse_ranks_per_host

CONTEXT = {"ignore_unknown_options": False, "allow_interspersed_args": False}
_ROUNDS = 10
_OF_ROWS = ("BRAID_BALANCE", "BRAID_COMPRESSION", "BRAID_STRATEGY", "BRAID_TAKEOVER")
_ALONE_STEPS, _ALONE_TIMEOUT_S = 10, 300.0
_BUCKET = 25 << 20  # of DistributedDataParallel
_MEMORY = "ranks of one host share memory, and Gloo's send through sockets"
_CODED = "gradients cross between hosts in fewer bytes, where that is faster"


def compare(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT.py [ARGS]...", help="A script as torchrun starts it.")
    ] = None,
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts",
            metavar="HOSTS",
            help="Emulated hosts, as `braid lab` makes them: 2x200mbit,1x40mbit. Without: this machine.",
        ),
    ] = "",
    ranks_per_host: RanksPerHost = "1",
    nproc: Annotated[
        int | None, typer.Option(help="Without --hosts: ranks on this machine; 2 unless given.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of each rank that are timed, in each way.")] = 200,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="The strategy that is tried, as `braid run --strategy` takes it; none for no strategy. Unless "
            "given, the one that `braid advise` proposes for these hosts and this script.",
        ),
    ] = "",
    json: Annotated[Path | None, typer.Option(help="Write every step of every rank here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the losses over time: .png, .svg or .pdf.")] = None,
) -> int:
    """Train a script, as it is, on Gloo and on braid: exact, with compression, and with a strategy.

    All jobs are there from the beginning and train in turns, a few steps each, so that a busy moment of the
    machine hits all alike. The losses are the workers' own, of their own batches.
    """
    command = _checked(command or [], steps, nproc, strategy)
    _check_files(json, plot)
    check_settings_of_ranks()
    specs = _parsed(hosts)
    if specs and nproc is not None:
        raise CommandError("--nproc is for this machine; with --hosts say --ranks-per-host")
    if not specs and ranks_per_host != "1":
        raise CommandError("--ranks-per-host is for --hosts; on this machine say --nproc")
    try:
        counts = parse_ranks_per_host(ranks_per_host, len(specs)) if specs else [nproc or 2]
    except LabError as error:
        raise CommandError(str(error)) from error
    if sum(counts) < 2:
        raise CommandError("one rank has nobody to talk to: give at least two ranks")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the ranks, and of the one that is measured alone
    ensure_adapter()  # once, here, rather than by all ranks
    console = Console(highlight=False)
    tell = functools.partial(console.print, soft_wrap=True)
    try:
        with (
            signals_raise(),
            Progress(console) as progress,
            Lab(specs) if specs else contextlib.nullcontext() as lab,
        ):
            contest = Contest(Places(lab, counts), command, _environment(), progress.say)
            try:
                _run(contest, specs, counts, command, steps, strategy, tell)
            finally:
                contest.close()
    except LabError as error:
        raise CommandError(str(error)) from error
    if not show.complete(contest.results):
        for line in show.sentences(contest.results):
            tell(line)
        raise CommandError(_no_block(contest, command), 1)
    console.print(show.table(contest.results, is_on_one_host=len(specs) < 2))
    for line in show.sentences(contest.results):
        tell(line)
    if contest.has_ended:
        tell(
            f"{command[0]} ended before {_ROUNDS} rounds were over: give it more data or epochs, or fewer --steps"
        )
    about = f"{shlex.join(command)}, {sum(counts)} ranks on {hosts or 'this machine'}"
    if json:
        json.write_text(json_format.dumps(show.document(contest.results, {"what": about}), indent=1) + "\n")
        tell(f"wrote {json}")
    if plot:
        show.draw(contest.results, about, plot)
        tell(f"wrote {plot}")
    may_fail = {ways.GLOO} | {one.name for one in contest.results[3:] if not strategy}  # a proposal may not fit
    return int(any(one.failure and one.name not in may_fail for one in contest.results))


def _parsed(text: str) -> list[HostSpec]:
    """Return the hosts of --hosts, none for ""; CommandError if it names none."""
    try:
        return parse_hosts(text) if text else []
    except LabError as error:
        raise CommandError(f"--hosts: {error}") from error


def _check_files(json: Path | None, plot: Path | None) -> None:
    if json and (json.is_dir() or not os.access(json.parent, os.W_OK)):
        raise CommandError(f"--json: cannot write {json}")
    try:
        if plot:
            pictures.check_path(plot)
    except pictures.PlotError as error:
        raise CommandError(str(error)) from error


def _environment() -> dict[str, str]:
    """Return the ranks' variables: the caller's, without what the rows differ in."""
    return {name: text for name, text in os.environ.items() if name not in _OF_ROWS}


def _checked(command: list[str], steps: int, nproc: int | None, strategy: str) -> list[str]:
    if not command:
        raise CommandError("which script? Write, for example, braid compare --hosts 2x200mbit,1x40mbit train.py")
    if not Path(command[0]).is_file():
        raise CommandError(f"no such script: {command[0]}")
    if steps < _ROUNDS:
        raise CommandError(f"--steps: expected at least {_ROUNDS}, got {steps}")
    if nproc is not None and nproc < 2:
        raise CommandError(f"--nproc: expected at least 2, got {nproc}")
    try:
        if strategy and strategy != "none":
            ways.strategy(strategy)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return command


def _run(
    contest: Contest,
    specs: list[HostSpec],
    counts: list[int],
    command: list[str],
    steps: int,
    strategy: str,
    tell: Callable[[str], None],
) -> None:
    ranks, cores = sum(counts), cores_to_use()
    where = ",".join(map(str, specs)) or "this machine"
    busy = f"{cores:g} cores, load {os.getloadavg()[0]:.1f}"
    if ranks > cores:
        busy += f"; {ranks} ranks share the cores"
    tell(f"{ranks} ranks on {where}; {busy}")
    first = contest.start(ways.gloo())
    text = ways.topology(specs, counts) if specs else ""
    size = first.gradient_bytes if first else 0
    contest.start(ways.plain(_why(text, size)))
    if len(specs) > 1:
        contest.start(ways.compressed(_CODED))
    else:
        tell("one host: nothing is compressed there, so compression is not tried")
    chosen = None if strategy == "none" else ways.strategy(strategy) if strategy else None
    if not strategy:
        chosen = _proposed(text, first, specs, counts, command, tell)
    if chosen:
        contest.start(chosen)
    each = -(-steps // _ROUNDS)
    if expected_s := _ROUNDS * contest.expected_s(each):
        tell(f"{_ROUNDS} rounds of {each} steps in each way take some {units.number(expected_s, 2)} s")
    contest.rounds(_ROUNDS, each)


def _why(text: str, gradient_bytes: int) -> str:
    if not text:
        return _MEMORY
    size = min(gradient_bytes, _BUCKET) or _BUCKET
    answer = _core.Tuner(text).explain("all_reduce", "float32", "avg", 0, size, "")
    gains = explained.gains(text, "all_reduce", "float32", "avg", size, answer)
    return "; ".join([explained.why(size, answer).removeprefix("why "), *gains[:1]])


def _proposed(
    text: str,
    first: Training | None,
    specs: list[HostSpec],
    counts: list[int],
    command: list[str],
    tell: Callable[[str], None],
) -> ways.Way | None:
    """Return the way that `braid advise` proposes, and tell what it predicts, or why there is none."""
    batch = first.steps[0][-1].samples if first and first.steps[0] else 0
    if len(specs) < 2:
        tell("one host: `braid advise` proposes strategies for several; --strategy TEXT tries one")
        return None
    if not first or not batch:
        tell("no strategy is proposed, as the size of a batch is not known; --strategy TEXT tries one")
        return None
    try:
        alone = measure(Path(command[0]), command[1:], _ALONE_STEPS, _ALONE_TIMEOUT_S)
    except MeasureError as error:
        tell(f"no strategy is proposed: {error}; --strategy TEXT tries one")
        return None
    crowding = max(1.0, sum(counts) / max(1.0, cores_to_use()))
    step_s = [
        alone.step_s * crowding / spec.cpu_share
        for spec, count in zip(specs, counts, strict=True)
        for _ in range(count)
    ]
    one = ways.advised(text, step_s, batch, first.gradient_bytes)
    if one is None:
        tell("no strategy is proposed: by prediction none is worth 1.05 times the plain all-reduce")
        return None
    tell(f"`braid advise` proposes {one.name}, by prediction {units.number(one.samples_per_s, 3)} samples/s")
    return ways.proposed(one)


def _no_block(contest: Contest, command: list[str]) -> str:
    if all(one.failure for one in contest.results):
        return f"{command[0]} failed in every way"
    return (
        f"{command[0]} ended before its optimizer had made {WARM_UP + 1} steps, or called none of torch.optim: "
        "give it more data or epochs"
    )
