# SPDX-License-Identifier: Apache-2.0
"""LocalSGD and DiLoCo on real ranks: rounds of all workers, what they compute, and uneven steps."""

import os
import signal
import time
from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from ranks import SOON_S, Rank, run_ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW

pytestmark = pytest.mark.multiprocess

RUN_S = 200.0


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


def values(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().float().flatten().clone() for parameter in model.parameters()])


def centre_of(strategy: bs.LocalSGD | bs.DiLoCo, model: nn.Module) -> Tensor:
    with strategy.centre():
        return values(model)


def backward(model: nn.Module, worker: int, step: int, dtype: torch.dtype = torch.float32) -> None:
    data = torch.Generator().manual_seed(1000 * step + worker)
    x = torch.randn(6, 5, generator=data).to(dtype)
    model.zero_grad()
    (model(x) - x[:, :3]).square().mean().backward()


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, worker: int, steps: range) -> None:
    for step in steps:
        backward(model, worker, step)
        optimizer.step()


def nesterov(parameters: Any) -> torch.optim.Optimizer:
    return SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


# ---- a replay in one process


def replay(
    workers: int, steps: int, every: int, fragments: int = 1, delay: int = 0, keep: float = 0.0, outer: Any = None
) -> tuple[list[Tensor], Tensor]:
    """Return all workers' values and the centre after (streaming) DiLoCo, written down plainly."""
    models = [network() for _ in range(workers)]
    optimizers = [AdamW(model.parameters(), lr=0.01) for model in models]
    centre = values(models[0])
    ends = [len(centre) * place // fragments for place in range(fragments + 1)]
    parts = [slice(*ends[place : place + 2]) for place in range(fragments)]
    outers = []
    for part in parts:
        parameter = nn.Parameter(centre[part].clone())
        outers.append((parameter, (outer or nesterov)([parameter])))
    waiting: dict[int, tuple[int, Tensor]] = {}
    turn = 0
    for step in range(1, steps + 1):
        for worker, model in enumerate(models):
            backward(model, worker, step - 1)
            optimizers[worker].step()
        if step % (every // fragments) == 0:
            part = turn % fragments
            mean = torch.stack([values(model)[parts[part]] for model in models]).mean(0)
            waiting[step + delay] = (part, mean)
            turn += 1
        if step in waiting:
            part, mean = waiting.pop(step)
            parameter, optimizer = outers[part]
            parameter.grad = centre[parts[part]] - mean
            optimizer.step()
            centre[parts[part]] = parameter.detach()
            for model in models:
                own = values(model)
                own[parts[part]] = keep * own[parts[part]] + (1 - keep) * centre[parts[part]]
                nn.utils.vector_to_parameters(own, model.parameters())
    return [values(model) for model in models], centre


def diloco(rank: Rank, **options: Any) -> tuple[Tensor, Tensor]:
    """Take 13 steps with AdamW; return this worker's values and the centre."""
    model = network()
    optimizer = AdamW(model.parameters(), lr=0.01)
    with bs.DiLoCo(model, optimizer, **{"sync_every": 4, **options}) as strategy:
        take_steps(model, optimizer, rank.rank, range(13))
        return values(model), centre_of(strategy, model)


CASES: list[dict[str, Any]] = [
    {},
    {"fragments": 2},
    {"fragments": 2, "delay": 1, "keep": 0.5},
    {"fragments": 4, "delay": 0, "keep": 0.25},
    {"delay": 3},
    {"outer": lambda parameters: AdamW(parameters, lr=0.02)},
]


def join_gloo(rank: Rank) -> None:
    rank.store = dist.FileStore(str(rank.folder / "store"))
    dist.init_process_group("gloo", store=rank.store, rank=rank.rank, world_size=rank.size)


def of_all_cases(rank: Rank, backend: str) -> dict[str, Any]:
    if backend == "gloo":
        join_gloo(rank)
    found: dict[str, Any] = {}
    for number, case in enumerate(CASES):
        options = {"num_fragments": case.get("fragments", 1), "fragment_sync_delay": case.get("delay", 0)}
        options["fragment_update_alpha"] = case.get("keep", 0.0)
        found[f"case {number}"] = diloco(rank, outer_optimizer=case.get("outer"), **options)
    # With an outer rate of 1 and no momentum the centre becomes the mean.
    found["rate 1"] = diloco(rank, outer_lr=1.0, outer_momentum=0.0)
    model = network()
    optimizer = AdamW(model.parameters(), lr=0.01)
    with bs.LocalSGD(model, optimizer, sync_every=4) as strategy:
        take_steps(model, optimizer, rank.rank, range(13))
        found["mean"] = values(model), centre_of(strategy, model)
    # A period of 1 with plain SGD is DistributedDataParallel; so is a warm-up.
    for name, options in (("every 1", {"sync_every": 1}), ("warm", {"sync_every": 8, "warmup_steps": 6})):
        model = network()
        optimizer = SGD(model.parameters(), lr=0.05)
        with bs.LocalSGD(model, optimizer, **options) as strategy:
            take_steps(model, optimizer, rank.rank, range(6))
            assert strategy.stats()["rounds"] == 6
            found[name] = values(model), centre_of(strategy, model)
            take_steps(model, optimizer, rank.rank, range(6, 13))
            assert strategy.stats()["rounds"] == (13 if name == "every 1" else 6)
    model = network()
    copies = DistributedDataParallel(model)
    optimizer = SGD(model.parameters(), lr=0.05)
    take_steps(copies, optimizer, rank.rank, range(6))
    found["ddp"] = values(model)
    return found


@pytest.mark.parametrize(("ranks", "backend"), [(1, "braid"), (2, "gloo"), (3, "braid"), (5, "braid")])
def test_what_rounds_compute(ranks: int, backend: str) -> None:
    results = run_ranks(of_all_cases, ranks, backend, join=backend == "braid", timeout_s=RUN_S)
    for number, case in enumerate(CASES):
        workers, centre = replay(ranks, 13, 4, **case)
        for worker, found in enumerate(results):
            own, ours = found[f"case {number}"]
            torch.testing.assert_close(ours, centre, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(own, workers[worker], rtol=1e-4, atol=1e-6)
            assert torch.equal(ours, results[0][f"case {number}"][1]), "the centre differs among workers"
    for found in results:
        for one, other in zip(found["rate 1"], found["mean"], strict=True):
            assert torch.equal(one, other)
        for name in ("every 1", "warm"):
            for own in found[name]:
                torch.testing.assert_close(own, found["ddp"], rtol=1e-5, atol=1e-6)


# ---- uneven steps, buffers, half precision


def differ_in_steps(rank: Rank) -> list[Any]:
    found = []
    for options in (
        {"sync_every": 2},
        {"sync_every": 4, "num_fragments": 2, "fragment_sync_delay": 1},
        {"sync_every": 3, "warmup_steps": 4, "compression": "int8"},
        {"sync_every": (2, 4), "groups": [[0, 2], [1]], "warmup_steps": 3},
    ):
        torch.manual_seed(rank.rank)
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        optimizer = SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with bs.DiLoCo(model, optimizer, **options) as strategy:
            for epoch in range(2):
                for step in range(5 + 2 * rank.rank):
                    optimizer.zero_grad()
                    x = torch.randn(8, 4)
                    is_bad = rank.rank == 1 and epoch == 0 and step in (1, 2)
                    loss = (model(x).sum(1) - x.sum(1)).square().mean() * (float("inf") if is_bad else 1.0)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                strategy.settle()
                dist.barrier()  # now nobody is in a round
                floats = [value for value in model.state_dict().values() if value.is_floating_point()]
                own = torch.cat([value.flatten().clone() for value in floats])
                with strategy.centre():
                    floats = [value for value in model.state_dict().values() if value.is_floating_point()]
                    assert torch.equal(own, torch.cat([value.flatten() for value in floats]))
            assert own.isfinite().all()
            assert (own[15:18] != 0).any(), "the running means have not moved"
            found.append(own)
            assert strategy.stats()["steps"] == 2 * (5 + 2 * rank.rank) - 2 * (rank.rank == 1)
            for _ in range(rank.rank):  # whoever ends early answers the others in close()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        found.append(values(model))
    return found


def test_workers_may_differ_in_steps() -> None:
    results = run_ranks(differ_in_steps, 3, wire="tcp", timeout_s=RUN_S)
    for ours in results[1:]:
        for mine, first in zip(ours, results[0], strict=True):
            assert torch.equal(mine, first)


def no_step_is_lost(rank: Rank) -> list[Tensor]:
    """Workers move by known distances, each with another number of steps; return the centre at the end."""
    found = []
    for options in (
        {"sync_every": 3},
        {"sync_every": (2, 4), "groups": [[0, 1], [2, 3]]},
        {"sync_every": (1, 2), "groups": "host"},
        {"sync_every": 100},
    ):
        model = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = SGD(model.parameters(), lr=1.0)
        with bs.LocalSGD(model, optimizer, **options) as strategy:
            for _ in range(2 + 3 * rank.rank):
                model.weight.grad = torch.full((1, 3), -1.0)
                optimizer.step()
            strategy.settle()
            found.append(centre_of(strategy, model))
    return found


def test_no_step_is_lost() -> None:
    results = run_ranks(no_step_is_lost, 4, timeout_s=RUN_S)
    for ours in results:
        for case, mine in enumerate(ours):
            assert torch.equal(mine, results[0][case])
            assert (mine == mine[0]).all()
            # Each round moves the centre by the mean of those who take part: at most as far as the longest way.
            assert 0 < mine[0] <= 11
    # All meet once, at the end: the mean of 2, 5, 8 and 11 steps.
    assert results[0][3][0] == pytest.approx(6.5)
    # Rounds of 3 steps: 2 of all but worker 0 are over at 6, and so on; then all bring what is left.
    assert results[0][0][0] == pytest.approx(3 + 3 + 3 + (2 + 2 + 2 + 2) / 4)


# ---- bytes


def count_bytes(rank: Rank) -> dict[str, Any]:
    elements, every = 300_000, 5
    found: dict[str, Any] = {}

    def sent_by(strategy: Any) -> int:
        return sum(row["sent_bytes"] for row in braid.stats() if "sent_bytes" in row)

    for name, options in {
        "float32": {},
        "streaming": {"num_fragments": 5, "fragment_sync_delay": 0},
        "int4": {"compression": "int4"},
        "int8": {"compression": "int8", "num_fragments": 5},
    }.items():
        model = nn.Linear(elements, 1, bias=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        with bs.DiLoCo(model, optimizer, sync_every=every, **options) as strategy:
            for _ in range(4 * every):
                model.weight.grad = torch.randn(1, elements)
                optimizer.step()
            found[name] = strategy.stats()["sent_bytes"] / (4 * every)
            row = next(row for row in braid.stats() if "sent_bytes" in row.get("parameters", {}))
            assert row["parameters"]["sent_bytes"] == strategy.stats()["sent_bytes"]
            recorded = braid.flight_record()["parameter_services"] if hasattr(braid, "flight_record") else [row]
            assert any("last_workers" in each["parameters"] for each in recorded)
    found["ddp"] = 2 * (rank.size - 1) / rank.size * 4 * elements
    found["every"] = every
    return found


def test_bytes() -> None:
    for found in run_ranks(count_bytes, 3, timeout_s=RUN_S):
        assert found["float32"] == pytest.approx(found["ddp"] / found["every"], rel=0.02)
        assert found["streaming"] == pytest.approx(found["ddp"] / found["every"], rel=0.02)
        assert found["int4"] == pytest.approx(found["float32"] / 8, rel=0.04)  # scales of blocks
        assert found["int8"] == pytest.approx(found["float32"] / 4, rel=0.04)


# ---- who dies, fails, and comes back


def lose_one(rank: Rank, options: dict[str, Any]) -> str:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05)
    dist.barrier()
    begun = time.monotonic()
    try:
        with bs.DiLoCo(model, optimizer, **options):
            for step in range(200):
                if rank.rank == 2 and step == 15:
                    os.kill(os.getpid(), signal.SIGKILL)
                begun = time.monotonic()
                take_steps(model, optimizer, rank.rank, range(step, step + 1))
    except braid.CommunicatorError as error:
        assert time.monotonic() - begun < SOON_S
        return str(error)
    return "all is well"


@pytest.mark.parametrize(
    ("options", "over"),
    [
        ({"sync_every": 2}, "tcp"),
        ({"sync_every": (1, 4), "groups": [[0, 2], [1]]}, "shm"),
    ],
)
def test_rounds_end_when_a_worker_dies(options: dict[str, Any], over: str) -> None:
    for text in run_ranks(lose_one, 3, options, wire=over, killed=[2], timeout_s=RUN_S)[:2]:
        assert text.startswith("a round of local steps failed, which needs all workers: "), text
        assert "\n" not in text


def fail_one(rank: Rank, options: dict[str, Any]) -> str:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05)
    try:
        with bs.DiLoCo(model, optimizer, **options):
            take_steps(model, optimizer, rank.rank, range(9))
            if rank.rank == 1:
                raise KeyError("the user's own")
            take_steps(model, optimizer, rank.rank, range(9, 60))
    except (KeyError, braid.CommunicatorError) as error:
        for other in range(rank.size):
            rank.mark("heard")
            rank.wait_for("heard", other)
        return type(error).__name__ + str(error)
    return "all is well"


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": 4, "num_fragments": 2, "fragment_sync_delay": 1},
        {"sync_every": 4, "compression": "int4"},
        {"sync_every": (1, 4), "groups": [[0, 1], [2, 3]]},
    ],
)
def test_the_others_hear_of_an_error(options: dict[str, Any]) -> None:
    texts = run_ranks(fail_one, 4, options, timeout_s=RUN_S)
    assert texts.pop(1).startswith("KeyError")
    for text in texts:
        assert "another worker has left local steps after an error: its output says why" in text


