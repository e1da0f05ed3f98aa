# SPDX-License-Identifier: Apache-2.0
"""``braid advise``: how many workers should take part in a training, and by which strategy."""

import json as json_format
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from braid import _links
from braid._advice.assumptions import Assumptions
from braid._advice.candidate import Candidate
from braid._advice.candidates import candidates
from braid._advice.choice import Advice, choose
from braid._advice.measure import Measured, MeasureError, measure
from braid._advice.network import Network
from braid._advice.workload import Worker, Workload
from braid._bench.show import plot as pictures
from braid._bench.show import units
from braid._bench.workload import UsageError, parse_sizes
from braid.cli.cluster import LabHosts, Links, RanksPerHost, Source
from braid.cli.errors import CommandError
from braid.lab import LabError, parse_hosts, parse_ranks_per_host

_LATENCY_S = 50e-6  # between stated hosts, one way
_SHOWN = 10
_MEASURE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class _Cluster:
    text: str
    speeds: list[float]  # of each rank's processor, relative to a whole one
    source: str  # where the links are known from


@dataclass(frozen=True)
class _Guesses:
    """What is assumed, and what the advice would be with half and with twice of it."""

    assumed: Assumptions
    with_half: str
    with_twice: str

    def in_words(self, chosen: str) -> str:
        others = [
            f"with {how} of it {name}"
            for how, name in (("half", self.with_half), ("twice", self.with_twice))
            if name != chosen
        ]
        if not others:
            return "The advice is the same with half and with twice of what is assumed."
        return f"The advice hangs on what is assumed: {', '.join(others)}. Measure both."


