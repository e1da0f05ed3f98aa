# SPDX-License-Identifier: Apache-2.0
"""Train with torchft on braid: one of three replicas is killed and comes back, and the others train on.

``pip install torchft-nightly``, then ``python torchft_replicas.py``. It starts torchft's lighthouse, which knows
who lives, and three replicas. A step counts when all that live have computed it. The replica that comes back takes
the others' model, optimizer and step.
"""

import argparse
import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torchft
from braid.torchft import ProcessGroupBraid
from torch import nn
from torch.nn.functional import mse_loss
from torchft.coordination import LighthouseServer

REPLICAS = 3
VICTIM, LAST_STEP = 1, 10
SOON = timedelta(seconds=30)


def train(replica: int, steps: int) -> None:
    """Train as one replica, of one rank."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(replica)  # the first step gives all replicas the same model
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=ProcessGroupBraid(timeout=SOON),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=2,
        replica_id=f"replica_{replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=SOON,
        quorum_timeout=SOON,
    )
    ddp = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, inner)
    together = 0
    while manager.current_step() < steps:
        inputs = torch.randn(64, 8)
        optimizer.zero_grad()
        loss = mse_loss(ddp(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        step = manager.current_step()
        if manager.num_participants() != together:
            together = manager.num_participants()
            print(f"replica {replica}, step {step}: {together} replicas train, loss {loss.item():.3f}", flush=True)
        if os.environ.get("DIE") and step >= LAST_STEP:
            print(f"replica {replica}, step {step}: dies", flush=True)
            os._exit(1)
        time.sleep(0.05)  # a step of a larger model
    total = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(f"replica {replica} ends at step {manager.current_step()}, parameters add up to {total:.9f}", flush=True)
    manager.shutdown(wait=False)


def main() -> None:
    """Start the lighthouse and the replicas; start the one that dies again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--replica", type=int, help="be this replica; by default start all")
    arguments = parser.parse_args()
    if arguments.replica is not None:
        train(arguments.replica, arguments.steps)
        return
    os.environ.setdefault("RUST_LOG", "error")  # else torchft says ten lines a step
    lighthouse = LighthouseServer("[::]:0", min_replicas=2, join_timeout_ms=1000, heartbeat_timeout_ms=1000)
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address()}

    def start(replica: int, **variables: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, __file__, "--steps", str(arguments.steps), "--replica", str(replica)]
        return subprocess.Popen(command, env={**environment, **variables})

    running = [start(replica, **({"DIE": "1"} if replica == VICTIM else {})) for replica in range(REPLICAS)]
    running[VICTIM].wait()
    running[VICTIM] = start(VICTIM)
    codes = [process.wait() for process in running]
    lighthouse.shutdown()
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