def resume(rank: Rank, folder: str) -> None:
    """Two of three workers go on from a checkpoint, and a new one joins them."""
    whole = {"sync_every": 4, "num_fragments": 2, "fragment_sync_delay": 1, "compression": "int8"}
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    with bs.DiLoCo(model, optimizer, **whole) as strategy:
        take_steps(model, optimizer, rank.rank, range(8))  # a round is over, its result is taken in step 9
        take_steps(model, optimizer, rank.rank, range(8, 9))
        saved = [strategy.state_dict(), model.state_dict(), optimizer.state_dict()]
        torch.save(saved, f"{folder}/{rank.rank}")
        take_steps(model, optimizer, rank.rank, range(9, 15))
        expected = values(model), centre_of(strategy, model)
    saved = torch.load(f"{folder}/{rank.rank}", weights_only=True)
    for is_new in (False, True):
        again = network()
        nn.init.normal_(again[0].weight)
        optimizer = SGD(again.parameters(), lr=0.05, momentum=0.9)
        with bs.DiLoCo(again, optimizer, **whole) as strategy:
            if not (is_new and rank.rank == 2):
                again.load_state_dict(saved[1])
                optimizer.load_state_dict(saved[2])
            strategy.load_state_dict(None if is_new and rank.rank == 2 else saved[0])
            assert strategy.stats()["steps"] == 9
            if is_new:
                if rank.rank == 2:
                    assert torch.equal(values(again), saved[0]["centre"])
                assert torch.equal(centre_of(strategy, again), saved[0]["centre"])
                take_steps(again, optimizer, rank.rank, range(9, 15))
            else:
                take_steps(again, optimizer, rank.rank, range(9, 15))
                assert torch.equal(values(again), expected[0])
                assert torch.equal(centre_of(strategy, again), expected[1])
    with bs.DiLoCo(again, optimizer, sync_every=4) as strategy:
        with pytest.raises(ValueError, match="has fragments 2, but the strategy has 1"):
            strategy.load_state_dict(saved[0])
        with pytest.raises(ValueError, match="no state of LocalSGD or DiLoCo"):
            strategy.load_state_dict({})


