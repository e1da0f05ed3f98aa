# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of ignite: its Parallel ends the process group when the function that trains has returned."""

import json
import os
import sys
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import TensorDataset

if "NAMES_BRAID" in os.environ:
    import braid

    braid.take_over()

# What the function has made lives no longer than it, but for this.
found: dict[str, object] = {}


def points(samples: int, seed: int) -> TensorDataset:
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(1) > 0).long())


class Net(nn.Sequential):
    """A small classifier with BatchNorm."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def training(local_rank: int) -> None:
    torch.manual_seed(1)
    net = Net()
    loader = idist.auto_dataloader(points(400, 5), batch_size=20, shuffle=True)
    validation = idist.auto_dataloader(points(200, 6), batch_size=100)
    model = idist.auto_model(net)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine: Engine) -> None:
        evaluator.run(validation)
        accuracy = evaluator.state.metrics["accuracy"]
        found["best"] = max(accuracy, found.get("best", 0.0))  # type: ignore[call-overload]
        found["validated"] = accuracy
        model.train()

    trainer.run(loader, max_epochs=4)
    found["steps"], found["state"] = trainer.state.iteration, net.state_dict(keep_vars=True)


def main(folder: Path) -> None:
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
    state: dict[str, torch.Tensor] = found.pop("state")  # type: ignore[assignment]
    report = {**found, "sum": sum(each.double().sum().item() for each in state.values())}
    (folder / f"report.{os.environ['RANK']}").write_text(json.dumps(report))


main(Path(sys.argv[1]))
