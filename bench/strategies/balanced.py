# SPDX-License-Identifier: Apache-2.0
"""Balanced batches: samples per second when one worker is slower in each sample (LB-BSP, Chen et al. 2020).

Workers sleep for each sample, one of them three times as long, because one machine has no two speeds. All train
the same network with DistributedDataParallel, with equal shares and with braid.data.BalancedSampler, in turns.
Prints samples per second of all workers, the shares at the end, and the gain beside the ideal: with speeds v_i
and n workers, sum(v) / (n min(v)).
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

METHODS = ("equal", "balanced")


def train(rank: int, backend: str, folder: str, options: argparse.Namespace, results: Any) -> None:
    """Train with each method in turns, as one rank."""
    import braid.data
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    class Slow(Dataset[Any]):
        x = torch.randn(options.samples, 16, generator=torch.Generator().manual_seed(1))

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> Any:
            time.sleep(options.sample_ms / 1000 * (options.slower if rank == 0 else 1))
            return self.x[index]

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", options.workers)
    dist.init_process_group(backend, store=store, rank=rank, world_size=options.workers)
    data = Slow()
    for number in range(options.rounds):
        for method in METHODS:
            torch.manual_seed(0)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            if method == "balanced":
                sampler: Any = braid.data.BalancedSampler(data, options.batch, revise_every=options.revise_every)
                sampler.attach(model)
                loader = DataLoader(data, batch_sampler=sampler)
            else:
                sampler = DistributedSampler(data)
                loader = DataLoader(data, batch_size=options.batch, sampler=sampler)
            for epoch in range(options.epochs):
                sampler.set_epoch(epoch)
                dist.barrier()
                begun = time.perf_counter()
                for x in loader:
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                    optimizer.step()
                seconds = time.perf_counter() - begun
                if rank == 0:
                    shares = sampler.shares if method == "balanced" else [options.batch] * options.workers
                    results.put((number, method, epoch, len(data) / seconds, shares))
            dist.barrier()
            del model
    dist.destroy_process_group()


def main() -> None:
    """Run the ranks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slower", type=float, default=3.0, help="rank 0 sleeps so many times as long")
    parser.add_argument("--sample-ms", type=float, default=2.0, help="sleep of the others for a sample")
    parser.add_argument("--batch", type=int, default=16, help="samples of a worker's step, on average")
    parser.add_argument("--samples", type=int, default=1920, help="samples of an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="repeat all")
    parser.add_argument("--revise-every", type=int, default=5)
    parser.add_argument("--backend", default="braid")
    parser.add_argument("--json", help="write all figures there")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=train, args=(rank, options.backend, folder, options, results))
            for rank in range(options.workers)
        ]
        for process in ranks:
            process.start()
        rows = [results.get() for _ in range(options.rounds * len(METHODS) * options.epochs)]
        for process in ranks:
            process.join()
    medians = {}
    print(f"| method | {' | '.join(f'epoch {epoch + 1}' for epoch in range(options.epochs))} | shares |")
    print("|---" * (options.epochs + 2) + "|")
    for method in METHODS:
        cells = []
        for epoch in range(options.epochs):
            found = [rate for _, each, at, rate, _ in rows if each == method and at == epoch]
            medians[method] = statistics.median(found)
            cells.append(f"{medians[method]:.0f} ({min(found):.0f} to {max(found):.0f})")
        shares = [row[4] for row in rows if row[1] == method][-1]
        print(f"| {method} | {' | '.join(cells)} | {shares} |")
    ideal = (1 / options.slower + options.workers - 1) / (options.workers / options.slower)
    gain = medians["balanced"] / medians["equal"]
    print(f"gain in the last epoch {gain:.2f}, ideal {ideal:.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
