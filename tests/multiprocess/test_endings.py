# SPDX-License-Identifier: Apache-2.0
"""Every strategy, with a model of all kinds of state, and every way in which a script can end.

Looked at are exit codes, standard error, and the values: those of one worker's plain training where the strategy
must equal it, else the same ones on all ranks. `make test` runs each strategy and each model with each ending.
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from ending_scripts import ENDINGS, MODELS, RANK_0_FIRST, RANKS, STEPS, Cell, odd, tensors_of
from slowness import limit
from torch import Tensor
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

# Where all workers have the same batches, these compute what one alone computes.
AS_ALONE = (
    "parameter_server:mode=sync",
    "parameter_server:mode=sync,servers=1",
    "hybrid:groups=0+1,rate_rule=none",
    "local:sync_every=2",
    "diloco:sync_every=2,outer_lr=1.0,outer_momentum=0.0",
    "diloco:sync_every=2,outer_lr=1.0,outer_momentum=0.0,num_fragments=2",
)
STRATEGIES = (
    *AS_ALONE,
    "local:sync_every=2,quorum=2",
    "parameter_server:mode=async",
    "parameter_server:mode=ssp,staleness=2,buffers=broadcast",
    "parameter_server:mode=async,local=true",
    "hybrid:groups=0/1",
    "elastic:sync_every=2",
    "elastic:sync_every=2,schedule=sync1",
    "gossip",
    "gossip:mode=push_sum",
)
# Of these, workers need not wait for each other at the end.
AT_OWN_SPEED = ("parameter_server:mode=async", "hybrid:groups=0/1", "elastic:sync_every=2", "gossip")
SETTLED = [name for name, code in ENDINGS.items() if code == 0]


def scripts(part: int, turn: int) -> list[Cell]:
    """Return every third strategy with each ending; the models by turns, so that each meets all endings."""
    cells = itertools.product(list(enumerate(STRATEGIES))[part::3], enumerate(ENDINGS))
    return [
        Cell(strategy, MODELS[(place + step + turn) % len(MODELS)], ending)
        for (place, strategy), (step, ending) in cells
    ]


def plain() -> dict[str, Tensor]:
    """Return what a worker alone computes, without a strategy."""
    model = odd(0)
    optimizer = SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(5, 4, generator=torch.Generator().manual_seed(step))).backward()
        optimizer.step()
    return {name: each.detach() for name, each in tensors_of(model).items()}


def faults(cell: Cell, folder: Path, alone: dict[str, Tensor]) -> Iterator[str]:
    """Say all that is wrong with a script's end."""
    codes = json.loads((folder / "codes").read_text())
    if codes != [ENDINGS.get(cell.ending, 0)] * RANKS:
        yield f"exit codes {codes}"
    states = []
    for rank in range(RANKS):
        said = (folder / f"{rank}.log").read_text()
        lines = re.sub(r"^\[rank\d\]: ?", "", said, flags=re.MULTILINE).splitlines()
        others = [line for line in lines if line and not line.startswith(("braid: ", "braid 0"))]
        if cell.ending == "raises":
            if said.count("Traceback") != 1 or others[-1:] != ["ValueError: on purpose"]:
                yield f"rank {rank} says {said}"
        elif others:
            yield f"rank {rank} says {said}"
        states.append(torch.load(folder / f"{rank}.pt") if (folder / f"{rank}.pt").exists() else {})
    if cell.ending not in SETTLED or cell.model == "strategy":
        return
    first, second = states
    for name, value in alone.items():
        try:
            torch.testing.assert_close(first[name], second[name])
            # Parameter servers average buffers one worker after the other, so these lag.
            is_exact = name.endswith("weight") or not cell.strategy.startswith("parameter_server")
            if cell.strategy in AS_ALONE and is_exact:
                torch.testing.assert_close(first[name], value)
        except (AssertionError, KeyError) as error:
            yield f"{name}: {error!r}"


def check(cells: list[Cell], folder: Path) -> None:
    (folder / "cells.json").write_text(json.dumps([[cell.strategy, cell.model, cell.ending] for cell in cells]))
    script = Path(__file__).with_name("ending_scripts.py")
    subprocess.run(
        [sys.executable, str(script), str(folder / "cells.json"), str(folder)],
        check=True,
        timeout=limit(60 * len(cells)),
    )
    alone = plain()
    found = [
        f"{cell.strategy}, {cell.model}, {cell.ending}: {fault}"
        for place, cell in enumerate(cells)
        for fault in faults(cell, folder / str(place), alone)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("part", range(3))
def test_every_ending_of_every_strategy(tmp_path: Path, part: int) -> None:
    check(scripts(part, 0), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("turn", [1, 2, 3, 4])
def test_every_ending_with_other_models(tmp_path: Path, turn: int, part: int) -> None:
    check(scripts(part, turn), tmp_path)


def test_rank_0_ends_first(tmp_path: Path) -> None:
    check([Cell(strategy, "strategy", RANK_0_FIRST) for strategy in AT_OWN_SPEED], tmp_path)
