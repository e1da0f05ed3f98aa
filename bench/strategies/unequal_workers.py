# SPDX-License-Identifier: Apache-2.0
"""Trains digits on workers of unequal speed: DDP beside the modes of ``braid.strategies.ParameterServer``.

A worker computes its gradient, then sleeps for the rest of its step time. So two cores can play four machines, and
the ideal is known: ``sum(1 / t)`` steps a second without waiting, ``n / max(t)`` with it (Kim 2020, Campos 2017).
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

PROFILE_S = [0.025, 0.025, 0.05, 0.1]
BATCH = 32


def work(rank: int, mode: str, seconds: float, seed: int, folder: str, results: "multiprocessing.Queue") -> None:
    import braid.strategies as bs
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    ranks = len(PROFILE_S)
    store = dist.FileStore(f"{folder}/store")
    dist.init_process_group("braid", store=store, rank=rank, world_size=ranks)
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    targets = torch.tensor(digits.target)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    test, train = order[:360], order[360:]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    loss_of = torch.nn.CrossEntropyLoss()
    draw = torch.Generator().manual_seed(1000 * seed + rank)

    trained: torch.nn.Module = model
    if mode == "ddp":
        trained = torch.nn.parallel.DistributedDataParallel(model)
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        name, _, bound = mode.partition(":")
        delay = 1 if name == "async_delayed" else 0
        optimizer = bs.ParameterServer(
            model,
            torch.optim.SGD,
            lr=0.1 if name == "sync" else 0.1 / ranks,
            mode=name.removesuffix("_delayed"),
            delay=delay,
            **({"staleness": int(bound)} if bound else {}),
        )
    curve: list[tuple[float, int, float]] = []
    steps = 0
    dist.barrier()
    begun = time.perf_counter()
    while True:
        # All stop in the same step where they wait for each other.
        over = torch.tensor(float(time.perf_counter() - begun > seconds))
        if mode == "ddp":
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over > 0 and mode != "sync":
            break
        if mode == "sync" and steps >= seconds / max(PROFILE_S):
            break
        step_begun = time.perf_counter()
        batch = train[torch.randint(len(train), (BATCH,), generator=draw)]
        optimizer.zero_grad()
        loss_of(trained(inputs[batch]), targets[batch]).backward()
        time.sleep(max(0.0, PROFILE_S[rank] - (time.perf_counter() - step_begun)))
        optimizer.step()
        steps += 1
        if rank == 0 and steps % 20 == 0:
            with torch.no_grad():
                accuracy = (model(inputs[test]).argmax(1) == targets[test]).float().mean().item()
            curve.append((time.perf_counter() - begun, steps, accuracy))
    elapsed = time.perf_counter() - begun
    counters = {} if mode == "ddp" else optimizer.stats()
    if mode != "ddp":
        with optimizer.centre():
            pass
    with torch.no_grad():
        accuracy = (model(inputs[test]).argmax(1) == targets[test]).float().mean().item()
    if mode != "ddp":
        optimizer.close()
    results.put(
        {"rank": rank, "steps": steps, "seconds": elapsed, "accuracy": accuracy, "curve": curve,
         "staleness": list(counters.get("staleness", [])), "exposed_us": counters.get("exposed_us", 0.0)}
    )  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()


def run(mode: str, seconds: float, seed: int) -> list[dict]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(rank, mode, seconds, seed, folder, results))
            for rank in range(len(PROFILE_S))
        ]
        for worker in workers:
            worker.start()
        rows = [results.get(timeout=seconds * 4 + 120) for _ in workers]
        for worker in workers:
            worker.join()
    return sorted(rows, key=lambda row: row["rank"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of training, each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--modes", default="ddp,sync,ssp:3,async,async_delayed")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("BRAID_LINKS", "assume")
    ideal = sum(1 / t for t in PROFILE_S) / (len(PROFILE_S) / max(PROFILE_S))
    print(f"step times {PROFILE_S} s, batch {BATCH}: without waiting {ideal:.2f} times the samples of waiting\n")
    table = []
    for mode in arguments.modes.split(","):
        rates, accuracies, stale = [], [], []
        for seed in range(arguments.seeds):
            rows = run(mode, arguments.seconds, seed)
            rates.append(sum(row["steps"] * BATCH / row["seconds"] for row in rows))
            accuracies.append(rows[0]["accuracy"])
            counts = [sum(column) for column in zip(*(row["staleness"] for row in rows), strict=True)]
            if sum(counts):
                stale.append(sum(i * count for i, count in enumerate(counts)) / sum(counts))
        row = {"mode": mode, "samples_per_s": statistics.median(rates), "accuracy": statistics.mean(accuracies),
               "accuracy_spread": max(accuracies) - min(accuracies),
               "staleness": statistics.median(stale) if stale else 0.0}  # fmt: skip
        table.append(row)
        gain = row["samples_per_s"] / table[0]["samples_per_s"]
        print(f"{mode:14} {row['samples_per_s']:8.0f} samples/s ({gain:.2f}x)  accuracy {row['accuracy']:.3f} "
              f"+- {row['accuracy_spread'] / 2:.3f}  staleness {row['staleness']:.2f}", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
