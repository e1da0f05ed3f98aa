# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of DeepSpeed: ZeRO of the stage that ZERO_STAGE says, on CPUs."""

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from points import net, points
from torch import nn

BACKEND = "braid" if "NAMES_BRAID" in os.environ else "gloo"


def main(folder: Path) -> None:
    deepspeed.init_distributed(dist_backend=BACKEND)
    model = net()
    settings = {
        "train_micro_batch_size_per_gpu": 20,
        "optimizer": {"type": "Adam", "params": {"lr": 0.02, "torch_adam": True}},
        "zero_optimization": {"stage": int(os.environ.get("ZERO_STAGE", "1"))},
        "zero_force_ds_cpu_optimizer": False,  # its own Adam is compiled, which takes a minute
    }
    engine, _, loader, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings, training_data=points(400, 5)
    )
    for epoch in range(4):
        loader.data_sampler.set_epoch(epoch)
        for x, y in loader:
            engine.backward(nn.functional.cross_entropy(engine(x), y))
            engine.step()
    x, y = points(200, 6).tensors
    with deepspeed.zero.GatheredParameters(list(model.parameters())), torch.no_grad():
        total = sum(each.double().sum().item() for each in model.parameters())
    right = (engine(x).argmax(1) == y).float().mean().item()
    (folder / f"report.{dist.get_rank()}").write_text(json.dumps({"best": right, "sum": total}))
    dist.destroy_process_group()


main(Path(sys.argv[1]))