def advise(
    batch: Annotated[int | None, typer.Option(help="Samples of a step, of all workers together.")] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Whose gradients travel: resnet50, vgg16, bert-base, gpt2 or dlrm, or your own, which CALLABLE "
            "in FILE.py returns.",
            metavar="NAME|FILE.py:CALLABLE",
        ),
    ] = "",
    size: Annotated[str, typer.Option("--bytes", help="Instead of --model: bytes of all gradients, 100M.")] = "",
    sample_ms: Annotated[
        str,
        typer.Option(
            help="Milliseconds that a worker computes for a sample: one number for all, or one for each rank.",
            metavar="MS[,MS...]",
        ),
    ] = "",
    overhead_ms: Annotated[
        str,
        typer.Option(help="Milliseconds of a step that the batch does not change.", metavar="MS[,MS...]"),
    ] = "0",
    script: Annotated[
        str,
        typer.Option(
            help="Measure instead: run this script with its arguments on this machine, as the only rank, for some "
            "steps. Its step has --script-batch samples. Its gradients are counted too.",
            metavar="'FILE.py ARGUMENTS'",
        ),
    ] = "",
    script_batch: Annotated[int, typer.Option(help="Samples of one step of --script.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps of --script to measure.")] = 20,
    speeds: Annotated[
        str,
        typer.Option(
            help="How fast each rank's processor is, relative to --sample-ms or this machine: 1,1,0.25.",
            metavar="S[,S...]",
        ),
    ] = "",
    overlap: Annotated[
        float,
        typer.Option(
            help="The part of the computation that hides communication, 0 to 1: with DDP that of backward."
        ),
    ] = 0.0,
    training_samples: Annotated[
        int | None,
        typer.Option(
            help="Samples that the whole training needs with a plain all-reduce. A short one pays more for first "
            "steps: balanced batches and compression begin after some. Not given: a long one."
        ),
    ] = None,
    stale_loss: Annotated[
        float,
        typer.Option(
            help="Assumed: by which part more samples are needed for each update between a pull and its push."
        ),
    ] = Assumptions.stale_loss,
    drift_loss: Annotated[
        float,
        typer.Option(help="Assumed: the same for each step of the drift, the column alone, after the first."),
    ] = Assumptions.drift_loss,
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts", help="Hosts with stated links, nothing is started: 3x1gbit,1x200mbit@50%.", metavar="HOSTS"
        ),
    ] = "",
    lab: LabHosts = "",
    ranks_per_host: RanksPerHost = "1",
    links: Links = "",
    topology: Annotated[
        Path | None,
        typer.Option(help="Take the cluster that `braid topo --text` or Communicator.topology() wrote here."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all candidates here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the candidates: .png, .svg or .pdf.")] = None,
) -> int:
    """Predict the speed of every way to train on a cluster, and advise the gentlest that gains enough.

    Fewer workers, balanced batches, compression, local steps and asynchronous strategies are compared with the
    plain all-reduce. Links come from --hosts, --links or --topology, or are measured in --lab or in this job.
    """
    try:
        if plot:
            pictures.check_path(plot)
        given = {
            "--batch": batch is not None,
            "--model, --bytes or --script": model or size or script,
            "--sample-ms or --script": sample_ms or script,
        }
        if batch is None or not all(given.values()):
            lacking = [name for name, is_there in given.items() if not is_there]
            raise UsageError(f"say what is trained: {'; '.join(lacking)}")
        cluster = _cluster(hosts, Source(lab, ranks_per_host, links, None, topology, "--hosts 3x1gbit,1x200mbit"))
        if cluster is None:
            return 0
        network = Network(cluster.text)
        measured = _measured(script, script_batch, steps, sample_ms)
        gradient_bytes = _gradient_bytes(model, size, measured)
        workers = _workers(
            len(network.hosts), cluster.speeds, sample_ms, overhead_ms, speeds, measured, script_batch
        )
        if batch < 1:
            raise UsageError(f"--batch: expected at least 1 sample, got {batch}")
        if batch < len(workers):
            raise UsageError(f"--batch: {len(workers)} workers share {batch} samples; give at least one for each")
        if not 0 <= overlap <= 1:
            raise UsageError(f"--overlap: expected 0 to 1, got {overlap:g}")
        for name, loss in (("--stale-loss", stale_loss), ("--drift-loss", drift_loss)):
            if not 0 <= loss < 1:
                raise UsageError(f"{name}: expected 0 or more, and less than 1, got {loss:g}")
        if training_samples is not None and training_samples < 1:
            raise UsageError(f"--training-samples: expected at least 1, got {training_samples}")
        work = Workload(batch, gradient_bytes, workers, overlap, training_samples)
        assumed = Assumptions(stale_loss, drift_loss)
        advice = choose(candidates(work, network, assumed))
        guesses = _Guesses(
            assumed,
            *(choose(candidates(work, network, assumed.times(factor))).chosen.name for factor in (0.5, 2.0)),
        )
    except (UsageError, pictures.PlotError, MeasureError, LabError, ValueError) as error:
        raise CommandError(str(error)) from error
    _show(advice, work, cluster, measured, guesses)
    if json:
        json.write_text(json_format.dumps(_document(advice, work, cluster, measured, guesses), indent=1) + "\n")
        print(f"wrote {json}")
    if plot:
        from braid._advice.picture import draw

        draw(advice, plot)
        print(f"wrote {plot}")
    return 0


def _cluster(hosts: str, source: Source) -> _Cluster | None:
    if not hosts:
        text = source.text()
        kind = "stated" if source.topology or source.is_links_alone else "measured"
        speeds = []
        if source.lab:
            specs = parse_hosts(source.lab)
            counts = parse_ranks_per_host(source.ranks_per_host, len(specs))
            speeds = [spec.cpu_share for spec, count in zip(specs, counts, strict=True) for _ in range(count)]
        return None if text is None else _Cluster(text, speeds, kind)
    if source.lab or source.links or source.topology:
        raise UsageError("--hosts says it all: leave out --lab, --links and --topology")
    specs = parse_hosts(hosts)
    counts = parse_ranks_per_host(source.ranks_per_host, len(specs))
    cards = [_links.Card(spec.up_bits_per_s, spec.down_bits_per_s) for spec in specs]
    file = _links.LinksFile(_LATENCY_S, max(max(card.up, card.down) for card in cards))
    speeds = [spec.cpu_share for spec, count in zip(specs, counts, strict=True) for _ in range(count)]
    return _Cluster(_links.topology_text(file, cards, counts), speeds, "stated")


def _measured(script: str, script_batch: int, steps: int, sample_ms: str) -> Measured | None:
    if not script:
        if script_batch:
            raise UsageError("--script-batch is for --script")
        return None
    if sample_ms:
        raise UsageError("--script measures what --sample-ms states: leave one out")
    if script_batch < 1:
        raise UsageError("--script needs --script-batch: how many samples one of its steps has")
    if steps < 2:
        raise UsageError(f"--steps: expected at least 2, got {steps}")
    file, *arguments = shlex.split(script)
    if not Path(file).is_file():
        raise UsageError(f"--script: there is no file {file}")
    return measure(Path(file), arguments, steps, _MEASURE_TIMEOUT_S)


def _gradient_bytes(model: str, size: str, measured: Measured | None) -> int:
    if model and size:
        raise UsageError("--model says how many bytes there are: leave out --bytes")
    if size:
        sizes = parse_sizes(size)
        if len(sizes) != 1:
            raise UsageError(f"--bytes: expected one size, got {size!r}")
        return sizes[0]
    if model:
        from braid._bench.ddp.buckets import gradients_of  # imports torch

        return sum(4 * prod(gradient.shape) for gradient in gradients_of(model, None) if not gradient.sparse)
    assert measured is not None  # advise() asks for one of the three
    return measured.gradient_bytes


def _workers(
    ranks: int,
    cluster_speeds: Sequence[float],
    sample_ms: str,
    overhead_ms: str,
    speeds: str,
    measured: Measured | None,
    script_batch: int,
) -> list[Worker]:
    factors = _numbers("--speeds", speeds, ranks) if speeds else list(cluster_speeds) or [1.0] * ranks
    overheads = [ms / 1000 for ms in _numbers("--overhead-ms", overhead_ms, ranks, zero=True)]
    if measured:
        rest = [max(0.0, measured.step_s - overhead) / script_batch for overhead in overheads]
        if min(rest) <= 0:
            raise UsageError("--overhead-ms is longer than a measured step")
        samples = rest
    else:
        samples = [ms / 1000 for ms in _numbers("--sample-ms", sample_ms, ranks)]
    return [
        Worker(sample / factor, overhead / factor)
        for sample, overhead, factor in zip(samples, overheads, factors, strict=True)
    ]


def _numbers(option: str, text: str, ranks: int, *, zero: bool = False) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option}: expected numbers, got {text!r}") from None
    numbers = numbers * ranks if len(numbers) == 1 else numbers
    if len(numbers) != ranks:
        raise UsageError(f"{option}: {len(numbers)} numbers for {ranks} ranks")
    if not all(0 <= number < float("inf") and (number or zero) for number in numbers):
        raise UsageError(f"{option}: expected numbers above 0, got {text!r}")
    return numbers


