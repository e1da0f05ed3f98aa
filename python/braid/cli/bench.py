# SPDX-License-Identifier: Apache-2.0
"""``braid bench COLLECTIVE``: times it on braid and on others, in turn, and checks every result."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from braid._bench.collectives import COLLECTIVES
from braid._bench.ranks.team import TeamError
from braid._bench.workload import UsageError
from braid.cli.errors import CommandError
from braid.cli.lab_options import RanksPerHost, RoundRobin

app = typer.Typer(
    name="bench",
    help="Time collectives, messages or the gradients of a model on braid and on others, in turn.",
    no_args_is_help=True,
)


class Api(StrEnum):
    """Through what braid is called."""

    torch = "torch"
    array = "array"


Busy = Annotated[
    int,
    typer.Option(
        help="Have so many processes compute beside the ranks, as other jobs of a shared machine do.", metavar="N"
    ),
]


def collective(
    context: typer.Context,
    ranks: Annotated[int, typer.Option(help="Processes, all on this machine.")] = 2,
    sizes: Annotated[
        str,
        typer.Option("--sizes", help="Bytes: 8:64M doubles, 8:64M:4 quadruples, 8,4K,1M lists.", metavar="SIZES"),
    ] = "8:64M",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, int64, ...")] = "float32",
    op: Annotated[str, typer.Option(help="sum, avg, product, min, max, band, bor, bxor.")] = "sum",
    against: Annotated[
        str,
        typer.Option(
            help="gloo, nccl, ucc (as torch has them), openmpi, mpich, intelmpi (through mpi4py); openmpi=FOLDER "
            "says where it is installed; none. Who is missing is reported and skipped.",
            metavar="NAMES",
        ),
    ] = "gloo",
    api: Annotated[
        Api, typer.Option(help="Call braid through torch.distributed, or with NumPy arrays (braid.Communicator).")
    ] = Api.torch,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="Where torch's tensors are: cpu, cuda (ranks may share a GPU), or NAME=MODULE:FUNCTION for a "
            "device that the function loads.",
            metavar="DEVICE",
        ),
    ] = "cpu",
    time: Annotated[float, typer.Option(help="Seconds per size, for all contestants together.")] = 1.0,
    iters: Annotated[
        int | None, typer.Option(help="Timed calls per size and contestant, instead of a time.")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="Force braid's algorithm: ring, direct, ...")] = "",
    in_place: Annotated[
        bool | None, typer.Option("--in-place/--out-of-place", help="Where both can be; as users do, by default.")
    ] = None,
    cold: Annotated[
        bool,
        typer.Option("--cold/--hot", help="Fresh memory and empty caches for each call, or the same."),
    ] = False,
    layout: Annotated[
        str,
        typer.Option(help="Have braid take the ranks for those of several hosts: 3,1 or 2x4 (HOSTSxRANKS)."),
    ] = "",
    lab: Annotated[
        str,
        typer.Option(
            help="Run on emulated hosts, as `braid lab` does: 3x1gbit,1x200mbit. --ranks is not used then.",
            metavar="HOSTS",
        ),
    ] = "",
    ranks_per_host: RanksPerHost = "1",
    round_robin: RoundRobin = False,
    servers: Annotated[
        int,
        typer.Option(help="In a lab: the last hosts run a `braid aggregator` for braid's ranks, and no rank."),
    ] = 0,
    busy: Busy = 0,
    json: Annotated[Path | None, typer.Option(help="Write all that was found here.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw time and bandwidth: .png, .svg or .pdf.")] = None,
    compare: Annotated[Path | None, typer.Option(help="Compare with what --json wrote before.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what the columns mean; measure nothing.")
    ] = False,
) -> int:
    """Measure one collective; the body of all commands that are named like one."""
    from braid._bench.command import Outputs, Request, execute

    request = Request(
        collective=str(context.info_name),
        ranks=ranks,
        sizes=sizes,
        dtype=dtype,
        op=op,
        against=against,
        api=api.value,
        seconds=time,
        calls=iters,
        algorithm=algorithm,
        in_place=in_place,
        cold=cold,
        layout=layout,
        lab=lab,
        ranks_per_host=ranks_per_host,
        round_robin=round_robin,
        servers=servers,
        device=device,
        busy=busy,
    )
    try:
        return execute(request, Outputs(json, csv, plot, compare), ["braid", *sys.argv[1:]], explain_only=explain)
    except (UsageError, TeamError) as error:
        raise CommandError(str(error), 2 if isinstance(error, UsageError) else 1) from error


for known in COLLECTIVES.values():
    app.command(known.name, help=known.summary)(collective)


@app.command("ddp")
def ddp(
    model: Annotated[
        str, typer.Option(help="Whose parameters: resnet50, vgg16, bert-base, gpt2 or dlrm.")
    ] = "resnet50",
    ranks: Annotated[int, typer.Option(help="Processes, all on this machine.")] = 2,
    compute: Annotated[
        str,
        typer.Option(
            help="Milliseconds of a step without communication, spent asleep, as if an accelerator computed; or "
            "measured: the model's matrix products are done on this processor.",
            metavar="MS|measured",
        ),
    ] = "measured",
    batch: Annotated[int | None, typer.Option(help="Samples per step and rank.")] = None,
    bucket_cap_mb: Annotated[
        float | None,
        typer.Option(help="DistributedDataParallel's; torch's own choice unless given."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Of torch on each rank, for the matrix products.")] = 1,
    against: Annotated[str, typer.Option(help="gloo, ucc, none.", metavar="NAMES")] = "gloo",
    time: Annotated[float, typer.Option(help="Seconds, for all contestants together.")] = 30.0,
    busy: Busy = 0,
    json: Annotated[Path | None, typer.Option(help="Write all that was found here.")] = None,
) -> int:
    """Average a real model's gradients through DistributedDataParallel; show what of it steps have to wait for."""
    from braid._bench.ddp.command import DdpRequest, execute

    request = DdpRequest(
        *(model, ranks, compute, batch, bucket_cap_mb, threads, against, time, busy, json),
        ["braid", *sys.argv[1:]],
    )
    try:
        return execute(request)
    except (UsageError, TeamError) as error:
        raise CommandError(str(error), 2 if isinstance(error, UsageError) else 1) from error
