# SPDX-License-Identifier: Apache-2.0
"""BRAID_STRATEGY: whoever ends first has the last updates of all, and so have all ranks the same values."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ports import free_port
from ranks import Rank, run_ranks
from serving import serving
from slowness import limit
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

RATE = 0.5
FIRST = 1  # steps of all, before one after the other ends
RUN_S = 300.0
# No test waits for it: a run whose ranks do would be over before.
WHOLE_S = limit(3600.0)


class Training:
    """A script's own: a parameter whose gradient is the rank's number plus one, in every step."""

    def __init__(self, rank: Rank, model: nn.Linear | None = None) -> None:
        self.rank, self.model = rank, model or nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.wrapped = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def take(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            (self.wrapped(torch.ones(1, 1)) * (self.rank.rank + 1)).sum().backward()
            self.optimizer.step()

    @property
    def value(self) -> float:
        return self.model.weight.item()


def begin(rank: Rank, text: str, port: int = 0) -> None:
    """What happens in `import torch`, and then in the script; at a port, processes of `braid serve` can come."""
    from braid._unedited.install import install

    os.environ["BRAID_STRATEGY"] = text
    install(text)
    if port:
        rank.meet_at(port)
    else:
        rank.join()


def more_steps(rank: int) -> int:
    return 4 + 13 * rank


def one_after_the_other(rank: Rank, training: Training, more: int, mark: str = "ends") -> None:
    """Take steps; all but those of the beginning when the rank before this one already ends."""
    training.take(FIRST)
    rank.mark(f"{mark} soon")
    for other in range(rank.size):  # else one could begin with values that another one has changed already
        rank.wait_for(f"{mark} soon", other)
    if rank.rank:
        rank.wait_for(mark, rank.rank - 1)
    training.take(more)
    rank.mark(mark)


def end(rank: Rank, text: str) -> float:
    begin(rank, text)
    training = Training(rank)
    one_after_the_other(rank, training, more_steps(rank.rank))
    dist.destroy_process_group()
    return training.value


def end_in_step(rank: Rank, text: str) -> float:
    """As end(), but the first rank takes no step in which others would have to come."""
    begin(rank, text)
    training = Training(rank)
    one_after_the_other(rank, training, 13 * rank.rank)
    dist.destroy_process_group()
    return training.value


def sum_of_all(ranks: int) -> float:
    return -RATE * sum((rank + 1) * (FIRST + more_steps(rank)) for rank in range(ranks))


def mean_of_all(ranks: int) -> float:
    return sum_of_all(ranks) / ranks


def elastic_centre(ranks: int) -> float:
    """Return the centre after exchanges in every second step, of half of the distance."""
    centre = 0.0
    for rank in range(ranks):
        own = 0.0
        for step in range(FIRST + more_steps(rank)):
            moved = 0.5 * (own - centre) if step % 2 else 0.0
            centre += moved
            own -= RATE * (rank + 1) + moved
    return centre


CASES = {
    "parameter_server:mode=async": sum_of_all,
    "parameter_server:mode=async,delay=1": sum_of_all,
    "parameter_server:mode=ssp,staleness=20": sum_of_all,
    "parameter_server:mode=async,local=true": sum_of_all,
    "elastic:sync_every=2,alpha=0.5,schedule=first_come": elastic_centre,
    "diloco:sync_every=2,asynchronous=true,outer_lr=1.0,outer_momentum=0.0": mean_of_all,
    "gossip:sync_every=2": mean_of_all,
}


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("text", CASES)
def test_the_first_to_end_has_the_updates_of_all(text: str, ranks: int) -> None:
    values = run_ranks(end, ranks, text, join=False, timeout_s=RUN_S)
    assert values == [values[0]] * ranks
    assert values[0] == pytest.approx(CASES[text](ranks), rel=1e-5)


@pytest.mark.parametrize(
    "text",
    ["hybrid:groups=0/1", "local:sync_every=3", "parameter_server:mode=sync", "gossip:mode=push_sum,sync_every=2"],
)
def test_all_have_the_same_values(text: str) -> None:
    """Of strategies where a step's weight depends on who else takes one."""
    first, second = run_ranks(end_in_step, 2, text, join=False, timeout_s=RUN_S)
    assert first == second != 0.0


def jobs(rank: Rank, text: str) -> list[float]:
    """Train in one job after another, in the same process and with the same module."""
    from braid._unedited.install import install

    os.environ["BRAID_STRATEGY"] = text
    install(text)
    model, after = nn.Linear(1, 1, bias=False), []
    for job in range(2):
        rank.join(f"job {job}")
        training = Training(rank, model)
        one_after_the_other(rank, training, more_steps(rank.rank), f"ends {job}")
        dist.destroy_process_group()
        after.append(training.value)
    return after


@pytest.mark.parametrize("text", ["parameter_server:mode=async", "gossip:sync_every=2"])
def test_two_jobs_of_a_process(text: str) -> None:
    values = run_ranks(jobs, 2, text, join=False, timeout_s=RUN_S)
    assert values == [pytest.approx([CASES[text](2)] * 2)] * 2
    assert values[0] == values[1]


def two_modules(rank: Rank, text: str) -> list[float]:
    """The first rank ends both while the other one still trains with either in turn."""
    begin(rank, text)
    both = [Training(rank) for _ in range(2)]
    for training in both:
        training.take(1)
    if rank.rank:
        rank.wait_for("ends", 0)
        for _ in range(20):
            for training in reversed(both):
                training.take(1)
    rank.mark("ends")
    dist.destroy_process_group()
    return [training.value for training in both]


