# SPDX-License-Identifier: Apache-2.0
"""``braid explain``: which algorithms braid would choose on a cluster, and how long they should take."""

import itertools
import json as json_format
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from braid import _core
from braid._bench.show import units
from braid._bench.show.explained import gains, legend, why
from braid._bench.workload import UsageError, check_dtype, check_op, parse_sizes
from braid._notices import tell
from braid.cli.cluster import LabHosts, Links, RanksPerHost, Source
from braid.cli.errors import CommandError

SIZES = "1K,64K,1M,16M,64M"
_SHOWN_RUNNERS_UP = 3
_FASTER_RUNNERS_UP = (
    "A runner-up that seems faster is so by less than links vary, or at this very size only: the choice is made "
    "for the next power of two."
)
_ON_ONE_HOST = (
    " On one host constants decide, not these times: they are measured, and sums must not differ between runs."
)


@dataclass(frozen=True)
class Item:
    """One operation to explain."""

    bytes: int
    dtype: str
    gradients: tuple[str, ...] = ()  # whose bucket it is


def explain(
    collective: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...")
    ] = "all_reduce",
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes",
            help=f"Bytes of the vector, or of all blocks together: 8:64M doubles, 8:64M:4 quadruples, 64,4K,1M "
            f"lists. Unless given {SIZES}.",
            metavar="SIZES",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            help="Instead of sizes, the buckets in which DistributedDataParallel averages a model's gradients: "
            "resnet50, vgg16, bert-base, gpt2 or dlrm, or your own, which CALLABLE in FILE.py returns.",
            metavar="NAME|FILE.py:CALLABLE",
        ),
    ] = "",
    bucket_cap_mb: Annotated[
        float | None,
        typer.Option(help="With --model: DistributedDataParallel's; its own choice (25) unless given."),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="float32, bfloat16, int64, ...; float32 unless given, of a model its parameters' own."),
    ] = "",
    op: Annotated[str, typer.Option(help="Of a reduction: sum, avg, product, min, max, band, bor, bxor.")] = "sum",
    root: Annotated[int, typer.Option(help="Of broadcast, reduce, gather and scatter.")] = 0,
    algorithm: Annotated[
        str, typer.Option(help="Force an algorithm, as BRAID_ALGORITHM does: ring, all_reduce=direct.")
    ] = "",
    codec: Annotated[
        str,
        typer.Option(help="Of a sum or average that may lose precision: int8, sign, top_k:0.01."),
    ] = "",
    lab: LabHosts = "",
    ranks_per_host: RanksPerHost = "1",
    links: Links = "",
    hosts: Annotated[
        int | None,
        typer.Option(help="With --links alone: how many hosts there are, if more than the file names."),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(help="Take the cluster that `braid topo --text` or Communicator.topology() wrote here."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all of it here, every runner-up included.")] = None,
) -> int:
    """Say which algorithm braid would choose for tensors of these sizes, and what else it weighed.

    Of which cluster? Of the job that this command is started in, by torchrun --no-python or any launcher that sets
    RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: its links are measured, and its first rank prints. Of --lab,
    measured too. Or, without starting anything, of --links FILE.toml or --topology FILE.
    """
    try:
        items = _items(collective, sizes, model, bucket_cap_mb, dtype)
        op = check_op(items[0].dtype if items else "float32", op)
        if json and (json.is_dir() or not os.access(json.parent, os.W_OK)):
            raise UsageError(f"--json: cannot write {json}")
    except UsageError as error:
        raise CommandError(str(error)) from error
    text = Source(lab, ranks_per_host, links, hosts, topology).text()
    if text is None:
        return 0
    tuner = _tuner(text, algorithm)
    try:
        answers = [tuner.explain(collective, item.dtype, op, root, item.bytes, codec) for item in items]
        joined = _joined(collective, items)
        as_one = tuner.explain(collective, joined.dtype, op, root, joined.bytes, codec) if joined else None
    except ValueError as error:
        raise CommandError(str(error)) from error
    title = _title(f"{collective} by {codec}" if codec else collective, text, model)
    _show(items, answers, title, len(set(_hosts_of(text))) == 1)
    if answers:
        largest = max(range(len(items)), key=lambda index: items[index].bytes)
        size, dtype_there = items[largest].bytes, items[largest].dtype
        notes = [*legend(answers), why(size, answers[largest])]
        if not codec and not algorithm:
            notes += gains(text, collective, dtype_there, op, size, answers[largest])
        print("\n".join(notes))
    if joined and as_one:
        owned = f", shares {shares_text(as_one['shares'])}" if as_one["shares"] else ""
        time = seconds_text(as_one["predicted_s"])
        print(f"as one vector of {units.size(joined.bytes)}: {time} by {as_one['algorithm']}{owned}")
    if json:
        asked = {
            "collective": collective,
            "op": op,
            "root": root,
            "algorithm": algorithm,
            "codec": codec,
            "model": model,
        }
        document = _document(asked, text, items, answers) | ({"as_one": as_one} if as_one else {})
        json.write_text(json_format.dumps(document, indent=1) + "\n")
        print(f"wrote {json}")
    return 0


def _items(collective: str, sizes: str, model: str, cap_mb: float | None, dtype: str) -> list[Item]:
    core_dtype = check_dtype(dtype) if dtype else ""
    if not model:
        if cap_mb is not None:
            raise UsageError("--bucket-cap-mb is for --model")
        if collective == "barrier":
            return [Item(0, "float32")]
        return [Item(size, core_dtype or "float32") for size in parse_sizes(sizes or SIZES)]
    if sizes or collective != "all_reduce":
        raise UsageError("--model: gradients have their own sizes and are averaged by all_reduce")
    if cap_mb is not None and not cap_mb > 0:
        raise UsageError(f"--bucket-cap-mb: expected more than 0, got {cap_mb:g}")
    from braid._bench.ddp.buckets import buckets_of, gradients_of  # they import torch

    gradients = gradients_of(model, core_dtype or None)
    for gradient in gradients:
        if gradient.dtype not in _core.dtypes():
            raise UsageError(f"--model {model}: {gradient.name} is {gradient.dtype}, which braid does not reduce")
    if sparse := [gradient.name for gradient in gradients if gradient.sparse]:
        tell(f"left out: {len(sparse)} tables, whose gradients are sparse")
    return [
        Item(bucket.bytes, bucket.dtype, tuple(gradient.name for gradient in bucket.gradients))
        for bucket in buckets_of(gradients, cap_mb)
    ]


def _joined(collective: str, items: Sequence[Item]) -> Item | None:
    """Return all as one vector, which is the best plan for tensors that are known at once (docs/adr/0015)."""
    if collective != "all_reduce" or len(items) < 2 or len({item.dtype for item in items}) > 1:
        return None
    return Item(sum(item.bytes for item in items), items[0].dtype)


def _tuner(text: str, algorithm: str) -> _core.Tuner:
    try:
        return _core.Tuner(text, algorithm)
    except ValueError as error:
        words = str(error)
        option = "--algorithm" if algorithm and words.startswith("BRAID_ALGORITHM") else "--topology"
        if words.startswith("BRAID_") and option == "--topology":
            raise CommandError(words) from error
        raise CommandError(f"{option}: {words.removeprefix('BRAID_ALGORITHM: ')}") from error


def _hosts_of(text: str) -> list[str]:
    return text.partition("\n")[0].removeprefix("topology hosts=").split(",")


def _title(collective: str, text: str, model: str) -> str:
    ranks, machines = len(_hosts_of(text)), len(set(_hosts_of(text)))
    place = f"{ranks} rank{'s' * (ranks > 1)} on {machines} host{'s' * (machines > 1)}"
    return f"{collective} of {model}'s gradients, {place}" if model else f"{collective}, {place}"


def _show(items: Sequence[Item], answers: Sequence[dict[str, Any]], title: str, is_one_host: bool) -> None:
    console = Console(highlight=False)
    is_model = any(item.gradients for item in items)
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("bucket" if is_model else "size", "algorithm", "predicted", "segments", "chunk"):
        is_text = column == "algorithm"  # and may be the shares, too, which are many perhaps
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, min_width=8)
    for number, (item, answer) in enumerate(zip(items, answers, strict=True), 1):
        table.add_row(
            f"{number}: {units.size(item.bytes)}" if is_model else units.size(item.bytes),
            answer["algorithm"],
            seconds_text(answer["predicted_s"]),
            str(answer["segments"]),
            units.size(answer["chunk_bytes"]) if answer["chunk_bytes"] else "",
        )
        if answer["shares"]:
            table.add_row("", f"shares {shares_text(answer['shares'])}")
        for one in answer["runners_up"][:_SHOWN_RUNNERS_UP]:
            table.add_row("", f"  {one['algorithm']}", seconds_text(one["predicted_s"]), style="dim")
        table.add_section()
    console.print(table)
    if any(one["predicted_s"] < answer["predicted_s"] for answer in answers for one in answer["runners_up"]):
        console.print(_FASTER_RUNNERS_UP + (_ON_ONE_HOST if is_one_host else ""))
    if is_model:
        size, seconds = sum(item.bytes for item in items), sum(answer["predicted_s"] for answer in answers)
        console.print(f"{len(items)} buckets, {units.size(size)}: {seconds_text(seconds)} one after the other")


def shares_text(shares: Sequence[float]) -> str:
    """Return what owners have of a vector: "3 x 31%, 6.9%", neighbours that have the same together."""
    groups = [(text, len(list(same))) for text, same in itertools.groupby(f"{100 * one:.3g}%" for one in shares)]
    return ", ".join(f"{count} x {text}" if count > 1 else text for text, count in groups)


def seconds_text(seconds: float) -> str:
    """Return a time with its unit: "12.3 us"."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{units.number(seconds * factor)} {unit}"
    return f"{units.number(seconds * 1e6)} us"


def _document(
    asked: dict[str, Any], text: str, items: Sequence[Item], answers: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    rows = [
        {"bytes": item.bytes, "dtype": item.dtype, **({"gradients": item.gradients} if item.gradients else {})}
        | answer
        for item, answer in zip(items, answers, strict=True)
    ]
    total_s = sum(answer["predicted_s"] for answer in answers)
    return {**asked, "topology": text, "operations": rows, "predicted_s": total_s}
