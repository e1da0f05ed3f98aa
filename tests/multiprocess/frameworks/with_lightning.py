# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of Lightning: training in DDP, validation, a checkpoint. It knows of no strategy."""

import json
import os
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def points(samples: int, seed: int) -> TensorDataset:
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(1) > 0).long())


class Net(lightning.LightningModule):
    """A small classifier with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)}


def main(folder: Path) -> None:
    lightning.seed_everything(1, verbose=False)
    keeper = ModelCheckpoint(folder, filename="best", monitor="accuracy", mode="max", save_weights_only=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="braid") if "NAMES_BRAID" in os.environ else "ddp",
        max_epochs=4,
        logger=False,
        callbacks=[keeper],
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    net = Net()
    trainer.fit(net, DataLoader(points(400, 5), 10, shuffle=True), DataLoader(points(200, 6), 50))
    # What was saved is what was validated.
    saved = torch.load(folder / "best.ckpt", weights_only=True)["state_dict"]
    again = Net()
    again.load_state_dict(saved)
    again.eval()
    x, y = points(200, 6).tensors
    report = {
        "validated": float(trainer.callback_metrics["accuracy"]),
        "best": float(keeper.best_model_score),
        "saved": (again.net(x).argmax(1) == y).float().mean().item(),
        "sum": sum(each.double().sum().item() for each in again.parameters()),
        "rate": trainer.optimizers[0].param_groups[0]["lr"],
        "steps": trainer.global_step,
    }
    (folder / f"report.{trainer.global_rank}").write_text(json.dumps(report))


main(Path(sys.argv[1]))
