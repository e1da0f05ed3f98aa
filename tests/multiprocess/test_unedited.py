# SPDX-License-Identifier: Apache-2.0
"""BRAID_STRATEGY: scripts that nobody edits train with a strategy, or say in one sentence why they cannot."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import unedited_scripts as scripts
from ports import free_port
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

TIMEOUT_S = 200.0


def begin(rank: Rank, text: str) -> None:
    """What happens in `import torch`, and then in the script."""
    from braid._unedited.install import install

    os.environ["BRAID_STRATEGY"] = text
    install(text)
    install(text)
    rank.join()


def said(rank: Rank) -> str:
    return (rank.folder / f"log.{rank.rank}").read_text()


def strategy_of(model: Any) -> Any:
    from braid._unedited.guests import guests

    return guests[model.module]._strategy


def values(model: nn.Module) -> list[torch.Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def are_equal_on_all_ranks(tensors: list[torch.Tensor]) -> bool:
    own = torch.cat([each.flatten().float() for each in tensors])
    low, high = own.clone(), own.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return torch.equal(low, high)


def one_job_after_another(rank: Rank, text: str) -> list[list[float]]:
    """A job without a step, one that trains, two that train on, wrapped again; return the values after each."""
    begin(rank, text)
    dist.destroy_process_group()
    model, after = nn.Linear(1, 1, bias=False), []
    nn.init.zeros_(model.weight)
    for job in range(3):
        rank.join(f"job {job}")
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (wrapped(torch.ones(1, 1)) * (rank.rank + 1)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
        after.append(model.weight.detach().flatten().tolist())
    return after


@pytest.mark.parametrize("text", ["local:sync_every=10", "elastic:sync_every=10,schedule=sync3,root=0"])
def test_every_job_of_a_process_settles(text: str) -> None:
    """All ranks have the same values after each job."""
    of_rank = run_ranks(one_job_after_another, 2, text, join=False)
    assert of_rank[0] == of_rank[1]
    if text.startswith("local"):  # the mean of four steps of 0.1 and four of 0.2
        assert [value for (value,) in of_rank[0]] == pytest.approx([-0.6, -1.2, -1.8])


def elastic(rank: Rank, script: str) -> str:
    begin(rank, "elastic:sync_every=5,schedule=sync3,root=0")
    found = getattr(scripts, script)()
    model, optimizer = found["model"], found["optimizer"]
    strategy = strategy_of(model)
    assert strategy.stats()["rounds"] > 3
    # Workers differ. eval() shows the centre, which is the same everywhere; train() shows their own again.
    model.train()
    x = torch.zeros(4, 8)
    model(x)
    own = values(model)
    assert not are_equal_on_all_ranks(own)
    state = model.state_dict()
    assert are_equal_on_all_ranks([state[f"module.{name}"] for name, _ in model.module.named_parameters()])
    assert all(map(torch.equal, own, values(model)))
    model.eval()
    with torch.no_grad():
        model(x)
    assert are_equal_on_all_ranks(values(model))
    assert all(
        torch.equal(value, dict(model.named_parameters())[name])
        for name, value in state.items()
        if name in dict(model.named_parameters())
    )
    model.train()
    model(x)
    assert all(map(torch.equal, own, values(model)))
    # Training in eval mode would mix the centre's gradient with one's own values.
    model.eval()
    out = model(x)
    (out["logits"] if isinstance(out, dict) else out).sum().backward()
    with pytest.raises(RuntimeError, match="trains a model in eval mode"):
        optimizer.step()
    model.train()
    model(x)
    saved = found.get("saved")
    if saved:
        assert saved["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.9**4)
    if rank.rank == 0:  # workers need not make equally many steps
        optimizer.zero_grad()
        out = model(x)
        (out["logits"] if isinstance(out, dict) else out).sum().backward()
        optimizer.step()
    strategy.settle()
    centre = [each.clone() for each in model.state_dict().values()]
    assert found["accuracy"] > scripts.GOOD
    dist.destroy_process_group()
    assert all(map(torch.equal, centre, model.state_dict().values()))
    with pytest.raises(RuntimeError, match="the strategy is closed"):
        optimizer.step()
    return said(rank)


def served(rank: Rank, script: str, text: str) -> str:
    begin(rank, text)
    found = getattr(scripts, script)()
    model = found["model"]
    strategy = strategy_of(model)
    assert strategy.stats()["steps"] > 20
    if "accuracy" in found:
        assert found["accuracy"] > scripts.GOOD
    else:
        assert found["last"] < 0.5 * found["first"]
    if found.get("snapshot"):
        model.module.load_state_dict(found["snapshot"])
        model.eval()
        shown = model.module.state_dict()
    dist.destroy_process_group()
    if found.get("snapshot"):  # what a script has loaded, as the best model, is what it evaluates, saves and keeps
        for name, value in found["snapshot"].items():
            assert torch.equal(shown[name], value)
            assert torch.equal(model.module.state_dict()[name], value)
    return said(rank)


@pytest.mark.parametrize("script", ["like_imagenet", "like_lightning", "like_accelerate"])
def test_elastic(script: str) -> None:
    first, second = run_ranks(elastic, 2, script, join=False, timeout_s=TIMEOUT_S)
    assert first.count("braid: strategy 'elastic:sync_every=5,schedule=sync3,root=0': found ") == 1, first
    assert "braid: strategy" not in second


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("like_imagenet", "parameter_server:mode=sync"),
        ("like_mingpt", "parameter_server:mode=ssp,staleness=2"),
        ("like_lightning", "hybrid:groups=0/1"),
        ("like_imagenet", "hybrid:groups=0+1"),
        ("like_accelerate", "parameter_server:local=true"),
        ("like_mingpt", "elastic:sync_every=3"),
    ],
)
def test_other_strategies(script: str, text: str) -> None:
    if text.startswith("elastic"):
        run_ranks(_elastic_of_mingpt, 2, text, join=False, timeout_s=TIMEOUT_S)
        return
    first, _ = run_ranks(served, 2, script, text, join=False, timeout_s=TIMEOUT_S)
    assert first.count(f"braid: strategy {text!r}: found ") == 1, first


def _elastic_of_mingpt(rank: Rank, text: str) -> None:
    begin(rank, text)
    found = scripts.like_mingpt()
    assert found["last"] < 0.5 * found["first"]
    dist.destroy_process_group()


def refused(rank: Rank) -> None:
    begin(rank, "elastic:sync_every=5")
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with pytest.raises(RuntimeError, match=r"needs a module in DistributedDataParallel, and there is none"):
        torch.optim.SGD(net.parameters(), lr=0.1).step()
    model = DistributedDataParallel(net)
    one, other = (torch.optim.SGD(part.parameters(), lr=0.1) for part in net)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match=r"there are two: 1\.weight is not in the one that steps first"):
        one.step()
    whole = torch.optim.SGD(net.parameters(), lr=0.1)
    whole.step()
    with pytest.raises(RuntimeError, match="there are two: "):
        other.step()
    # By hand, without an optimizer.
    hand = DistributedDataParallel(nn.Linear(2, 1))
    hand(torch.ones(1, 2)).sum().backward()
    with torch.no_grad():
        for parameter in hand.parameters():
            parameter -= parameter.grad
    with pytest.raises(RuntimeError, match=r"no optimizer of torch\.optim steps with them"):
        hand(torch.ones(1, 2))
    wide = DistributedDataParallel(nn.Linear(2, 1).double())
    optimizer = torch.optim.SGD(wide.parameters(), lr=0.1)
    wide(torch.ones(1, 2).double()).sum().backward()
    with pytest.raises(ValueError, match="weight is float64"):
        optimizer.step()
    pair = [DistributedDataParallel(nn.Linear(2, 1)) for _ in range(2)]
    both = torch.optim.SGD([each for model in pair for each in model.parameters()], lr=0.1)
    with pytest.raises(RuntimeError, match="one optimizer trains two modules"):
        both.step()
    dist.destroy_process_group()


def misspelt(rank: Rank) -> None:
    with pytest.raises(ValueError, match="there is no 'elastik'; did you mean elastic"):
        begin(rank, "elastik")
    rank.meet("refused")
    dist.destroy_process_group()


def balanced(rank: Rank, port: int) -> None:
    from braid._unedited.install import install

    os.environ.update(BRAID_BALANCE="1", BRAID_STRATEGY="local")
    install("local")
    with pytest.raises(ValueError, match=r"BRAID_BALANCE=1 and BRAID_STRATEGY=local: .*; unset one of the two"):
        rank.meet_at(port)  # of Gloo: groups on braid check all settings
    rank.meet("refused")  # who ends while the other still connects lets its Gloo fail
    dist.destroy_process_group()


def test_balanced_batches_beside_a_strategy_are_refused() -> None:
    run_ranks(balanced, 2, free_port(), join=False, timeout_s=TIMEOUT_S)


def test_refusals() -> None:
    run_ranks(refused, 2, join=False, timeout_s=TIMEOUT_S)


def test_a_text_that_does_not_parse_is_refused_when_the_group_is_made() -> None:
    run_ranks(misspelt, 2, join=False, timeout_s=TIMEOUT_S)


ONE = """
import torch, torch.distributed as dist
dist.init_process_group({name!r})
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", [pytest.param("gloo", marks=pytest.mark.long), "braid"])
@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["", "elastic:sync_every=10"], marks=pytest.mark.long),
        pytest.param(["local", ""], marks=pytest.mark.long),
        ["local", "gossip"],
    ],
)
def test_texts_that_differ_are_told_at_once(name: str, texts: list[str], tmp_path: Path) -> None:
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ONE.format(name=name)],
            env={**os.environ, **store, "RANK": str(rank), "BRAID_STRATEGY": text},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, text in enumerate(texts)
    ]
    shown = [f'"{text}"' if text else "none" for text in texts]
    says = f"BRAID_STRATEGY differs: rank 0 has {shown[0]}, rank 1 has {shown[1]}: give all ranks the same"
    try:
        # On gloo a rank without the variable runs nothing of braid.
        told = [rank for rank, text in enumerate(texts) if text or name == "braid"]
        for rank in told:
            _, err = ranks[rank].communicate(timeout=limit(200))
            assert ranks[rank].returncode != 0
            assert says in err or name == "braid", err
            if name == "braid":
                assert all(f"rank {each} has {what}" in err for each, what in enumerate(shown)), err
            assert "braid/strategy" not in err, err
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import torch.distributed as dist, unedited_scripts
dist.init_process_group("gloo")
accuracy = unedited_scripts.like_imagenet(epochs=3)["accuracy"]
assert accuracy > unedited_scripts.GOOD, accuracy
sys.stdout.write("good\\n")
"""  # it ends without destroy_process_group(), and nobody has the model any more


@pytest.mark.long
@pytest.mark.parametrize("text", ["elastic:sync_every=10", "local:sync_every=10"])
def test_run(text: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    command = [sys.executable, "-m", "braid.cli", "run", "--nproc", "2", "--strategy"]
    done = subprocess.run(
        [*command, text, str(script)], capture_output=True, text=True, timeout=limit(200), check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("good") == 2
    assert done.stderr.count("found Sequential with 210 parameters in DistributedDataParallel") == 1, done.stderr
    done = subprocess.run(
        [*command, "elastic:sync_evry=10", str(script)],
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
    )
    assert done.returncode != 0
    assert (
        "--strategy 'elastic:sync_evry=10': elastic has no option 'sync_evry'; did you mean sync_every?"
        in done.stderr
    )
