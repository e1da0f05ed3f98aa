# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C gets through to whoever waits in torch.distributed, and a second one ends the process."""

import os
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hosts_apart import join_apart
from ranks import SOON_S, Rank, run_ranks
from slowness import limit
from stopped import go_on_after, interrupted, start_script, stop_soon, stopped
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


def batch(other: int) -> None:
    ops = [
        dist.P2POp(dist.isend, torch.ones(9), other),
        dist.P2POp(dist.irecv, torch.zeros(9), other),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def coalesced() -> None:
    with dist._coalescing_manager() as manager:
        for _ in range(3):
            dist.all_reduce(torch.ones(100_000))
    assert manager is not None


def sparse() -> None:
    dist.all_reduce(torch.ones(5).to_sparse())


# Several operations each: one that was interrupted in the middle has not started the rest, as the others have.
COMPOSED = ("all_gather_object", "sparse")


def calls_of(other: int) -> dict[str, Callable[[], Any]]:
    big = torch.ones(1_000_000)
    return {
        "all_reduce": lambda: dist.all_reduce(torch.ones(10)),
        "all_reduce of 4 MB": lambda: dist.all_reduce(big),
        "wait": lambda: dist.all_reduce(torch.ones(10), async_op=True).wait(),
        "wait with a limit": lambda: dist.all_reduce(torch.ones(10), async_op=True).wait(timedelta(seconds=20)),
        "broadcast": lambda: dist.broadcast(torch.ones(10), 1),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4)),
        "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
        "coalesced": coalesced,
        "sparse": sparse,
        "barrier": dist.barrier,
        "monitored_barrier": dist.monitored_barrier,
        "recv": lambda: dist.recv(torch.zeros(9), other),
        "batch_isend_irecv": lambda: batch(other),
    }


def interrupt_each(rank: Rank, apart: bool, name: str) -> None:
    if apart:
        join_apart(rank)
    dist.all_reduce(torch.ones(10))
    call = calls_of(1 - rank.rank)[name]
    if rank.rank == 1:
        stop_soon(rank, "stop")
        # What was interrupted went on: its counterpart ends, and what comes next is in step.
        if name in COMPOSED:
            return
        if name == "recv":
            dist.send(torch.ones(9), 0)
        else:
            with suppress(KeyboardInterrupt):
                call()
    else:
        with stopped(rank, "stop"):
            late = interrupted(call)
        print(f"{name}: {late:.3f} s")
        if name in COMPOSED:
            return
    total = torch.full((3,), float(rank.rank + 1))
    dist.all_reduce(total)
    assert total.tolist() == [3] * 3


def go_on_after_a_handler(rank: Rank) -> None:
    dist.barrier()
    total = torch.full((1000,), float(rank.rank + 1))
    if rank.rank == 1:
        stop_soon(rank, "stop")
        dist.all_reduce(total)
    else:
        seen: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        with stopped(rank, "stop"):
            go_on_after(rank, signal.SIGUSR1, seen, times=2)
            dist.all_reduce(total)
        assert seen == [signal.SIGUSR1] * 2
    assert total.tolist() == [3] * 1000


def keep_tensors_alive(rank: Rank) -> None:
    """Memory that an interrupted operation uses stays, though nobody holds it."""
    dist.barrier()
    if rank.rank == 1:
        stop_soon(rank, "stop")
        total = torch.full((1_000_000,), 2.0)
        dist.all_reduce(total)
        assert total.sum().item() == 3_000_000
    else:
        with stopped(rank, "stop"):
            interrupted(lambda: dist.all_reduce(torch.ones(1_000_000)))
            others = [torch.full((1_000_000,), 7.0) for _ in range(8)]  # where it lay, if it were free
        dist.barrier()
        assert all(other.sum().item() == 7_000_000 for other in others)
        return
    dist.barrier()


def miss_a_member(rank: Rank) -> None:
    if rank.rank == 0:
        late = interrupted(lambda: rank.join(timeout_s=60))
        print(f"init: {late:.3f} s")
        assert not dist.is_initialized()


def miss_a_member_of_a_new_group(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 0:
        with stopped(rank, "stop"):
            late = interrupted(lambda: dist.new_group([0, 1]))
        print(f"new_group: {late:.3f} s")
    else:
        stop_soon(rank, "stop")


def interrupt_the_end(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 0:
        with stopped(rank, "stop"):
            works = [dist.all_reduce(torch.ones(10), async_op=True)]
            late = interrupted(dist.destroy_process_group)
            print(f"destroy: {late:.3f} s")
            del works
    else:
        stop_soon(rank, "stop")
        with suppress(dist.DistBackendError):
            dist.all_reduce(torch.ones(10))


# How DDP's buckets are reduced. With a hook in Python torch's own error, of its callback, comes first.
HOOKS: dict[str, Any] = {
    "none": None,
    "in C++": dist.BuiltinCommHookType.FP16_COMPRESS,
    "in Python": fp16_compress_hook,
}


def replicas(hook: Any) -> tuple[DistributedDataParallel, Callable[[], None]]:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(50, 50) for _ in range(3)]), bucket_cap_mb=0.01
    )
    if callable(hook):
        model.register_comm_hook(None, hook)
    elif hook is not None:
        model._register_builtin_comm_hook(hook)

    def step() -> None:
        model.zero_grad()
        model(torch.ones(4, 50)).sum().backward()

    step()
    return model, step


