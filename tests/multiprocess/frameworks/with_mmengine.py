# SPDX-License-Identifier: Apache-2.0
"""A script of mmengine's Runner on CPUs, for which it makes the group and wraps the model itself."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.runner import Runner
from points import net, points
from torch import nn

BACKEND = "braid" if "NAMES_BRAID" in os.environ else "gloo"


class Net(BaseModel):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: torch.Tensor, y: torch.Tensor, mode: str = "tensor") -> object:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, y)} if mode == "loss" else logits


def main(folder: Path) -> None:
    dist.init_process_group(BACKEND)
    runner = Runner(
        model=MMDistributedDataParallel(module=Net()),
        work_dir=str(folder),
        train_dataloader={
            "batch_size": 10,
            "dataset": points(400, 5),
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "collate_fn": {"type": "default_collate"},
        },
        train_cfg={"by_epoch": True, "max_epochs": 4},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        launcher="pytorch",
        randomness={"seed": 1},
        log_level="ERROR",
    )
    runner.train()
    x, y = points(200, 6).tensors
    right = (runner.model.module(x, y).argmax(1) == y).float().mean().item()
    total = sum(each.double().sum().item() for each in runner.model.parameters())
    (folder / f"report.{dist.get_rank()}").write_text(json.dumps({"best": right, "sum": total}))
    dist.destroy_process_group()


main(Path(sys.argv[1]))
