# SPDX-License-Identifier: Apache-2.0
"""Repeats the claim of MiMatrix (Chen et al. 2018): control costs the same whatever the tensor and the ranks.

Its job server controls and carries no data. braid's coordinator is the store at which ranks meet. Here it
stands on a host of its own. The table has the bytes that pass that host in a step of one all_reduce, and the bytes
that a rank sends beyond the data that a ring moves.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

STEPS, WARM_UP = 20, 5
SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20]
HEADERS = 66  # bytes of Ethernet, IP and TCP in each packet that a card counts
PORT = 29_700


def card() -> dict[str, int]:
    """Return bytes of payload and packets that this host's card has received and sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    (numbers,) = (line.split(":")[1].split() for line in lines if line.split(":")[0].strip() != "lo")
    got, got_packets, sent, sent_packets = (int(numbers[i]) for i in (0, 1, 8, 9))
    return {
        "received": got - HEADERS * got_packets,
        "sent": sent - HEADERS * sent_packets,
        "packets": got_packets + sent_packets,
    }


def be_the_coordinator() -> None:
    """Be the store; answer each line of input with the counters of the card."""
    import torch.distributed as dist

    store = dist.TCPStore("0.0.0.0", PORT, is_master=True, wait_for_workers=False)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(card()), flush=True)
    del store


def be_a_rank(host: str, rank: int, ranks: int) -> None:
    """For each size: print what the steps sent, and wait for a line of input before and after."""
    import torch
    import torch.distributed as dist

    store = dist.TCPStore(host, PORT, is_master=False)
    dist.init_process_group("braid", store=store, rank=rank, world_size=ranks)
    for size in SIZES:
        x = torch.ones(size // 4)
        for _ in range(WARM_UP):
            dist.all_reduce(x)
        time.sleep(0.5)
        print("warm", flush=True)
        sys.stdin.readline()
        before = card()
        for _ in range(STEPS):
            dist.all_reduce(x)
        time.sleep(0.2)
        print(json.dumps({"sent": (card()["sent"] - before["sent"]) / STEPS}), flush=True)
        sys.stdin.readline()
    dist.destroy_process_group()


def measure(rate: str, ranks: int) -> list[dict[str, float]]:
    """Return a row for each size."""
    from braid.lab import Job, Lab, environments

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    script = os.path.relpath(__file__)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    rows = []
    with Lab(f"{ranks + 1}x{rate}") as lab:
        places = environments(lab, [1] * (ranks + 1))
        server = lab.hosts[-1]
        with Job(places[-1:], [sys.executable, script, "--coordinator"], **pipes) as control:
            (store,) = control.ranks
            store.stdout.readline()
            command = [sys.executable, script, "--rank", server.address, str(ranks)]
            with Job(places[:-1], command, **pipes) as job:

                def ask() -> dict[str, int]:
                    store.stdin.write("\n")
                    return json.loads(store.stdout.readline())

                def hear() -> list[str]:
                    return [rank.stdout.readline() for rank in job.ranks]

                for size in SIZES:
                    hear()
                    before = ask()
                    for rank in job.ranks:
                        rank.stdin.write("\n")
                    told = [json.loads(line) for line in hear()]
                    after = ask()
                    for rank in job.ranks:
                        rank.stdin.write("\n")
                    moved = 2 * (ranks - 1) / ranks * size
                    passed = {name: (after[name] - before[name]) / STEPS for name in after}
                    rows.append(
                        {
                            "ranks": ranks,
                            "bytes": size,
                            "coordinator": passed["sent"] + passed["received"],
                            "packets": passed["packets"],
                            "beyond": statistics.mean(each["sent"] for each in told) - moved,
                            "moved": moved,
                        }
                    )
                if any(codes := job.wait(60)):
                    raise SystemExit(f"the ranks ended with {codes}")
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--coordinator"]:
        be_the_coordinator()
        return
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(os.environ["RANK"]), int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3, 5, 8])
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    options = parser.parse_args()
    print("| ranks | tensor, KiB | coordinator, B | its packets | a rank beyond the data, B | share |")
    print("|---|---|---|---|---|---|")
    rows = []
    for ranks in options.ranks:
        for row in measure(options.rate, ranks):
            rows.append(row)
            print(
                f"| {ranks} | {row['bytes'] >> 10} | {row['coordinator']:.1f} | {row['packets']:.2f} "
                f"| {row['beyond']:.0f} | {100 * row['beyond'] / row['moved']:.2f} % |",
                flush=True,
            )
    if options.json:
        from braid._bench.machine import facts

        options.json.write_text(json.dumps({"machine": facts.facts(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
