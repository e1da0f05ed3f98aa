# SPDX-License-Identifier: Apache-2.0
"""Scripts in the manner of others, as functions: none of them knows of a strategy."""

import contextlib
import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GOOD = 0.85  # guessing has 0.5


def points(samples: int = 400) -> TensorDataset:
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(5))
    return TensorDataset(x, (x.sum(1) > 0).long())


def accuracy_of(model: nn.Module) -> float:
    x, y = points(1000).tensors
    return (model(x).argmax(1) == y).float().mean().item()


def like_imagenet(epochs: int = 4) -> dict[str, Any]:
    """A network with BatchNorm, a scheduler, a GradScaler; evaluation after each epoch, checkpoints on rank 0."""
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    data = points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    best, saved = 0.0, {}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad():
            best = max(best, accuracy_of(model))
        scheduler.step()
        if dist.get_rank() == 0:
            saved = copy.deepcopy(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            )
        dist.barrier()
    return {"accuracy": best, "saved": saved, "model": model, "optimizer": optimizer}


def like_mingpt(steps: int = 60) -> dict[str, Any]:
    """A trainer class around a transformer: AdamW in two groups, made before the wrapper; clipping; snapshots."""
    torch.manual_seed(1)
    embed, head = nn.Embedding(12, 16), nn.Linear(16, 12, bias=False)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    raw = nn.Sequential(embed, layer, head)
    head.weight = embed.weight  # tied
    decay = [each for each in raw.parameters() if each.dim() >= 2]
    rest = [each for each in raw.parameters() if each.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95)
    )
    model = DistributedDataParallel(raw)
    chance = torch.Generator().manual_seed(10 + dist.get_rank())
    first = last = 0.0
    snapshot: dict[str, Any] = {}
    for step in range(steps):
        model.train()
        start = torch.randint(12, (8, 1), generator=chance)
        x = (start + torch.arange(9)) % 12  # counting
        with torch.set_grad_enabled(True):
            logits = model(x[:, :-1])
            loss = nn.functional.cross_entropy(logits.reshape(-1, 12), x[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        first, last = (loss.item() if step == 0 else first), loss.item()
        if step == steps // 2 and dist.get_rank() == 0:
            raw_model = model.module if hasattr(model, "module") else model
            snapshot = {name: each.clone() for name, each in raw_model.state_dict().items()}
    return {"first": first, "last": last, "snapshot": snapshot, "model": model, "optimizer": optimizer}


def like_lightning(epochs: int = 4) -> dict[str, Any]:
    """step() gets a closure that computes the gradients; a sanity check before training; inference mode."""
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    module.eval()
    with torch.inference_mode():
        accuracy_of(module)
    data = points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    accuracy = 0.0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        module.train()
        for x, y in loader:

            def closure(x: Any = x, y: Any = y) -> torch.Tensor:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                return loss

            with torch.no_grad():
                assert isinstance(optimizer.step(closure=closure), torch.Tensor)
        module.eval()
        with torch.inference_mode():
            accuracy = accuracy_of(module)
    return {"accuracy": accuracy, "model": model, "optimizer": optimizer}


class Wrapped(torch.optim.Optimizer):
    """In the manner of accelerate: an Optimizer that has an Optimizer, and does not call __init__()."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        self.optimizer.step(closure)

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


def like_accelerate(steps: int = 80) -> dict[str, Any]:
    """Accumulation over two batches under no_sync(), a wrapped optimizer, a scheduler, the loss in the output."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            logits = self.layers(x)
            loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    torch.manual_seed(3)
    net = Net()
    inner = torch.optim.AdamW(net.parameters(), lr=0.03)
    model, optimizer = DistributedDataParallel(net), Wrapped(inner)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: min(1.0, (step + 1) / 5))
    data = points()
    loader = DataLoader(data, batch_size=20, sampler=DistributedSampler(data))
    for number, (x, y) in enumerate(itertools.islice(itertools.cycle(loader), steps)):
        model.train()
        is_last = number % 2 == 1
        with contextlib.nullcontext() if is_last else model.no_sync():
            (model(x, labels=y)["loss"] / 2).backward()
        if is_last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        x, y = points(1000).tensors
        accuracy = (model(x)["logits"].argmax(1) == y).float().mean().item()
    return {"accuracy": accuracy, "model": model, "optimizer": inner}
