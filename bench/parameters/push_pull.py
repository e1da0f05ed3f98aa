# SPDX-License-Identifier: Apache-2.0
"""64 MiB pushed and pulled by every rank of four emulated hosts, beside the bound that the network cards set.

Every host has a worker and a server. In a step each worker pushes and pulls the whole vector of S bytes. Host i
holds the share x_i of the vector, so its card carries (1 + (n - 2) x_i) S each way. The bound is the longest of
these times, with the shares that braid has chosen. Needs root, as `braid lab` does.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import LIMIT_S, Row, report

WARM_UP = 2
CARRIED = 0.957  # of a card's rate, by TCP: docs/lab.md
GOAL = 1.10
HOSTS = 4
EQUAL, UNEQUAL = [1000.0] * HOSTS, [500.0, 1000.0, 1000.0, 1000.0]  # Mbit/s


def be_a_rank(mib: float, steps: int) -> None:
    """Push and pull; print the seconds of a step, and this rank's view of the shards."""
    import braid
    import numpy as np

    elements = int(mib * 2**20) // 4
    with braid.Parameters("env://", elements=elements, timeout_s=LIMIT_S) as parameters:
        values = parameters.start(np.zeros(elements, np.float32))
        update = np.ones(elements, np.float32)
        times = []
        for _ in range(WARM_UP + steps):
            begun = time.perf_counter()
            parameters.push_pull(update, values, rate=1e-3).wait()
            times.append(time.perf_counter() - begun)
        told = {
            "seconds": statistics.mean(times[WARM_UP:]),
            "ends": list(parameters._core.ends()),
            "homes": parameters.stats()["homes"],
            "wires": parameters.stats()["wires"],
        }
        print(json.dumps(told), flush=True)


def links_file(rates: list[float], addresses: list[str], folder: str) -> str:
    """Write the rates of the cards as BRAID_LINKS reads them; return the name of the file."""
    path = Path(folder) / "links.toml"
    hosts = "".join(
        f'\n[[host]]\nname = "{address}"\nrate = "{rate:g}mbit"\n'
        for address, rate in zip(addresses, rates, strict=True)
    )
    path.write_text(f'[between]\nrate = "{max(rates):g}mbit"\nlatency = "100us"\n{hosts}')
    return str(path)


def measure(rates: list[float], mib: float, steps: int) -> list[dict[str, Any]]:
    """Return what each rank told."""
    from braid.lab import Job, Lab, environments

    spec = ",".join(f"1x{rate:g}mbit" for rate in rates)
    command = [sys.executable, str(Path(__file__).resolve()), "--rank", str(mib), str(steps)]
    with Lab(spec) as lab, tempfile.TemporaryDirectory() as folder:
        os.environ["BRAID_LINKS"] = links_file(rates, [host.address for host in lab.hosts], folder)
        with Job(environments(lab, [1] * len(rates)), command, stdout=subprocess.PIPE, text=True) as job:
            if any(codes := job.wait(LIMIT_S)):
                raise SystemExit(f"ranks ended with {codes}")
            return [json.loads(rank.stdout.read()) for rank in job.ranks]


def bound_s(shares: list[float], rates: list[float], nbytes: float) -> float:
    """Return the time of a step that the slowest card needs, in seconds."""
    n = len(rates)
    each = [(1 + (n - 2) * x) * nbytes * 8 / (rate * 1e6) for x, rate in zip(shares, rates, strict=True)]
    return max(each)


def shares_of(ends: list[int], homes: list[int], hosts: int) -> list[float]:
    """Return how much of the vector each host holds. `ends` and `homes` are by shard."""
    shares = [0.0] * hosts
    for begin, end, home in zip([0, *ends], ends, homes, strict=False):
        shares[home] += (end - begin) / ends[-1]
    return shares


def row(name: str, rates: list[float], mib: float, steps: int) -> Row:
    """Measure one cluster."""
    told = measure(rates, mib, steps)
    shares = shares_of(told[0]["ends"], told[0]["homes"], len(rates))
    bound = bound_s(shares, rates, mib * 2**20) / CARRIED
    best = max(1 / min(rates), 2 * (len(rates) - 1) / sum(rates)) * mib * 2**20 * 8 / 1e6 / CARRIED
    seconds = max(each["seconds"] for each in told)
    beside = (
        f"{seconds:.3f} s a step; bound {bound:.3f} s, with the best shares {best:.3f} s; "
        f"shares {' '.join(f'{x:.3f}' for x in shares)}"
    )
    return Row(f"{mib:g} MiB, {name}", seconds / bound, "x bound", GOAL, beside=beside)


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(float(sys.argv[2]), int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=float, default=64.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    given = parser.parse_args()
    from braid.lab import unavailable

    if reason := unavailable():
        raise SystemExit(f"no emulated hosts here: {reason}")
    rows = [
        row("4 hosts of 1 Gbit/s", EQUAL, given.mib, given.steps),
        row("3 hosts of 1 Gbit/s, one of 500 Mbit/s", UNEQUAL, given.mib, given.steps),
    ]
    report(rows, given.json)


if __name__ == "__main__":
    main()
