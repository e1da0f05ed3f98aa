# SPDX-License-Identifier: Apache-2.0
"""What benchmarks of strategies share: the digits, batches in one order, and trainings in a lab."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

BATCH, HIDDEN, RATE = 32, 768, 0.003


@functools.cache
def data() -> tuple[Any, Any, int]:
    """Return all images and labels, and where the test images begin."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16
    return images, torch.tensor(digits.target)[order], len(order) * 4 // 5


def network() -> Any:
    """Return the network that all methods train."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def own_address() -> str:
    """Return the address of this host's card."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return str(probe.getsockname()[0])


def batches(seed: int, steps: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield the number of the step, from 1 on, and this rank's images and labels."""
    import torch
    import torch.distributed as dist

    images, labels, split = data()
    chance, step = torch.Generator().manual_seed(1000 * seed + 1), 0
    while True:
        order = torch.randperm(split, generator=chance)[dist.get_rank() :: dist.get_world_size()]
        for part in order.split(BATCH)[:-1]:
            if step == steps:
                return
            step += 1
            yield step, images[part], labels[part]


def train_all(
    train: Callable[[str, int], dict[str, Any]], methods: Sequence[str], arguments: argparse.Namespace
) -> None:
    """Do all trainings as one rank; methods take turns, so that a slower machine slows all of them.

    Args:
        train: trains with a method and a seed, and returns what this worker saw.
        methods: all there are; `arguments.methods` names some of them.
        arguments: with `methods`, `seeds` and `rank_writes`, where rank 0 writes what all saw.
    """
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("braid")
    methods = arguments.methods.split(";") if arguments.methods else methods
    found: dict[str, list[Any]] = {name: [] for name in methods}
    for seed in range(arguments.seeds):
        for name in methods:
            told: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(told, train(name, seed))
            found[name].append(told)
    if dist.get_rank() == 0:
        Path(arguments.rank_writes).write_text(json.dumps(found))
    dist.destroy_process_group()


def in_lab(
    hosts: str, per_host: Sequence[int], script: str, arguments: argparse.Namespace, names: Sequence[str]
) -> dict[str, list[Any]]:
    """Run a script on emulated hosts; return what train_all() wrote, by method and seed.

    Args:
        hosts: in the words of `braid lab`.
        per_host: ranks on each host.
        script: its file.
        arguments: what the script was started with; `limit_s` is the most seconds of all trainings.
        names: of the arguments that ranks get, too.
    """
    from braid._rivals import has_finished
    from braid.lab import Job, Lab, environments

    with tempfile.TemporaryDirectory() as folder, Lab(hosts) as lab:
        written, log = Path(folder) / "found.json", Path(folder) / "log"
        command = [sys.executable, os.path.abspath(script), "--rank-writes", str(written)]  # noqa: PTH100
        for name in names:
            command += [f"--{name}", str(getattr(arguments, name.replace("-", "_")))]
        with (
            log.open("wb") as file,
            Job(environments(lab, list(per_host)), command, stdout=file, stderr=subprocess.STDOUT) as job,
        ):
            codes = job.wait(timeout_s=arguments.limit_s)
        if not has_finished(codes, [written]):
            raise SystemExit(f"ranks ended with {codes}:\n{log.read_text()[-3000:]}")
        found: dict[str, list[Any]] = json.loads(written.read_text())
        return found
