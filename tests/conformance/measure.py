# SPDX-License-Identifier: Apache-2.0
"""Tries each cell of docs/conformance.md on three ranks with a group of its own, on Gloo or on braid."""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import braid  # noqa: F401  (registers the backend where autoload is off)
import torch
import torch.distributed as dist
from braid._torch.adapter import load_adapter
from call_cells import small_groups  # the module adds its cases to SPECIAL
from cells import DTYPES, RANKS, REDUCING, REDUCTIONS, SUMMING, WrongError
from moving_cells import MOVING
from special_cells import SPECIAL

BACKENDS = ("braid", "gloo")
TIMEOUT_S = 5.0  # of the group; a cell that outlasts it several times hangs
assert small_groups in SPECIAL

# What can become of a cell. The last in this order that a rank saw counts: one that found something wrong
# leaves, and the others wait for it in vain.
RIGHT, REFUSED, HANGS, WRONG, CRASHES = "right", "refused", "hangs", "wrong", "crashes"
_ORDER = (RIGHT, REFUSED, HANGS, WRONG, CRASHES)
Key = str  # "reduce/all_reduce/SUM/f32", "move/broadcast/f32", "special/bool_sum"


def all_keys() -> list[Key]:
    return [
        *(f"reduce/{op}/{reduction}/{dtype}" for op in REDUCING for reduction in REDUCTIONS for dtype in DTYPES),
        *(f"sum/{op}/{dtype}" for op in SUMMING for dtype in DTYPES),
        *(f"move/{op}/{dtype}" for op in MOVING for dtype in DTYPES),
        *(f"special/{function.__name__}" for function in SPECIAL),
    ]


def _try(key: Key, rank: int) -> None:
    kind, name, *rest = key.split("/")
    if kind == "reduce":
        REDUCING[name](rank, DTYPES[rest[1]], rest[0])
    elif kind == "sum":
        SUMMING[name](rank, DTYPES[rest[0]], "SUM")
    elif kind == "move":
        MOVING[name](rank, DTYPES[rest[0]])
    else:
        next(function for function in SPECIAL if function.__name__ == name)(rank)


def _verdict(key: Key, rank: int) -> tuple[str, str]:
    try:
        _try(key, rank)
    except WrongError as error:
        return WRONG, str(error).splitlines()[0]
    except Exception as error:
        slow = "imed out" in str(error) or "imeout" in str(error)
        return (HANGS if slow else REFUSED), f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return RIGHT, ""


def _run_rank(rank: int, backend: str, keys: Sequence[Key], folder: Path) -> None:
    log = os.open(folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    with (folder / f"verdicts.{rank}").open("a") as verdicts:
        for key in keys:
            # Nobody begins a cell before all have left the last: a rank that gave up early would disturb them.
            _meet(store, key)
            dist.init_process_group(
                backend,
                store=dist.PrefixStore(key, store),
                rank=rank,
                world_size=RANKS,
                timeout=timedelta(seconds=TIMEOUT_S),
            )
            verdict = _verdict(key, rank)
            print(json.dumps([key, *verdict]), file=verdicts, flush=True)
            _meet(store, key + " is over")
            dist.destroy_process_group()


def _meet(store: dist.Store, place: str) -> None:
    store.add(place, 1)
    while store.add(place, 0) < RANKS:
        time.sleep(0.001)


def _read(folder: Path) -> Iterator[tuple[Key, list[tuple[str, str]]]]:
    """Yield what each rank said of each cell, as far as all ranks came."""
    files = [folder / f"verdicts.{rank}" for rank in range(RANKS)]
    lines = [
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [] for path in files
    ]
    for said in zip(*lines, strict=False):
        yield said[0][0], [(verdict, why) for _, verdict, why in said]


def _supervise(processes: Sequence[BaseProcess], folder: Path) -> str:
    """Wait until all ranks are done, one has died, or none has got further for long; return which."""
    progress, since = -1, time.monotonic()
    while any(process.is_alive() for process in processes):
        if any(process.exitcode not in (None, 0) for process in processes):
            return CRASHES
        done = sum(1 for _ in _read(folder))
        if done != progress:
            progress, since = done, time.monotonic()
        if time.monotonic() - since > 4 * TIMEOUT_S:
            return HANGS
        processes[0].join(0.1)
    return CRASHES if any(process.exitcode != 0 for process in processes) else RIGHT


def measure(backend: str, keys: Sequence[Key], *, tell: bool = False) -> dict[Key, list[str]]:
    """Return for each cell its verdict and, where it is not right, a line that says why."""
    if backend == "braid":
        load_adapter()
    measured: dict[Key, list[str]] = {}
    left = list(keys)
    context = multiprocessing.get_context("fork")
    while left:
        with tempfile.TemporaryDirectory(prefix="braid-cells-") as name:
            folder = Path(name)
            processes = [context.Process(target=_run_rank, args=(r, backend, left, folder)) for r in range(RANKS)]
            for process in processes:
                process.start()
            end = _supervise(processes, folder)
            for process in processes:
                if process.is_alive():
                    os.kill(process.pid or 0, signal.SIGKILL)
                process.join()
            for key, said in _read(folder):
                measured[key] = list(max(said, key=lambda one: _ORDER.index(one[0])))
            left = left[len({*left} & {*measured}) :]
            if end != RIGHT and left:
                log = "".join(path.read_text(errors="replace") for path in folder.glob("log.*")).strip()
                measured[left.pop(0)] = [end, (log.splitlines() or [""])[-1]]
        if tell:
            print(f"{backend}: {len(measured)} of {len(keys)} cells", file=sys.stderr, flush=True)
    return measured


def verdicts_of(measured: Mapping[Key, Sequence[str]]) -> dict[Key, str]:
    return {key: said[0] for key, said in measured.items()}


if __name__ == "__main__":
    chosen = [key for key in all_keys() if len(sys.argv) < 3 or sys.argv[2] in key]
    for cell, outcome in measure(sys.argv[1], chosen).items():
        print(f"{cell}: {': '.join(filter(None, outcome))}")
