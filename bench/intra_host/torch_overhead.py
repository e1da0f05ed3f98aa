# SPDX-License-Identifier: Apache-2.0
"""How long a small all_reduce takes through torch, and how much of that is torch's own.

torch's "fake" backend does nothing, so its time is what Python and torch's dispatcher cost. Run it on two ranks:

    torchrun --nproc-per-node 2 bench/intra_host/torch_overhead.py
"""

import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

ROUNDS = 11
CALLS = 1000
BACKENDS = ["fake", "braid"]


def best_us(backend: str, number: int, job: dist.Store) -> float:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = FakeStore() if backend == "fake" else dist.PrefixStore(f"round {number}", job)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    tensor = torch.zeros(2)
    best = float("inf")
    for _ in range(10):
        begun = time.perf_counter()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        best = min(best, (time.perf_counter() - begun) / CALLS)
    dist.destroy_process_group()
    return best * 1e6


def main() -> None:
    torch.set_num_threads(1)
    job, rank, _ = next(dist.rendezvous("env://"))
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for number in range(ROUNDS):
        for backend in BACKENDS:
            times[backend].append(best_us(backend, number, job))
    if rank == 0:
        for backend, taken in times.items():
            print(
                f"{backend:6} all_reduce of 8 bytes: {statistics.median(taken):.2f} us, {min(taken):.2f} at best"
            )


if __name__ == "__main__":
    main()
