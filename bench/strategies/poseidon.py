# SPDX-License-Identifier: Apache-2.0
"""Repeats Poseidon (Zhang et al. 2017) on emulated hosts: plain, wait-free, wait-free with sufficient factors.

A network shaped like VGG19-22K, 50 times smaller: convolutions take the time, linear layers have the parameters.
Computing is sleep. Prints a table of step times, and of the bytes that a host sends, beside the paper's formulas.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOSTS, ROWS = 4, 32
CONVOLUTIONS, CONVOLUTION_SIZE = 8, 50_000
LINEAR = [(1568, 1024), (1024, 1024), (1024, 1408)]  # inputs, outputs: a sixteenth of VGG's fc6, fc7, fc8
FORWARD_S, BACKWARD_S = 0.15, 0.35
WAYS = {"plain": "plain", "wait-free": "wait-free", "factors": "wait-free, sufficient factors"}
STEPS = 6
HEADERS = 66  # bytes of Ethernet, IP and TCP in each packet that a card counts


def network() -> Any:
    import torch
    from torch import nn

    class Pause(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            time.sleep(FORWARD_S / CONVOLUTIONS)
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            time.sleep(BACKWARD_S / CONVOLUTIONS)
            return gradient

    class Convolution(nn.Module):
        """Takes the time of one, and has as many parameters."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(CONVOLUTION_SIZE))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Pause.apply(x * (1 + self.weight.mean()))

    torch.manual_seed(0)
    return nn.Sequential(*(Convolution() for _ in range(CONVOLUTIONS)), *(nn.Linear(*shape) for shape in LINEAR))


def sent_bytes() -> int:
    """Return how many bytes of TCP's payload this host's card has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    cards = (line.split(":") for line in lines)
    counts = [numbers.split()[8:10] for name, numbers in cards if name.strip() != "lo"]
    return sum(int(sent) - HEADERS * int(packets) for sent, packets in counts)


def be_a_rank(way: str) -> None:
    """Train a few steps, and print what each takes as a line of JSON."""
    import braid.hooks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("braid")
    model = network()
    if way == "factors":
        braid.hooks.sufficient_factors(model)
    ddp = DistributedDataParallel(model, bucket_cap_mb=4)
    x = torch.randn(ROWS, LINEAR[0][0], generator=torch.Generator().manual_seed(dist.get_rank()))
    seconds, sent = [], []
    for _ in range(1 + STEPS):  # the first one finds its buckets and plans
        ddp.zero_grad()
        dist.barrier()
        begun, before = time.perf_counter(), sent_bytes()
        if way == "plain":
            with ddp.no_sync():
                ddp(x).square().mean().backward()
            for parameter in reversed(list(model.parameters())):
                dist.all_reduce(parameter.grad)
        else:
            ddp(x).square().mean().backward()
        seconds.append(time.perf_counter() - begun)
        dist.barrier()
        sent.append(sent_bytes() - before)
    print(
        json.dumps({"seconds": statistics.median(seconds[1:]), "bytes": statistics.median(sent[1:])}), flush=True
    )
    dist.destroy_process_group()


def measure(rate: str, way: str) -> dict[str, float]:
    """Return the median step of the slowest host, and the bytes that a host sends in it."""
    from braid.lab import Job, Lab, environments

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    command = [sys.executable, os.path.relpath(__file__), "--rank", way]
    with Lab(f"{HOSTS}x{rate}") as lab:
        places = environments(lab, [1] * HOSTS)
        with Job(places, command, stdout=subprocess.PIPE, text=True) as job:
            told = [json.loads(rank.stdout.readlines()[-1]) for rank in job.ranks]
            if any(codes := job.wait(60)):
                raise SystemExit(f"the ranks ended with {codes}")
    return {
        "seconds": max(each["seconds"] for each in told),
        "bytes": statistics.mean(each["bytes"] for each in told),
    }


def bytes_by_the_paper(way: str) -> float:
    """Return what a host sends in a step: half of the paper's rows, which count receiving, too."""
    whole = CONVOLUTIONS * CONVOLUTION_SIZE + sum(outputs for _, outputs in LINEAR)
    by_server = 2 * (HOSTS - 1) / HOSTS  # numbers sent for each number of a gradient, HOSTS servers and workers
    factors = sum(ROWS * (HOSTS - 1) * (inputs + outputs) for inputs, outputs in LINEAR)
    matrices = sum(inputs * outputs for inputs, outputs in LINEAR)
    numbers = by_server * whole + (factors if way == "factors" else by_server * matrices)
    return 4 * numbers


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="+", default=["100mbit", "200mbit", "2gbit"])
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    options = parser.parse_args()
    rows = []
    print("| link | way | step, s | over plain | sent, MB | over the formula |\n|---|---|---|---|---|---|")
    for rate in options.rates:
        for way, name in WAYS.items():
            row = {"rate": rate, "way": way, "formula": bytes_by_the_paper(way), **measure(rate, way)}
            rows.append(row)
            plain = next(each["seconds"] for each in rows if (each["rate"], each["way"]) == (rate, "plain"))
            step, sent = row["seconds"], row["bytes"]
            print(
                f"| {rate} | {name} | {step:.2f} | {plain / step:.2f}x "
                f"| {sent / 1e6:.2f} | {sent / row['formula']:.3f} |",
                flush=True,
            )
    if options.json:
        from braid._bench.machine import facts

        options.json.write_text(json.dumps({"machine": facts.facts(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