def interrupt_backward(rank: Rank, hook: str) -> None:
    model, step = replicas(HOOKS[hook])
    if rank.rank == 1:
        stop_soon(rank, "stop")
        step()
    else:
        with stopped(rank, "stop"):
            late = interrupted(step)
            print(f"backward, hook {hook}: {late:.3f} s")
            time.sleep(0.5)  # the signal comes once
            assert len(model.state_dict()) == 6
    for _ in range(3):
        step()


def interrupt_a_future(rank: Rank) -> None:
    """Its operation goes on, and who asks again gets its result."""
    dist.barrier()
    total = torch.full((1000,), float(rank.rank + 1))
    if rank.rank == 1:
        stop_soon(rank, "stop")
        dist.all_reduce(total)
    else:
        with stopped(rank, "stop"):
            work = dist.all_reduce(total, async_op=True)
            late = interrupted(work.get_future().wait)
            print(f"future: {late:.3f} s")
        assert work.get_future().wait()[0].tolist() == [3] * 1000
        work.wait()
    assert total.tolist() == [3] * 1000


def go_on_with_backward_after_a_handler(rank: Rank) -> None:
    model, step = replicas(None)
    if rank.rank == 1:
        stop_soon(rank, "stop")
        step()
    else:
        seen: list[int] = []
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        with stopped(rank, "stop"):
            pid = int((rank.folder / "pid.1").read_text())

            def press_and_go_on() -> None:  # the handler runs when the backward pass is over
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.2)
                os.kill(pid, signal.SIGCONT)

            threading.Thread(target=press_and_go_on).start()
            step()
        assert seen == [signal.SIGINT]
    grads = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    mean = grads.clone()
    dist.all_reduce(mean)
    assert torch.equal(mean / 2, grads)


def leave_the_wakeup_to_others(rank: Rank) -> None:
    """A program that uses Python's wakeup descriptor itself keeps it; a forked child does not use ours."""
    ours = signal.set_wakeup_fd(-1)
    assert ours != -1
    signal.set_wakeup_fd(ours)
    child = os.fork()
    if child == 0:
        os._exit(0 if signal.set_wakeup_fd(-1) == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    heard, told = socket.socketpair()
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno())
    dist.new_group([0, 1])
    assert signal.set_wakeup_fd(-1) == told.fileno()
    heard.close()
    told.close()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", list(calls_of(0)))
def test_ctrl_c_in_an_operation(name: str, apart: bool) -> None:
    run_ranks(interrupt_each, 2, apart, name, wire="shm,tcp", join=not apart)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize(
    "function",
    [
        go_on_after_a_handler,
        keep_tensors_alive,
        interrupt_the_end,
        interrupt_a_future,
        go_on_with_backward_after_a_handler,
        leave_the_wakeup_to_others,
    ],
)
def test_around_an_operation(function: Callable[[Rank], None], wire: str) -> None:
    run_ranks(function, 2, wire=wire)


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("hook", list(HOOKS))
def test_ctrl_c_in_backward(hook: str, wire: str) -> None:
    run_ranks(interrupt_backward, 2, hook, wire=wire)


def test_ctrl_c_while_a_group_forms(wire: str) -> None:
    run_ranks(miss_a_member, 2, wire=wire, join=False)


def test_ctrl_c_while_a_new_group_forms(wire: str) -> None:
    run_ranks(miss_a_member_of_a_new_group, 2, wire=wire)


# Two ranks; rank 1 stops, rank 0 waits for it.
SCRIPT = """
    import atexit, os, signal, sys, time
    atexit.register(lambda: print("left at", time.monotonic(), flush=True))  # after all that is registered later
    import torch, torch.distributed as dist, braid

    rank, store, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("braid", store=dist.FileStore(store), rank=rank, world_size=2)
    dist.barrier()
    if rank == 1:
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    time.sleep(0.2)
    try:
        print("waits", flush=True)
        dist.all_reduce(torch.ones(3))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if what == "again":
            dist.barrier()
        if what == "future":
            dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
        if what == "destroy":
            dist.destroy_process_group()
        if what == "exit":
            sys.exit(3)
        raise
    """


def start_pair(tmp_path: Path, what: str, **variables: str) -> tuple[Any, Any]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    pair = [start_script(script, rank, tmp_path / "store", what, **variables) for rank in range(2)]
    for process, word in zip(pair, ("waits", "stops"), strict=True):
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(word in line for line in lines)
    time.sleep(1)
    return pair[0], pair[1]


@pytest.mark.long_over_tcp
@pytest.mark.parametrize(
    "what",
    ["raise", *(pytest.param(what, marks=pytest.mark.long) for what in ("again", "future", "destroy", "exit"))],
)
def test_second_ctrl_c_ends_the_process(what: str, wire: str, tmp_path: Path) -> None:
    waits, stops = start_pair(tmp_path, what, BRAID_TRANSPORTS=wire)
    try:
        if what != "raise":  # else nobody catches the first
            waits.send_signal(signal.SIGINT)
            assert any("interrupted" in line for line in iter(waits.stdout.readline, ""))
            time.sleep(0.3)
        sent = time.monotonic()
        waits.send_signal(signal.SIGINT)
        rest = waits.communicate(timeout=limit(200))[0]
        left = next(float(line.split()[2]) for line in rest.splitlines() if line.startswith("left at"))
        assert left > sent, rest  # the first one is over
        print(
            f"{what}, {wire}: {left - sent:.2f} s to leave, {time.monotonic() - sent:.2f} s with Python's own end"
        )
        assert left - sent < SOON_S, rest
        assert waits.returncode == (3 if what == "exit" else -signal.SIGINT), rest
    finally:
        stops.kill()
        waits.kill()
