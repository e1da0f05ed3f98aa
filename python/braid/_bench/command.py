# SPDX-License-Identifier: Apache-2.0
"""What the command line asks for, checked before anything starts; and what is done with what was found."""

import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.text import Text

from braid import _machine
from braid._bench.collectives import COLLECTIVES
from braid._bench.machine.busy import check_busy
from braid._bench.ranks.contestants import Setting, check_algorithm, parse_against, parse_layout
from braid._bench.ranks.team import Place
from braid._bench.results import Case, Report, ReportError
from braid._bench.rounds import Budget
from braid._bench.run import Plan, run
from braid._bench.show import compare, csv_form, plot, table
from braid._bench.show.explain import explain
from braid._bench.show.progress import Progress
from braid._bench.workload import (
    UsageError,
    Workload,
    check_dtype,
    check_op,
    parse_sizes,
    workload,
)
from braid.lab import Lab, LabError, environments, parse_hosts, parse_ranks_per_host

MOST_RANKS = 256
INTERRUPTED = 130
_BUFFERS = 2  # input and output


@dataclass(frozen=True)
class Request:
    """The command line, as given."""

    collective: str
    ranks: int
    sizes: str
    dtype: str
    op: str
    against: str
    api: str
    seconds: float
    calls: int | None
    algorithm: str
    in_place: bool | None
    cold: bool
    layout: str
    lab: str = ""
    ranks_per_host: str = "1"
    round_robin: bool = False
    servers: int = 0
    device: str = "cpu"
    busy: int = 0

    def plan(self, command: list[str], places: tuple[Place, ...] = (), servers: tuple[Place, ...] = ()) -> Plan:
        """Return what is to be run, in a lab when there are places; UsageError when it makes no sense."""
        kind = COLLECTIVES[self.collective]
        least = 2 if kind.message else 1
        if not least <= self.ranks <= MOST_RANKS:
            raise UsageError(f"--ranks: expected {least} to {MOST_RANKS}, got {self.ranks}")
        if self.seconds <= 0:
            raise UsageError(f"--time: expected more than 0 seconds, got {self.seconds:g}")
        if self.calls is not None and self.calls < 1:
            raise UsageError(f"--iters: expected at least 1, got {self.calls}")
        check_busy(self.busy)
        setting = Setting(
            self.ranks,
            self.api,
            check_algorithm(self.algorithm, self.collective),
            parse_layout(self.layout, self.ranks),
            places,
            servers,
            self._device(),
        )
        works = self._works()
        if self.api == "torch" and kind.in_place and not works[0].in_place:
            raise UsageError(f"torch.distributed has no {kind.name} out of place: use --api array")
        settings = {
            "ranks": self.ranks,
            "dtype": works[0].dtype,
            "op": works[0].op,
            "api": self.api,
            "in_place": works[0].in_place,
            "cold": self.cold,
            "layout": self.layout,
            "lab": self.lab,
            "ranks_per_host": self.ranks_per_host if self.lab else "",
            "round_robin": self.round_robin,
            "servers": self.servers or "",
            "algorithm": self.algorithm,
            "busy": self.busy or "",
        }
        if setting.device:
            settings["device"] = setting.device.partition("=")[0]
        against = parse_against(self.against)
        _check_memory(works, self.ranks, 1 + len(against))
        return Plan(setting, against, works, Budget(self.seconds, self.calls), settings, command, self.busy)

    def _device(self) -> str:
        if self.device == "cpu":
            return ""
        if not re.fullmatch(r"[a-z]\w*(=[\w.]+:\w+)?", self.device):
            raise UsageError(
                "--device: expected cpu, cuda, another device of torch, or NAME=MODULE:FUNCTION, "
                f"got {self.device!r}"
            )
        if self.api != "torch":
            raise UsageError("--device: tensors of a device are measured through torch, so leave --api at torch")
        return self.device

    def _works(self) -> list[Workload]:
        dtype = check_dtype(self.dtype)
        op = check_op(dtype, self.op)
        sizes = [0] if self.collective == "barrier" else parse_sizes(self.sizes)
        return list(
            dict.fromkeys(
                workload(self.collective, dtype, op, size, self.ranks, self.in_place, self.cold) for size in sizes
            )
        )


