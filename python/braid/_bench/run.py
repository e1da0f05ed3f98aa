# SPDX-License-Identifier: Apache-2.0
"""One run: starts the teams, measures size after size, and ends the teams whatever happens."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from braid._bench.machine import bandwidth, facts
from braid._bench.machine.busy import busy_beside
from braid._bench.machine.limit import limit_us
from braid._bench.ranks.contestants import (
    Setting,
    UnavailableError,
    braid_recipe,
    preload,
    recipe_for,
)
from braid._bench.ranks.mpi_libraries import MPI_LIBRARIES
from braid._bench.ranks.team import Team, TeamError
from braid._bench.ranks.teams import teams_for
from braid._bench.results import REFERENCE, Case, Report
from braid._bench.rounds import Budget, CaseRun
from braid._bench.workload import Workload

# All ranks' buffers together: so large that the rate of the largest is that of memory.
_BEYOND_CACHES = 256 << 20
# For measuring the memory's rates, and for all ranks to hear of it.
_RATES_S = 0.5
_LEAD_S = 0.1
# Of the time of all cores, taken by other guests of the host.
_MUCH_STOLEN = 0.02


class Display(Protocol):
    """Who is told while a run goes on."""

    def begin(self, report: Report) -> None:
        """All are started that can be; the machine is known."""

    def turn(self, work: Workload, contestant: str, done: int, planned: int) -> None:
        """A contestant begins its part of a round; 0 planned means as many as time allows."""

    def case(self, report: Report, case: Case) -> None:
        """A size is done."""


@dataclass(frozen=True)
class Plan:
    """All that a run is asked for."""

    setting: Setting
    against: Mapping[str, Path | None]
    works: list[Workload]  # of one collective
    budget: Budget
    settings: dict[str, Any]  # for the report
    command: list[str]
    busy: int = 0  # processes that compute beside the ranks


def run(plan: Plan, display: Display) -> Report:
    """Measure, and return what was found.

    Raises:
        TeamError: braid's own ranks did not come up.
    """
    ranks, work = plan.setting.ranks, plan.works[0]
    report = Report(work.collective, plan.settings, [REFERENCE], command=plan.command)
    recipes = [braid_recipe(plan.setting, work.collective)]
    for name, folder in plan.against.items():
        try:
            recipes.append(recipe_for(name, folder, plan.setting))
        except UnavailableError as error:
            report.skipped[name] = str(error)
    report.machine = facts.facts()
    with teams_for(recipes, ranks, preload(list(plan.against), plan.setting)) as (teams, failed):
        if REFERENCE in failed:
            raise TeamError(f"braid's own ranks did not start: {failed[REFERENCE]}")
        report.skipped |= failed
        report.contestants = list(teams)
        largest = max(work.bytes for work in plan.works)
        sizes = bandwidth.sizes_up_to(max(largest, _BEYOND_CACHES // ranks))
        rates = _rates(teams[REFERENCE], sizes)
        alone = _rates_alone(teams[REFERENCE], sizes) if work.collective == "ping_pong" else None
        report.machine |= {"copy_gb_s": rates.copy_gb_s, "add_gb_s": rates.add_gb_s}
        about = {name: team.ask("about")[0] for name, team in teams.items()}
        report.machine["contestants"] = about
        report.machine["versions"] |= {name: about[name] for name in about if name in MPI_LIBRARIES}
        disturbance = facts.Disturbance()
        display.begin(report)
        with busy_beside(plan.busy):
            for work in plan.works:
                case = _case(teams, work, plan, display)
                # The limit is what host memory allows.
                if not (plan.setting.hosts or plan.setting.places or plan.setting.device):
                    case.limit_us = limit_us(work.collective, work.bytes, ranks, work.in_place, rates, alone)
                report.cases.append(case)
                display.case(report, case)
        report.machine |= disturbance.so_far()
        _note_disturbance(report)
        if not teams[REFERENCE].failure and (lost := teams[REFERENCE].servers_lost()):
            report.notes.append(f"{lost} of {len(plan.setting.servers)} servers ended before the run did")
    return report


def _case(teams: Mapping[str, Team], work: Workload, plan: Plan, display: Display) -> Case:
    def on_turn(contestant: str, done: int, planned: int) -> None:
        display.turn(work, contestant, done, planned)

    return CaseRun(teams, work, plan.setting.ranks, plan.budget, on_turn).run()


def _rates(team: Team, sizes: list[int]) -> bandwidth.Rates:
    team.ask("prepare_rates", max(sizes))
    return bandwidth.combine(team.ask("rates", sizes, _RATES_S, time.perf_counter() + _LEAD_S))


def _rates_alone(team: Team, sizes: list[int]) -> bandwidth.Rates:
    return bandwidth.combine(team.ask("rates_alone", sizes, _RATES_S)[:1])


def _note_disturbance(report: Report) -> None:
    share = report.machine.get("steal_share")
    if share is not None and share > _MUCH_STOLEN:
        report.notes.append(f"other guests of this host had {100 * share:.0f} % of the cores' time")
