# SPDX-License-Identifier: Apache-2.0
"""Repeats WAP (Shin et al. 2019): how many workers should take part, over batch and bandwidth, on emulated hosts.

A step sleeps for the time that its part of the batch would take, and averages the gradients. `braid advise`
predicts the best number of workers from stated links. The table has its number beside the measured one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HOSTS = 4
GRADIENT_BYTES = 4 << 20
SAMPLE_S, OVERHEAD_S = 1e-3, 10e-3
RATES = ["100mbit", "500mbit", "2gbit"]
BATCHES = [16, 128, 512]
STEPS = 7


def be_a_rank(batches: list[int]) -> None:
    """Measure steps with 1 to HOSTS workers. Rank 0, which always takes part, prints their medians."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("braid")
    rank, gradients = dist.get_rank(), torch.ones(GRADIENT_BYTES // 4)
    groups = [dist.new_group(range(count)) for count in range(1, HOSTS + 1)]
    found = []
    for batch in batches:
        for count, group in enumerate(groups, 1):
            dist.barrier()
            if rank >= count:
                continue
            seconds = []
            for _ in range(1 + STEPS):  # the first one finds its plan
                begun = time.perf_counter()
                time.sleep(OVERHEAD_S + batch / count * SAMPLE_S)
                if count > 1:
                    dist.all_reduce(gradients, dist.ReduceOp.AVG, group=group)
                seconds.append(time.perf_counter() - begun)
            found.append({"batch": batch, "workers": count, "seconds": statistics.median(seconds[1:])})
    dist.barrier()
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def measure(rate: str, batches: list[int]) -> list[dict[str, float]]:
    """Return the median step of each batch and number of workers."""
    from braid.lab import Job, Lab, environments

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    command = [sys.executable, os.path.relpath(__file__), "--rank", *map(str, batches)]
    with (
        Lab(f"{HOSTS}x{rate}") as lab,
        Job(environments(lab, [1] * HOSTS), command, stdout=subprocess.PIPE, text=True) as job,
    ):
        told = [rank.stdout.readlines() for rank in job.ranks]
        if any(codes := job.wait(60)):
            raise SystemExit(f"the ranks ended with {codes}")
    return json.loads(told[0][-1])


def predict(rate: str, batch: int) -> list[float]:
    """Return the predicted step with 1 to HOSTS workers."""
    from braid._advice.candidates import candidates
    from braid._advice.network import Network
    from braid._advice.workload import Worker, Workload
    from braid._links import Card, LinksFile, topology_text
    from braid.lab import parse_rate

    card = Card(parse_rate(rate), parse_rate(rate))
    network = Network(topology_text(LinksFile(50e-6, card.up), [card] * HOSTS, [1] * HOSTS))
    work = Workload(batch, GRADIENT_BYTES, [Worker(SAMPLE_S, OVERHEAD_S)] * HOSTS)
    steps = {}
    for one in candidates(work, network):
        if one.name == "all_reduce":
            steps[len(one.workers)] = batch / one.samples_per_s
    return [steps[count] for count in range(1, HOSTS + 1)]


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank([int(batch) for batch in sys.argv[2:]])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    options = parser.parse_args()
    rows = []
    print(
        "| link | batch | step with 1 to 4 workers, ms | predicted, ms | best | predicted | one worker over four |"
    )
    print("|---|---|---|---|---|---|---|")
    for rate in options.rates:
        found = measure(rate, options.batches)
        for batch in options.batches:
            measured = [row["seconds"] for row in found if row["batch"] == batch]
            predicted = predict(rate, batch)
            best, said = (1 + min(range(HOSTS), key=times.__getitem__) for times in (measured, predicted))
            rows.append({"rate": rate, "batch": batch, "measured_s": measured, "predicted_s": predicted})
            shown = [" ".join(f"{1000 * one:.0f}" for one in times) for times in (measured, predicted)]
            ratio = measured[-1] / measured[0]
            print(f"| {rate} | {batch} | {shown[0]} | {shown[1]} | {best} | {said} | {ratio:.2f}x |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
