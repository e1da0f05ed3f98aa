# SPDX-License-Identifier: Apache-2.0
"""What the measurements of this folder share: members as processes, and one table with goals and results."""

import json
import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 120.0  # of one measurement, all processes together


@dataclass
class Row:
    """One line of a table.

    Attributes:
        what: what was measured.
        result: the number that the goal is about.
        unit: of it.
        goal: the number that `result` should reach; None if there is no goal.
        is_at_most: whether a smaller result is a better one.
        beside: what it was measured beside, or other numbers of the same run.
    """

    what: str
    result: float
    unit: str
    goal: float | None
    is_at_most: bool = True
    beside: str = ""

    def line(self) -> str:
        """Return the line in Markdown."""
        if self.goal is None:
            return f"| {self.what} | {self.result:.4g} {self.unit} | | | {self.beside} |"
        is_met = self.result <= self.goal if self.is_at_most else self.result >= self.goal
        bound = "at most" if self.is_at_most else "at least"
        verdict = "met" if is_met else "**missed**"
        return (
            f"| {self.what} | {self.result:.4g} {self.unit} | {bound} {self.goal:g} | {verdict} | {self.beside} |"
        )


def report(rows: list[Row], path: Path | None) -> None:
    """Print the table; write the numbers to `path` if there is one."""
    print("| | result | goal | | beside it |\n|---|---|---|---|---|")
    for row in rows:
        print(row.line())
    if path:
        from braid._bench.machine import facts

        numbers = {"machine": facts.facts(), "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(numbers, indent=1) + "\n")


def _member(body: Callable[..., Any], rank: int, folder: str, results: Any, arguments: tuple[Any, ...]) -> None:
    found = body(rank, folder, *arguments)
    results.put((rank, found))


def on_members(
    count: int, body: Callable[..., Any], *arguments: Any, killed: tuple[int, ...] = (), at: Any = None
) -> dict[int, Any]:
    """Run ``body(rank, folder, *arguments)`` in `count` processes. Return what each gave, by rank.

    Args:
        count: how many processes.
        body: a function of a module, so that it can be sent to them.
        arguments: given to all.
        killed: ranks that give nothing, because `at` kills them.
        at: called with the list of processes and the folder once all have begun.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        members = [
            context.Process(target=_member, args=(body, rank, folder, results, arguments), daemon=True)
            for rank in range(count)
        ]
        for member in members:
            member.start()
        if at is not None:
            at(members, Path(folder))
        found = dict(results.get(timeout=LIMIT_S) for _ in range(count - len(killed)))
        for member in members:
            member.join(LIMIT_S)
    return found
