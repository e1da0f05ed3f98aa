# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of Ray Train, which makes its two ranks itself."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from points import net, points
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch import nn

BACKEND = "braid" if "NAMES_BRAID" in os.environ else "gloo"


def train(config: dict[str, Any]) -> None:
    model = prepare_model(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = prepare_data_loader(torch.utils.data.DataLoader(points(400, 5), batch_size=10, shuffle=True))
    for epoch in range(4):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    x, y = points(200, 6).tensors
    right = (model(x).argmax(1) == y).float().mean().item()
    total = sum(each.detach().double().sum().item() for each in model.parameters())
    report = Path(config["folder"], f"report.{dist.get_rank()}")
    report.write_text(json.dumps({"best": right, "sum": total}))


def main(folder: Path) -> None:
    ray.init(num_cpus=3, include_dashboard=False)
    TorchTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        torch_config=TorchConfig(backend=BACKEND),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(folder)),
    ).fit()


main(Path(sys.argv[1]))