@dataclass(frozen=True)
class Outputs:
    """Files to write, and one to compare with."""

    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    compare: Path | None = None

    def check(self, plan: Plan) -> Report | None:
        """Refuse now what would fail after the run; return the report to compare with."""
        for option, path in asdict(self).items():
            if path and option != "compare" and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise UsageError(f"--{option}: cannot write {path}")
        try:
            if self.plot:
                if not plan.works[0].kind.bus_formula:
                    raise UsageError("--plot: a barrier has no sizes, so there is nothing to draw")
                plot.check_path(self.plot)
            if not self.compare:
                return None
            old = Report.read(self.compare)
            compare.require_comparable(old, Report(plan.works[0].collective, plan.settings, []))
            return old
        except (plot.PlotError, ReportError) as error:
            raise UsageError(str(error)) from error

    def write(self, report: Report) -> list[str]:
        """Write the files, and return a line for each."""
        lines = []
        if self.json:
            report.write(self.json)
            lines.append(f"wrote {self.json}")
        if self.csv:
            with self.csv.open("w", newline="") as file:
                csv_form.write(report, file)
            lines.append(f"wrote {self.csv}")
        if self.plot:
            plot.plot(report, self.plot)
            lines.append(f"wrote {self.plot}")
        return lines


def _check_memory(works: list[Workload], ranks: int, contestants: int) -> None:
    needed = max(work.bytes for work in works) * _BUFFERS * ranks * contestants
    available = _machine.memory_bytes().get("available")
    if available is not None and needed > available:
        raise UsageError(
            f"the largest size needs about {needed / 2**30:.1f} GiB for {contestants} contestants of {ranks} "
            f"ranks, and {available / 2**30:.1f} GiB are available: use smaller --sizes, or fewer contestants"
        )


class _Screen:
    """Shows a run while it goes on."""

    def __init__(self, progress: Progress, planned: int) -> None:
        self.report: Report | None = None
        self._progress, self._planned = progress, planned

    def begin(self, report: Report) -> None:
        self.report = report
        self._progress.show(table.header(report))

    def turn(self, work: Workload, contestant: str, done: int, planned: int) -> None:
        self._progress.at(contestant, work.bytes, done + 1, planned)

    def case(self, report: Report, case: Case) -> None:
        self._progress.show(table.rows(report, case))

    def interrupted(self) -> Report | None:
        """Return what there is, if there is any."""
        if self.report is None or not self.report.cases:
            return None
        self.report.notes.append(f"interrupted after {len(self.report.cases)} of {self._planned} sizes")
        return self.report


def execute(request: Request, outputs: Outputs, command: list[str], explain_only: bool = False) -> int:
    """Carry out one ``braid bench COLLECTIVE``; return its exit code: 1 when results were wrong or braid failed.

    Raises:
        UsageError: the request makes no sense.
    """
    if explain_only:
        print(explain(request.collective, request.ranks))
        return 0
    if not request.lab:
        if request.servers:
            raise UsageError("--servers: they are hosts of a lab, so give --lab")
        return _measure(request, outputs, command)
    try:
        specs = parse_hosts(request.lab)
        hosts = _hosts_of_ranks(request, len(specs))
        counts = parse_ranks_per_host(request.ranks_per_host, hosts) + [0] * request.servers
        with Lab(specs) as lab:
            places = tuple(environments(lab, counts, request.round_robin))
            own = {name: places[0][1][name] for name in ("BRAID_INTERFACE", "BRAID_LINKS")}
            servers = tuple((host, own) for host in lab.hosts[hosts:])
            return _measure(replace(request, ranks=len(places)), outputs, command, places, servers)
    except LabError as error:
        raise UsageError(f"--lab: {error}") from error


def _hosts_of_ranks(request: Request, hosts: int) -> int:
    if not 0 <= request.servers < hosts:
        raise UsageError(
            f"--servers: {request.servers} of a lab of {hosts} leaves no host for ranks, expected 0 to {hosts - 1}"
        )
    if request.servers and request.collective != "all_reduce":
        raise UsageError(f"--servers: they help all_reduce alone, not {request.collective}")
    return hosts - request.servers


def _measure(
    request: Request,
    outputs: Outputs,
    command: list[str],
    places: tuple[Place, ...] = (),
    servers: tuple[Place, ...] = (),
) -> int:
    plan = request.plan(command, places, servers)
    old = outputs.check(plan)
    if plan.setting.api == "torch":
        from braid._torch.adapter import ensure_adapter

        ensure_adapter()  # here, rather than by all ranks at once
    with Progress() as progress:
        screen = _Screen(progress, len(plan.works))
        code = 0
        try:
            report = run(plan, screen)
        except KeyboardInterrupt:
            found = screen.interrupted()
            if found is None:
                return INTERRUPTED
            report, code = found, INTERRUPTED
    progress.show(table.footer(report))
    if old:
        progress.show(Text(line) for line in ["", *compare.compare(old, report)])
    progress.show(Text(line) for line in outputs.write(report))
    return code or int(_failed(report))


def _failed(report: Report) -> bool:
    reference = report.contestants[0]
    return any(
        reference in case.refused or any(found.wrong for found in case.measurements.values())
        for case in report.cases
    )
