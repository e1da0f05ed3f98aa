# SPDX-License-Identifier: Apache-2.0
"""Parameter servers on real ranks: what they compute, and who dies, joins and leaves."""

import os
import re
import signal
import time
from typing import Any

import braid
import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from digits import accuracy, batches, network
from event_simulation import Event, replay
from ranks import SOON_S, Rank, run_ranks
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW
from waiting import eventually

pytestmark = pytest.mark.multiprocess

STEPS = 12
ELEMENTS = 50


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 3))


def gradient_step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    data = torch.Generator().manual_seed(1000 * step + rank)
    optimizer.zero_grad()
    model(torch.randn(6, 8, generator=data)).square().mean().backward()
    optimizer.step()


def values(model: nn.Module) -> list[float]:
    return torch.cat([parameter.detach().float().flatten() for parameter in model.parameters()]).tolist()


# ---- what is computed


def compare_with_ddp(rank: Rank, kind: type, numbers: dict[str, Any], options: dict[str, Any]) -> None:
    ours = net()
    theirs = DistributedDataParallel(net())
    plain = kind(theirs.parameters(), **numbers)
    with bs.ParameterServer(ours, kind, mode="sync", **options, **numbers) as optimizer:
        for step in range(STEPS):
            gradient_step(ours, optimizer, rank.rank, step)
            gradient_step(theirs, plain, rank.rank, step)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize(
    ("kind", "numbers"), [(SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}), (AdamW, {"lr": 0.01})]
)
@pytest.mark.parametrize("options", [{}, {"servers": [1]}])
def test_sync_equals_ddp(kind: type, numbers: dict[str, Any], options: dict[str, Any], wire: str) -> None:
    run_ranks(compare_with_ddp, 3, kind, numbers, options, wire=wire)


def train_digits(rank: Rank, mode: str) -> float:
    torch.manual_seed(rank.rank)
    model = network()
    if mode == "ddp":
        torch.manual_seed(0)
        model = DistributedDataParallel(network())
        optimizer: Any = SGD(model.parameters(), lr=0.02, momentum=0.9)
        for images, labels in batches(rank.rank, rank.size):
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        return accuracy(model)
    with bs.ParameterServer(model, SGD, mode=mode, lr=0.02, momentum=0.9) as optimizer:
        for images, labels in batches(rank.rank, rank.size):
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        dist.barrier()
        with optimizer.centre():
            return accuracy(model)


@pytest.mark.long
@pytest.mark.slow
def test_digits_are_learnt_as_with_ddp() -> None:
    wanted = min(run_ranks(train_digits, 3, "ddp")) - 0.02
    assert wanted > 0.9
    for mode in ("async", "ssp", "sync"):
        found = run_ranks(train_digits, 3, mode)
        # Who trains without waiting learns less on a busy machine.
        assert min(found) >= (wanted if mode == "sync" else 0.85), f"{mode}: {found}, DDP reached {wanted + 0.02}"


def loss_of_regression(optimizer: Any, model: nn.Module, rank: int, steps: int) -> float:
    """Train on a linear task; return the loss with the servers' newest values."""
    target = torch.linspace(-1, 1, 512)
    for step in range(steps):
        inputs = torch.randn(8, 512, generator=torch.Generator().manual_seed(1000 * step + rank))
        optimizer.zero_grad()
        (model(inputs).squeeze(1) - inputs @ target).square().mean().backward()
        optimizer.step()
    dist.barrier()
    with optimizer.centre():
        inputs = torch.randn(1000, 512, generator=torch.Generator().manual_seed(7))
        loss = (model(inputs).squeeze(1) - inputs @ target).square().mean()
    return float(loss)


def train_coded(rank: Rank, wire: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, options in {
        "exact": {},
        "coded": {"compression": "int8", "pull_compression": "int8"},
        "sparse": {"compression": "top_k:0.1", "pull_compression": "bf16"},
        "relaxed": {"consistency": "relaxed", "momentum": 0.0, "lr": 0.003},
    }.items():
        model = nn.Linear(512, 1, bias=False)
        with bs.ParameterServer(
            model, SGD, servers=[0], **{"lr": 0.0015, "momentum": 0.5, **options}
        ) as optimizer:
            loss = loss_of_regression(optimizer, model, rank.rank, 200)
            told = optimizer.stats()
            found[name] = loss, sum(told["sent_bytes"]), sum(told["received_bytes"]), told["bytes"]
            assert (name == "relaxed" and wire == "shm") <= (told["wires"] == ["mapped memory"])
    with pytest.raises(ValueError, match="rules without state"):
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, momentum=0.9, consistency="relaxed")
    with pytest.raises(ValueError, match="is for mode 'async'"):
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, mode="sync", consistency="relaxed")
    with pytest.raises(ValueError, match=r"compression: codec .int9.: there is none of that name"):
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, compression="int9")
    with pytest.raises(ValueError, match=r"other settings|pull_compression"):
        bs.ParameterServer(nn.Linear(2, 2), SGD, lr=0.1, pull_compression=["off", "bf16", "off"][rank.rank])
    return found


