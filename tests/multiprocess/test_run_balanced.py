# SPDX-License-Identifier: Apache-2.0
"""BRAID_BALANCE=1: scripts with a DistributedSampler get balanced batches without an edit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slowness import limit

pytestmark = pytest.mark.multiprocess

ROOT = Path(__file__).resolve().parent.parent.parent

SCRIPT = """
import os, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
dist.init_process_group("gloo")
rank, slow = dist.get_rank(), dist.get_rank() == 1
class Numbered(Dataset):
    x = torch.randn(130, 3, generator=torch.Generator().manual_seed(1)).double()
    def __len__(self): return 130
    def __getitem__(self, index):
        if model.training:
            time.sleep(0.02 if slow else 0.001)
        return index, self.x[index]
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).double())
alone = torch.nn.Linear(3, 1).double()
data = Numbered()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
tests = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
def loss_of(model, x):
    return (model(x).tanh() * x.sum(1, keepdim=True)).mean()
sizes = []
for epoch in range(5):
    model.train()
    sampler.set_epoch(epoch)
    seen = []
    assert len(loader) == 9, len(loader)
    for number, (indices, x) in enumerate(loader):
        model.zero_grad()
        loss_of(model, x).backward()
        union = [None, None]
        dist.all_gather_object(union, indices.tolist())
        union = sum(union, [])
        alone.load_state_dict(model.module.state_dict())
        alone.zero_grad()
        loss_of(alone, data.x[union]).backward()
        torch.testing.assert_close(model.module.weight.grad, alone.weight.grad)
        seen += union
        sizes.append(len(x))
    assert number == 8 and sorted(seen) == list(range(130))
    model.eval()
    with torch.no_grad():
        assert [len(x) for _, x in tests] == [8] * 8 + [1]
assert (sizes[-2] < 8) == slow and sizes[0] == 8, sizes
dist.destroy_process_group()
"""
WITHOUT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
data = torch.utils.data.TensorDataset(torch.randn(8, 3))
for x, in torch.utils.data.DataLoader(data, batch_size=4):
    model(x).mean().backward()
dist.destroy_process_group()
"""
BY_TURNS = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
data = TensorDataset(torch.randn(32, 3))
loaders = [DataLoader(data, batch_size=2, sampler=DistributedSampler(data)) for _ in range(2)]
for (one,), (other,) in zip(*loaders):
    (model(one).mean() + model(other).mean()).backward()
"""

# What accelerate does with a DataLoader: its own batch sampler, and one batch ahead.
OF_ACCELERATE = """
import sys, torch, torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
dist.init_process_group("gloo")
def say(line):
    if dist.get_rank() == 0:
        sys.stderr.write(line + "\\n")
class Shard(BatchSampler):
    __module__ = "accelerate.data_loader"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
batches = Shard(range(dist.get_rank(), 16, 2), 4, False)
loader = DataLoader(TensorDataset(torch.ones(16, 3)), batch_sampler=batches)
with torch.no_grad():
    assert [len(x) for x, in loader] == [4, 4]
say("trains now")
found = iter(loader)
current = next(found)
say("has a batch")
for ahead in found:
    model(current[0]).sum().backward()
    current = ahead
assert model.module.weight.grad.tolist() == [[4.0] * 3], "weighted"
dist.destroy_process_group()
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "train.py"
    path.write_text(script)
    return subprocess.run(
        [sys.executable, "-m", "braid.cli", "run", "--nproc", "2", str(path)],
        env={**os.environ, "BRAID_BALANCE": "1"},
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
    )


@pytest.mark.long
def test_run(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a DataLoader with a DistributedSampler, 130 samples") == 1, done.stderr
    assert done.stderr.count("shares by speed are") == 1, done.stderr


@pytest.mark.long
def test_without_a_sampler_it_says_so(tmp_path: Path) -> None:
    done = run(WITHOUT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("found no DataLoader with a DistributedSampler") == 1, done.stderr


@pytest.mark.long
def test_loaders_by_turns_cannot_be_balanced(tmp_path: Path) -> None:
    done = run(BY_TURNS, tmp_path)
    assert done.returncode != 0
    # The launcher ends the other rank for the first that fails, maybe before it has said so, too.
    assert done.stderr.count("RuntimeError: two DataLoaders are read by turns") in (1, 2), done.stderr


@pytest.mark.long
def test_batches_of_accelerate_are_refused_at_the_start(tmp_path: Path) -> None:
    done = run(OF_ACCELERATE, tmp_path)
    assert done.returncode == 0, done.stderr
    places = [
        done.stderr.index(text) for text in ("trains now", "leaves the batches of accelerate", "has a batch")
    ]
    assert places == sorted(places), done.stderr
    assert done.stderr.count("balanced batches:") == 1, done.stderr


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.slow
def test_page_and_example(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "balanced.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = run(block + 'import sys\nsys.stdout.write(f"accuracy {accuracy:.3f}\\n")\n', tmp_path)
    found = re.findall(r"accuracy ([\d.]+)", done.stdout)
    assert len(found) == 2, done.stderr
    assert min(map(float, found)) > 0.9
    done = run((ROOT / "examples" / "balanced.py").read_text(), tmp_path)
    accuracy = re.search(r"test accuracy ([\d.]+) %", done.stdout)
    assert accuracy, done.stderr
    assert float(accuracy[1]) > 93, done.stdout
    shares = [int(share) for share in re.findall(r"shares \[(.*)\]", done.stdout)[-1].split(",")]
    assert sum(shares) == 32
    assert shares[0] < shares[1], done.stdout