def resume_with_fewer(rank: Rank, folder: str) -> Tensor:
    saved = torch.load(f"{folder}/{rank.rank}", weights_only=True)
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    options: dict[str, Any] = {"sync_every": 4, "num_fragments": 2, "fragment_sync_delay": 1}
    with bs.DiLoCo(model, optimizer, compression="int8", **options) as strategy:
        model.load_state_dict(saved[1])
        optimizer.load_state_dict(saved[2])
        strategy.load_state_dict(saved[0])
        assert torch.equal(centre_of(strategy, model), saved[0]["centre"])
        assert optimizer.param_groups[0]["lr"] == 0.05
        take_steps(model, optimizer, rank.rank, range(9, 15))
        assert strategy.stats()["last_workers"] == rank.size
        return centre_of(strategy, model)


def test_resume(tmp_path: Any) -> None:
    run_ranks(resume, 3, str(tmp_path), timeout_s=RUN_S)
    one, other = run_ranks(resume_with_fewer, 2, str(tmp_path), timeout_s=RUN_S)
    assert torch.equal(one, other)


def half_precision(rank: Rank) -> None:
    model = nn.Linear(4, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(model.weight)
    optimizer = SGD(model.parameters(), lr=2**-7)  # the last digit of bfloat16 at 1
    with bs.LocalSGD(model, optimizer, sync_every=1) as strategy:
        for _ in range(6):  # one of two workers moves: the mean is half a digit
            model.weight.grad = torch.full((1, 4), -float(rank.rank), dtype=torch.bfloat16)
            optimizer.step()
        assert strategy._exchange.vector.tolist() == pytest.approx(4 * [1 + 3 * 2**-7], abs=1e-6)


def test_the_centre_keeps_small_moves() -> None:
    run_ranks(half_precision, 2)