def _show(advice: Advice, work: Workload, cluster: _Cluster, measured: Measured | None, guesses: _Guesses) -> None:
    console = Console(highlight=False)
    everyone, chosen = len(work.workers), advice.chosen
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("strategy")
    for column in ("workers", "samples/s", "worth", "staleness", "alone", "presence", "computing"):
        table.add_column(column, justify="right")
    rows = list(advice.ranked[:_SHOWN])
    rows += [one for one in (chosen, advice.plain) if one not in rows]
    for one in rows:
        table.add_row(
            one.name,
            f"{len(one.workers)} of {everyone}",
            units.number(one.samples_per_s),
            units.number(one.worth),
            units.number(one.staleness, 2) if one.staleness else "",
            units.number(one.alone, 2) if one.alone > 1 else "",
            units.number(one.participant_seconds, 3),
            units.number(one.cpu_seconds, 3),
            style="bold" if one is chosen else "",
        )
    console.print(table)
    if work.training:
        console.print(f"worth counts the slower first steps, in a training of {work.training} samples.")
    console.print(
        f"worth: samples/s / (1 + {guesses.assumed.stale_loss:g} x staleness + {guesses.assumed.drift_loss:g} x "
        "(alone - 1)). Both numbers are assumed, from one small network: --stale-loss, --drift-loss; --json "
        "has sources. alone: workers drift apart as far as in so many steps alone. presence, computing: seconds "
        "of workers and of processors for 1000 samples; they stand in for energy, which nobody measured."
    )
    console.print(_verdict(advice, everyone))
    console.print(f"{_certainty(advice, cluster, measured)} {guesses.in_words(advice.chosen.name)}")


def _verdict(advice: Advice, everyone: int) -> str:
    chosen = advice.chosen
    if chosen is advice.plain:
        return "Advice: the plain all-reduce of all workers. Nothing gains enough to be worth a change."
    who = "all workers" if len(chosen.workers) == everyone else "ranks " + ", ".join(map(str, chosen.workers))
    shares = ""
    if len(set(chosen.samples)) > 1:
        shares = "; samples of each: " + ", ".join(f"{share:g}" for share in chosen.samples)
    return f"Advice: {chosen.name} on {who}, {advice.gain:.2f}x the plain all-reduce. {chosen.how}{shares}"


def _certainty(advice: Advice, cluster: _Cluster, measured: Measured | None) -> str:
    computing = (
        f"measured here in {measured.steps} steps (spread {100 * measured.spread:.0f} %) and taken for all"
        if measured
        else "stated"
    )
    text = f"How sure: links are {cluster.source}, computing is {computing}."
    if advice.is_close:
        text += " Another candidate is within 10 %, which predictions cannot tell apart: measure both."
    return text


def _document(
    advice: Advice, work: Workload, cluster: _Cluster, measured: Measured | None, guesses: _Guesses
) -> dict[str, Any]:
    return {
        "topology": cluster.text,
        "links": cluster.source,
        "workload": asdict(work),
        "measured": asdict(measured) if measured else None,
        "advice": _row(advice.chosen),
        "gain": advice.gain,
        "is_close": advice.is_close,
        "assumed": {
            **asdict(guesses.assumed),
            "sources": guesses.assumed.sources(),
            "with_half": guesses.with_half,
            "with_twice": guesses.with_twice,
        },
        "candidates": [_row(one) for one in advice.ranked],
    }


def _row(one: Candidate) -> dict[str, Any]:
    derived = {name: getattr(one, name) for name in ("worth", "participant_seconds", "cpu_seconds")}
    return {**asdict(one), "preference": one.preference.name.lower(), **derived}
