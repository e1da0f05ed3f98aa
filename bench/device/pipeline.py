# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors of the simulated device: copies and network one after the other, and overlapped.

Copies have a modelled rate in each direction. The network is an emulated one, with shaped cards of the same rate.
The legs are bytes by rate. `network_ms` is the same operation on CPU tensors, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
DEVICE = FOLDER.parent.parent / "tests" / "device"
MIB = 1 << 20
NEVER_CUT = str(1 << 40)


def operations(size: int, nbytes: int, device: str) -> dict[str, tuple[Callable[[], Any], float, float, float]]:
    """Return calls, and the bytes that each copies down, sends and copies up, for `nbytes` of the whole tensor."""
    import torch
    import torch.distributed as dist

    whole = torch.ones(nbytes // 4, device=device)
    part = torch.ones(nbytes // 4 // size, device=device)
    share = nbytes / size
    most = nbytes - share
    return {
        "all_reduce": (lambda: dist.all_reduce(whole), nbytes, 2 * most, nbytes),
        "broadcast": (lambda: dist.broadcast(whole, 0), nbytes, nbytes, nbytes),
        "all_gather": (lambda: dist.all_gather_into_tensor(whole, part), share, most, nbytes),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole), nbytes, most, share),
    }


def times(call: Callable[[], Any], synchronize: Callable[[], None], count: int) -> list[float]:
    """Return the seconds of each repetition, from a barrier to the end of all copies; the first is left out."""
    import torch.distributed as dist

    found = []
    for _ in range(count + 1):
        dist.barrier()
        began = time.perf_counter()
        call()
        synchronize()
        found.append(time.perf_counter() - began)
    return found[1:]


def be_a_rank(folder: str, nbytes: int, rate: float, count: int) -> None:
    """Time every operation on CPU tensors, in one piece, and in pieces; write the times by rank."""
    sys.path.insert(0, str(DEVICE))
    import simulated
    import torch.distributed as dist

    sim = simulated.load()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    told: dict[str, dict[str, list[float]]] = {}
    for name, piece in {"network": "", "serial": NEVER_CUT, "pipelined": ""}.items():
        os.environ["BRAID_PIECE_BYTES"] = piece
        sim.set_rates(down=rate, up=rate)
        dist.init_process_group("braid", init_method=f"file://{folder}/{name}", rank=rank, world_size=size)
        device = "cpu" if name == "network" else "sim"
        for operation, (call, _, _, _) in operations(size, nbytes, device).items():
            told.setdefault(operation, {})[name] = times(call, sim.synchronize, count)
        dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(told))


def measure(ranks: int, nbytes: int, rate: float, count: int) -> list[dict[str, Any]]:
    """Run the ranks in a lab and return a row per operation. Times are of the slowest rank, then the median."""
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, str(FOLDER / "pipeline.py"), "--rank", folder, "--bytes", str(nbytes)]
        own += ["--rate", str(rate), "--count", str(count)]
        braid = str(Path(sys.executable).parent / "braid")
        hosts = f"{ranks}x{8 * rate / 1e6:.0f}mbit"
        subprocess.run([braid, "lab", "--hosts", hosts, "--", *own], check=True)
        told = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    rows = []
    for operation, (_, *legs) in operations(ranks, nbytes, "meta").items():
        down, wire, up = (1e3 * leg / rate for leg in legs)
        row: dict[str, Any] = {"operation": operation, "down_ms": down, "wire_ms": wire, "up_ms": up}
        for name in ("network", "serial", "pipelined"):
            by_rank = [one[operation][name] for one in told]
            row[f"{name}_ms"] = 1e3 * statistics.median(max(each) for each in zip(*by_rank, strict=True))
        slowest = max(down, wire, up)
        row["serial_by_slowest_leg"] = row["serial_ms"] / slowest
        row["pipelined_by_slowest_leg"] = row["pipelined_ms"] / slowest
        rows.append({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
    return rows


def main() -> None:
    """Print the rows and write them beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="each on a host of its own")
    parser.add_argument("--bytes", type=int, default=64 * MIB)
    parser.add_argument("--rate", type=float, default=0.1e9, help="bytes/s of each leg in each direction")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--out", default=str(FOLDER / "pipeline.json"))
    parser.add_argument("--rank", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        be_a_rank(options.rank, options.bytes, options.rate, options.count)
        return
    rows = measure(options.ranks, options.bytes, options.rate, options.count)
    setup = {"ranks": options.ranks, "bytes": options.bytes, "bytes_per_s_of_each_leg": options.rate}
    Path(options.out).write_text(json.dumps({**setup, "cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(*(f"{key}={value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
