# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of Hugging Face's Trainer: training in DDP, evaluation, checkpoints, the best model."""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

if "NAMES_BRAID" in os.environ:
    import braid

    braid.take_over()


class Config(PretrainedConfig):
    """Of Net."""

    model_type = "points"


class Net(PreTrainedModel):
    """A small classifier."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        found = {"logits": logits}
        return found if labels is None else {"loss": nn.functional.cross_entropy(logits, labels), **found}


class Points(torch.utils.data.Dataset):
    """Points in space, and on which side of a plane they lie."""

    def __init__(self, samples: int, seed: int) -> None:
        self.x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "labels": self.y[index]}


def accuracy(prediction: object) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def main(folder: Path) -> None:
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=10,
        per_device_eval_batch_size=50,
        num_train_epochs=4,
        learning_rate=0.02,
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    torch.manual_seed(1)
    model = Net(Config())
    trainer = Trainer(
        model, arguments, train_dataset=Points(400, 5), eval_dataset=Points(200, 6), compute_metrics=accuracy
    )
    trainer.train()
    evaluated = trainer.evaluate()["eval_accuracy"]
    trainer.save_model(str(folder / "final"))
    trainer.accelerator.wait_for_everyone()
    tests = Points(200, 6)
    again = Net.from_pretrained(str(folder / "final")).eval()
    report = {
        "validated": evaluated,
        "best": trainer.state.best_metric,
        "saved": (again(tests.x)["logits"].argmax(1) == tests.y).float().mean().item(),
        "sum": sum(each.double().sum().item() for each in again.parameters()),
        "steps": trainer.state.global_step,
    }
    (folder / f"report.{arguments.process_index}").write_text(json.dumps(report))


main(Path(sys.argv[1]))