@pytest.mark.parametrize("text", ["parameter_server:mode=async", "parameter_server:mode=ssp,staleness=2"])
def test_two_modules(text: str) -> None:
    values = run_ranks(two_modules, 2, text, join=False, timeout_s=RUN_S)
    assert values == [[-RATE * (1 + 2 * 21)] * 2] * 2


def die(rank: Rank, text: str, how: str, port: int = 0) -> float:
    """The last rank dies, or ends with an error, when the others end already."""
    begin(rank, f"{text},timeout={WHOLE_S}", port)
    training = Training(rank)
    training.take(2 + rank.rank)
    rank.mark("trained")
    if rank.rank < 2:
        rank.wait_for("trained", 2)
        rank.mark("ends")
        dist.destroy_process_group()
        return training.value
    rank.wait_for("ends", 0)
    rank.wait_for("ends", 1)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        raise ValueError("of the script")
    except ValueError:
        dist.destroy_process_group()
    return training.value


DEATHS = [
    "parameter_server:mode=async,servers=0",
    "parameter_server:mode=ssp,staleness=9,servers=1",
    "gossip:seed=1",
]


@pytest.mark.parametrize("how", ["killed", "raises"])
@pytest.mark.parametrize("text", DEATHS)
def test_who_dies_does_not_hold_up_the_others(text: str, how: str) -> None:
    """Its updates that others have are in the values."""
    killed = [2] if how == "killed" else []
    first, second, _ = run_ranks(die, 3, text, how, join=False, killed=killed, timeout_s=RUN_S)
    assert first == second
    if text.startswith("parameter_server"):
        assert first == -RATE * (1 * 2 + 2 * 3 + 3 * 4)


def test_a_death_of_which_no_worker_hears_from_a_server() -> None:
    port, text = free_port(), "parameter_server:mode=async,servers=serve:1"
    with serving(f"127.0.0.1:{port}", 1):
        values = run_ranks(die, 3, text, "killed", port, join=False, killed=[2], timeout_s=RUN_S)
    assert values[:2] == [-RATE * (1 * 2 + 2 * 3 + 3 * 4)] * 2


def end_of_group(rank: Rank) -> float:
    """A member of the second group dies, so that group ends. The first one goes on."""
    begin(rank, f"hybrid:groups=0/1+2,timeout={WHOLE_S}")
    training = Training(rank)
    training.take(2)
    rank.mark("trained")
    if rank.rank == 0:
        rank.wait_for("trained", 1)
        rank.wait_for("trained", 2)
    elif rank.rank == 1:
        rank.wait_for("trained", 2)
        with pytest.raises(RuntimeError, match="ends"):
            training.take(1)
        rank.mark("ends")
    else:
        rank.wait_for("trained", 1)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()
    return training.value


def test_a_group_that_ends_does_not_hold_up_the_others() -> None:
    values = run_ranks(end_of_group, 3, join=False, killed=[2], timeout_s=RUN_S)
    assert values[0] != 0.0


def stay_away(rank: Rank) -> str:
    begin(rank, f"parameter_server:mode=async,servers=1,timeout={limit(6)}")
    training = Training(rank)
    training.take(1)
    if rank.rank:
        rank.wait_for("over", 0)
    dist.destroy_process_group()
    rank.mark("over")
    return (rank.folder / f"log.{rank.rank}").read_text()


def test_one_that_does_not_come_is_told() -> None:
    said, _ = run_ranks(stay_away, 2, join=False, timeout_s=RUN_S)
    assert (
        "this worker ends without the last updates of all: worker 1 did not come to settle(everyone=True)" in said
    )


SCRIPT = """
import atexit, os, sys
from pathlib import Path

sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist
from waiting import eventually

here = Path(sys.argv[1])
model = torch.nn.Linear(1, 1, bias=False)
atexit.register(lambda: (here / f"value.{{rank}}").write_text(str(model.weight.item())))  # called last
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.nn.init.zeros_(model.weight)
wrapped = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(1 + 30 * rank):
    if rank and step == 1:
        eventually((here / "ends").exists)
    optimizer.zero_grad()
    (wrapped(torch.ones(1, 1)) * (rank + 1)).sum().backward()
    optimizer.step()
(here / "ends").touch()
{end}
"""


def run_script(folder: Path, end: str) -> list[tuple[int, str]]:
    """Run the script on two ranks. Return their status, and what they have written to standard error."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent.parent), end=end))
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    text = {"BRAID_STRATEGY": f"parameter_server:mode=async,servers=1,timeout={WHOLE_S}"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            env={**os.environ, **job, **text, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=limit(RUN_S))[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    return [(rank.returncode, err) for rank, err in zip(ranks, said, strict=True)]


FORK = "child = os.fork()\nif child == 0: sys.exit(0)\nassert os.waitpid(child, 0)[1] == 0, 'the child failed'"


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("", marks=pytest.mark.long),
        pytest.param("sys.exit(0)", id="exit", marks=pytest.mark.long),
        pytest.param(FORK, id="fork", marks=pytest.mark.long),
    ],
)
def test_a_script_that_destroys_nothing(end: str, tmp_path: Path) -> None:
    for status, err in run_script(tmp_path, end):
        assert status == 0, err
    assert [float((tmp_path / f"value.{rank}").read_text()) for rank in range(2)] == [-RATE * (1 + 2 * 31)] * 2


def test_a_script_that_ends_with_an_error(tmp_path: Path) -> None:
    """The other rank ends, with the updates that the first one has made."""
    (failed, told), (status, err) = run_script(tmp_path, "if rank == 0: raise ValueError('of the script')")
    assert failed == 1
    assert "of the script" in told
    assert status == 0, err
    assert float((tmp_path / "value.1").read_text()) == -RATE * (1 + 2 * 31)
