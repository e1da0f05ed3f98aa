# SPDX-License-Identifier: Apache-2.0
"""A plain loop that times all_reduce, with nothing of ours but the backend, to hold `braid bench` against."""

import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank: int, ranks: int, backend: str, path: str, sizes: list[int]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=dist.FileStore(path, ranks), rank=rank, world_size=ranks)
    for size in sizes:
        x = torch.zeros(size // 4)
        calls = 10000 if size < 1 << 18 else 100
        times = []
        dist.barrier()
        for _ in range(calls):
            start = time.perf_counter()
            dist.all_reduce(x)
            times.append(1e6 * (time.perf_counter() - start))
        times.sort()
        if rank == 0:
            median, mean = times[calls // 2], sum(times) / calls
            print(f"{backend:>6} {size:>10} B {median:>10.1f} us median {mean:>10.1f} us mean", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks, backend, sizes = int(sys.argv[1]), sys.argv[2], [int(size) for size in sys.argv[3:]]
        mp.spawn(rank_main, (ranks, backend, f"{folder}/store", sizes), nprocs=ranks)
