# SPDX-License-Identifier: Apache-2.0
"""Runs training scripts that end in all ways, each on two ranks: `python ending_scripts.py CELLS.json FOLDER`.

One process imports torch and forks the ranks, which takes milliseconds in place of seconds. A rank comes to the
last lines of this file, as a script comes to its own. So Python ends as it does for a script.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import braid.strategies as bs  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from braid._torch.adapter import load_adapter  # noqa: E402
from odd_model import Odd  # noqa: E402
from ports import free_port  # noqa: E402
from slowness import limit  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.optim import SGD  # noqa: E402

RANKS, STEPS = 2, 5
# How scripts hold their model: with braid's own strategies, or unedited, in DistributedDataParallel.
MODELS = ("strategy", "ddp", "compiled", "bf16 by default", "float64 by default")
ENDINGS = {
    "destroys in a function": 0,
    "destroys": 0,
    "destroys twice": 0,
    "never destroys": 0,
    "raises": 1,
    "exits": 3,
    "has forked": 0,
}
# Rank 0, which has the store, ends while rank 1 still is in its training.
RANK_0_FIRST = "rank 0 first"


@dataclass(frozen=True)
class Cell:
    """One script: a strategy, a kind of model, an ending."""

    strategy: str
    model: str
    ending: str


def odd(rank: int) -> Odd:
    """Return a model whose gradients are the same on all ranks, once its shared state is."""
    torch.manual_seed(rank)
    model = Odd(rank)
    torch.nn.init.ones_(model.expert)
    return model


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The shared tensors by name. They can outlive their module."""
    own = ("expert", "mine", "highest", "unknown")
    return {name: each for name, each in (*model.named_parameters(), *model.named_buffers()) if name not in own}


def trained(cell: Cell, rank: int) -> dict[str, Tensor]:
    """Train as a script does. Both ranks have the same batches, so one alone computes the same."""
    model = odd(rank)
    if cell.model.endswith("by default"):
        torch.set_default_dtype(torch.bfloat16 if cell.model.startswith("bf16") else torch.float64)
    optimizer: Any = SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    called: nn.Module = model
    if cell.model == "strategy":
        strategy = bs.from_text(cell.strategy, model, optimizer)
        optimizer = strategy if isinstance(strategy, bs.ParameterServer) else optimizer
    else:
        inside: Any = torch.compile(model, backend="eager") if cell.model == "compiled" else model
        called = DistributedDataParallel(inside)
    for step in range(STEPS):
        x = torch.randn(5, 4, dtype=torch.float32, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        called(x).backward()
        optimizer.step()
    if cell.model == "strategy" or cell.ending in ("raises", "exits"):
        dist.barrier()  # who needs the server in a rank that has ended gets an error
    return tensors_of(model)


def run(cell: Cell, rank: int, folder: Path) -> None:
    """The script, from its first line to its last."""
    values: dict[str, Tensor] = {}
    mine = os.getpid()

    @atexit.register  # first, so it is called last
    def save() -> None:
        if os.getpid() == mine:
            torch.save({name: each.detach() for name, each in values.items()}, folder / f"{rank}.pt")

    if cell.model != "strategy":
        importlib.import_module("braid._unedited.install").install(cell.strategy)
    dist.init_process_group("braid")
    values.update(trained(cell, rank))
    if cell.ending == "raises":
        raise ValueError("on purpose")
    if cell.ending == "exits":
        sys.exit(3)
    if cell.ending == "has forked":
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
    if cell.ending == RANK_0_FIRST and rank == 1:
        select.select([os.pidfd_open(int(os.environ["RANK_0"]))], [], [])
        threading.Event().wait(0.5)  # time for a thread that asks the store
    if cell.ending in ("destroys in a function", "destroys twice"):
        dist.destroy_process_group()
    if cell.ending == "destroys twice":
        with contextlib.suppress(AssertionError):  # of torch, as with Gloo
            dist.destroy_process_group()


def wait_for_all(processes: dict[int, int], until: float) -> dict[int, int]:
    """Return the exit code of each rank, given its process; -6 of those that have to be ended."""
    codes = {}
    for rank, process in processes.items():
        end = os.pidfd_open(process)
        if not select.select([end], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(process, signal.SIGABRT)  # it writes where it stands
        codes[rank] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.close(end)
    return codes


def fork_ranks(cells: list[Cell], folder: Path) -> tuple[Cell, int, Path] | None:
    """Fork the ranks of one cell after the other. Return in each rank what it has to run, at the end None."""
    for place, cell in enumerate(cells):
        here = folder / str(place)
        here.mkdir()
        port, processes = free_port(), {}
        for rank in range(RANKS):
            processes[rank] = os.fork()
            if processes[rank] == 0:
                said = os.open(here / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
                os.dup2(said, 1)
                os.dup2(said, 2)
                faulthandler.enable()
                os.environ.update(
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS)
                )
                os.environ["RANK_0"] = str(processes[0])
                if cell.model != "strategy":
                    os.environ["BRAID_STRATEGY"] = cell.strategy
                return cell, rank, here
        codes = wait_for_all(processes, time.monotonic() + limit(60))
        (here / "codes").write_text(json.dumps([codes[rank] for rank in range(RANKS)]))
    return None


if __name__ == "__main__":
    importlib.import_module("torch._dynamo")  # DistributedDataParallel imports it
    load_adapter()
    gc.freeze()
    mine = fork_ranks([Cell(*words) for words in json.loads(Path(sys.argv[1]).read_text())], Path(sys.argv[2]))
    if mine is not None:
        run(*mine)
        if mine[0].ending == "destroys":
            dist.destroy_process_group()