@pytest.mark.long_over_tcp
def test_coded_and_relaxed_training_reaches_nearly_the_same_loss(wire: str) -> None:
    ranks = run_ranks(train_coded, 3, wire, wire=wire)
    for number, found in enumerate(ranks):
        exact, sent, received, kept = found["exact"]
        coded, sent_coded, received_coded, kept_coded = found["coded"]
        # From 170. Workers do not wait for each other, so even equal settings end a tenth apart.
        assert exact < 20
        for loss in (coded, found["sparse"][0], found["relaxed"][0]):
            assert loss < 2 * exact, found
        if number > 0:  # the server keeps more for each coded worker, but some may have left already
            assert kept_coded > kept
            # 544 bytes in place of 2048; the first pull and the last ones are whole
            assert sent_coded < 0.3 * sent
            assert received_coded < 0.4 * received


def record(rank: Rank, options: dict[str, Any]) -> tuple[list[tuple[int, int]], list[float]]:
    """Train on one server; return (version, staleness) of each step, and the values in the end."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(ELEMENTS))
    with bs.ParameterServer(model, SGD, lr=0.05, servers=[0], **options) as optimizer:
        dist.barrier()
        seen = []
        for step in range(40):
            mine = quadratic_gradient(rank.rank, step, model.weight.detach().numpy())
            model.weight.grad = torch.from_numpy(mine)
            time.sleep(0.001 * (rank.rank % 2))
            optimizer.step()
            told = optimizer.stats()
            seen.append((told["last_versions"][0], told["last_staleness"]))
        dist.barrier()
        check_rows(optimizer)
        with optimizer.centre():
            return seen, model.weight.tolist()


def check_rows(optimizer: bs.ParameterServer) -> None:
    """braid.stats() and the flight record know the service."""
    told = optimizer.stats()
    (row,) = (row for row in braid.stats() if "parameters" in row)
    assert row["parameters"].items() >= {key: told[key] for key in ("versions", "staleness", "homes")}.items()
    assert row["parameters"]["exposed_us"] == told["exposed_us"] > 0
    assert (row["rank"], row["ranks"]) == (dist.get_rank(), dist.get_world_size())
    assert row["operations"] == row["waiting"] == []
    (recorded,) = braid.flight_record()["parameter_services"]
    assert (recorded["group"], recorded["parameters"]["versions"]) == (row["group"], told["versions"])


def quadratic_gradient(worker: int, step: int, at: np.ndarray) -> np.ndarray:
    target = np.random.default_rng((worker, step)).normal(worker, 0.1, at.size)
    return (at - target).astype(np.float32)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, "sgd"),
        ({"momentum": 0.5}, "sgd:momentum"),
        ({"compensate": 0.04}, "sgd:compensates"),
        ({"staleness_rate": True}, "sgd"),
    ],
)
def test_the_order_of_updates_explains_the_result(options: dict[str, Any], rule: str, wire: str) -> None:
    results = run_ranks(record, 3, options, wire=wire)
    events: dict[int, Event] = {}
    for worker, (seen, _) in enumerate(results):
        for step, (version, staleness) in enumerate(seen):
            assert version not in events, "two updates with one version"
            events[version] = Event(worker, step, version - 1 - staleness)
    first = min(events)
    log = [events[version] for version in sorted(events)]
    assert [version - first for version in sorted(events)] == list(range(3 * 40))
    log = [Event(event.worker, event.step, event.base - (first - 1)) for event in log]
    numbers = {"rate": 0.05, "weight_decay": 0.0, "momentum": 0.5, "dampening": 0.0, "lambda": 0.04}
    expected = replay(
        *(log, np.ones(ELEMENTS), quadratic_gradient, rule, numbers),
        divide_by_staleness=options.get("staleness_rate", False),
    )
    for _, found in results:
        np.testing.assert_allclose(found, expected[-1], rtol=1e-4)


def stay_within(rank: Rank, bound: int, killed: int | None) -> int:
    """Return how many steps this rank was ahead of the slowest living one at most, before it takes the next."""
    mine = rank.folder / f"steps.{rank.rank}"
    others = [rank.folder / f"steps.{other}" for other in range(rank.size) if other != killed]
    mine.write_text("0")
    dist.barrier()
    model = net()
    ahead = 0
    slowest = rank.size - 1
    optimizer = bs.ParameterServer(model, SGD, lr=0.01, mode="ssp", staleness=bound, servers=[0])
    for step in range(1, (25 if rank.rank == slowest else 40) + 1):
        written = rank.folder / f"writing.steps.{rank.rank}"
        written.write_text(str(step))
        written.rename(mine)  # before the push: others may only count more than there is
        if rank.rank == slowest:
            time.sleep(0.01)
            if killed is not None and step == 10:
                os.kill(os.getpid(), signal.SIGKILL)
        gradient_step(model, optimizer, rank.rank, step)
        if rank.rank != slowest and step <= 25:
            ahead = max(ahead, step - min(int(other.read_text()) for other in others))
    optimizer.close()
    return ahead


@pytest.mark.parametrize("bound", [0, 2])
def test_ssp_keeps_its_bound(bound: int, wire: str) -> None:
    ahead = run_ranks(stay_within, 3, bound, None, wire=wire)
    assert max(ahead) <= bound


@pytest.mark.long_over_tcp
def test_ssp_goes_on_when_the_slowest_dies(wire: str) -> None:
    run_ranks(stay_within, 3, 1, 2, wire=wire, killed=[2])


def count_staleness(rank: Rank, delay: int) -> list[int]:
    model = net()
    with bs.ParameterServer(model, SGD, lr=0.01, delay=delay) as optimizer:
        seen = []
        for step in range(5):
            gradient_step(model, optimizer, rank.rank, step)
            seen.append(int(optimizer.stats()["last_staleness"]))
        with optimizer.centre():
            return [*seen, int(optimizer.stats()["last_staleness"])]


def settle_early(rank: Rank, text: str) -> list[float]:
    """Each rank takes other numbers of steps in two epochs; a barrier ends each."""
    model = net()
    optimizer = SGD(model.parameters(), lr=0.05)
    strategy = bs.from_text(text, model, optimizer)
    stepped: Any = strategy if text.startswith("parameter_server") else optimizer
    for epoch in range(2):
        for step in range(2 + 9 * ((rank.rank + epoch) % 2)):
            gradient_step(model, stepped, rank.rank, step)
        strategy.settle()
        dist.barrier()
    with strategy.centre():
        found = values(model)
    strategy.close()
    return found


@pytest.mark.parametrize(
    "text",
    [
        "parameter_server:mode=ssp,staleness=2",
        "parameter_server:mode=ssp,staleness=2,compression=int8",
        "parameter_server:mode=sync",
        "elastic:schedule=round_robin,sync_every=1",
    ],
)
def test_nobody_waits_for_one_that_has_settled(text: str, wire: str) -> None:
    first, *others = run_ranks(settle_early, 3, text, wire=wire)
    assert np.isfinite(first).all()
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_a_delay_of_one_counts_as_one_stale_update() -> None:
    assert run_ranks(count_staleness, 1, 0) == [[0, 0, 0, 0, 0, 0]]
    # Of a step that has returned at once the push before it is known. The first one was not stale.
    assert run_ranks(count_staleness, 1, 1) == [[0, 0, 1, 1, 1, 1]]


# ---- who dies, joins and leaves


def lose_one(rank: Rank, servers: list[int] | None, victim: int) -> int:
    model = net()
    dist.barrier()
    with bs.ParameterServer(model, SGD, lr=0.01, servers=servers) as optimizer:
        rank.meet("begun")  # else nobody may be left who has the dead one's values
        for step in range(60):
            if rank.rank == victim and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.002)
            begun = time.monotonic()
            gradient_step(model, optimizer, rank.rank, step)
            assert time.monotonic() - begun < SOON_S
        assert all(map(np.isfinite, values(model)))
        return int(optimizer.stats()["steps"])


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("servers", [[0, 1], None])
def test_the_others_go_on_when_a_worker_dies(servers: list[int] | None, wire: str) -> None:
    steps = run_ranks(lose_one, 3, servers, 2, wire=wire, killed=[2])
    assert steps[:2] == [60, 60]


def lose_the_server(rank: Rank) -> str:
    model = net()
    with bs.ParameterServer(model, SGD, lr=0.01, servers=[2], timeout=60.0) as optimizer:
        rank.meet("ready")
        if rank.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        try:
            for step in range(10_000):
                gradient_step(model, optimizer, rank.rank, step)
        except braid.CommunicatorError as error:
            assert time.monotonic() - begun < SOON_S
            return str(error)
    raise AssertionError("nobody told of the lost server")


def test_the_last_server_is_lost() -> None:
    for text in run_ranks(lose_the_server, 3, killed=[2])[:2]:
        assert "server" in text
        assert "2" in text
        assert "\n" not in text


def leave_early(rank: Rank) -> int:
    model = net()
    with bs.ParameterServer(model, SGD, lr=0.01) as optimizer:
        for step in range(5 * (rank.rank + 1)):
            time.sleep(0.002)
            gradient_step(model, optimizer, rank.rank, step)
        return int(optimizer.stats()["steps"])


@pytest.mark.long_over_tcp
def test_a_rank_that_ends_early_serves_the_others(wire: str) -> None:
    assert run_ranks(leave_early, 4, wire=wire) == [5, 10, 15, 20]


def differ(rank: Rank) -> str:
    begun = time.monotonic()
    try:
        bs.ParameterServer(nn.Linear(2, 3 if rank.rank == 1 else 2), SGD, lr=0.1)
    except ValueError as error:
        assert time.monotonic() - begun < SOON_S
        return str(error)
    raise AssertionError("all is well")


def test_ranks_that_differ_hear_of_it() -> None:
    texts = set(run_ranks(differ, 3))
    assert len(texts) == 1
    assert re.match(r"worker 1 has 'parameter weight \(3, 2\) float32, group 0', but worker 0 has ", texts.pop())


def come_late(rank: Rank, by_address: bool) -> list[float]:
    from datetime import timedelta

    beginners = rank.size - 1
    model = net()
    if rank.rank < beginners:
        if by_address:
            where = rank.folder / "address"
            store = (
                dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank.rank == 0 else None
            )
            if store is not None:
                (rank.folder / "writing").write_text(str(store.port))
                (rank.folder / "writing").rename(where)
            eventually(where.exists)
            store = store or dist.TCPStore("127.0.0.1", int(where.read_text()), is_master=False)
            rank.store = store
            dist.init_process_group(
                "braid",
                store=dist.PrefixStore("any", store),
                rank=rank.rank,
                world_size=beginners,
                timeout=timedelta(seconds=60),
            )
        else:
            rank.join(members=range(beginners))
        optimizer = bs.ParameterServer(model, SGD, lr=0.01, servers=[0, 1])
    else:
        rank.wait_for("begun", 0)
        if by_address:
            where = f"127.0.0.1:{(rank.folder / 'address').read_text()}"
        else:
            where = rank.store = dist.FileStore(str(rank.folder / "store"))
        optimizer = bs.ParameterServer(model, SGD, lr=0.01, join=where, timeout=60.0)
    with optimizer:
        rank.mark("begun")
        for step in range(10):
            gradient_step(model, optimizer, rank.rank, step)
        rank.mark("trained")
        if rank.rank < beginners:
            rank.wait_for("trained", beginners)
        for other in range(rank.size):
            rank.wait_for("trained", other)
        with optimizer.centre():
            found = values(model)
        rank.meet("looked")
    return found


@pytest.mark.parametrize("by_address", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_worker_joins_late(by_address: bool) -> None:
    results = run_ranks(come_late, 3, by_address, join=False)
    assert results[0] == results[1] == results[2]


def save(rank: Rank, path: str) -> list[float]:
    model = net()
    with bs.ParameterServer(model, AdamW, lr=0.01, mode="sync") as optimizer:
        for step in range(6):
            gradient_step(model, optimizer, 0, step)
        if rank.rank == 0:
            torch.save(optimizer.service_state(), path)
        dist.barrier()
        for step in range(6, STEPS):
            gradient_step(model, optimizer, 0, step)
    return values(model)


def resume(rank: Rank, path: str) -> list[float]:
    model = net()
    with bs.ParameterServer(model, AdamW, lr=0.01, mode="sync") as optimizer:
        optimizer.load_service_state(torch.load(path, weights_only=True) if rank.rank == 0 else None)
        for step in range(6, STEPS):
            gradient_step(model, optimizer, 0, step)
    return values(model)


def test_resume_on_another_number_of_ranks(tmp_path: Any) -> None:
    path = str(tmp_path / "servers.pt")
    expected = run_ranks(save, 2, path)[0]
    for found in run_ranks(resume, 3, path):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def use_gloo(rank: Rank) -> float:
    gloo = dist.new_group([0, 2], backend="gloo")
    if rank.rank == 1:
        return 0.0
    model = nn.Linear(1, 1, bias=False)
    with bs.ParameterServer(model, SGD, lr=1.0, mode="sync", process_group=gloo) as optimizer:
        for _ in range(3):
            model.weight.grad = torch.full((1, 1), float(rank.rank))
            optimizer.step()
        return model.weight.item()


def test_a_group_of_another_backend() -> None:
    first, _, last = run_ranks(use_gloo, 3)
    assert first == last
