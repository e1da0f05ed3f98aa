# SPDX-License-Identifier: Apache-2.0
"""``braid advise``: divisions of a batch, predictions, the choice, and what the command refuses."""

import itertools
import json
from pathlib import Path

import pytest
from braid import _core
from braid._advice.candidates import Candidate, Preference, candidates
from braid._advice.choice import choose
from braid._advice.network import Network
from braid._advice.workload import Worker, Workload, balanced
from braid.cli import main

pytestmark = pytest.mark.unit

GIGABIT = 8e-9  # seconds per byte


def network(ranks: int, s_per_byte: float = GIGABIT, slow: float | None = None) -> Network:
    cards = [(s_per_byte, s_per_byte)] * ranks
    if slow is not None:
        cards[-1] = (slow, slow)
    return Network(_core.stated_topology(list(range(ranks)), 5e-5, s_per_byte, cards))


def named(found: list[Candidate], name: str, workers: int) -> Candidate:
    return max(
        (one for one in found if one.name == name and len(one.workers) == workers), key=lambda one: one.worth
    )


@pytest.mark.parametrize("batch", [0, 1, 2, 5, 9])
@pytest.mark.parametrize(
    "workers",
    [
        [Worker(1.0)],
        [Worker(1.0), Worker(1.0)],
        [Worker(1.0), Worker(3.0), Worker(0.5)],
        [Worker(1.0, 2.0), Worker(1.0, 0.0), Worker(0.3, 5.0)],
        [Worker(0.001, 100.0), Worker(1.0)],
    ],
)
def test_no_division_is_shorter(workers: list[Worker], batch: int) -> None:
    def longest(shares: tuple[int, ...]) -> float:
        return max(worker.compute_s(share) for worker, share in zip(workers, shares, strict=True))

    shares = balanced(batch, workers)
    every = itertools.product(range(batch + 1), repeat=len(workers))
    best = min(longest(division) for division in every if sum(division) == batch)
    assert sum(shares) == batch
    assert longest(tuple(shares)) == pytest.approx(best)


def test_a_large_batch_is_divided_by_speed() -> None:
    assert balanced(1_000_000, [Worker(1e-3), Worker(3e-3)]) == [750_000, 250_000]


def test_predictions_are_compute_and_all_reduce() -> None:
    work = Workload(64, 1 << 20, [Worker(1e-3, 2e-3)] * 4)
    net = network(4)
    plain = candidates(work, net)[0]
    step_s = 2e-3 + 16 * 1e-3 + net.all_reduce_s(range(4), 1 << 20)
    assert plain.samples_per_s == pytest.approx(64 / step_s)
    assert plain.participant_seconds == pytest.approx(1000 * 4 * step_s / 64)
    assert plain.cpu_seconds == pytest.approx(1000 * 4 * 18e-3 / 64)


def test_overlap_hides_communication() -> None:
    net = network(4)
    alone = Workload(64, 1 << 20, [Worker(1e-3)] * 4)
    hidden = Workload(64, 1 << 20, [Worker(1e-3)] * 4, overlap=1.0)
    assert net.all_reduce_s(range(4), 1 << 20) == pytest.approx(0.0135, rel=0.2)
    assert candidates(hidden, net)[0].samples_per_s == pytest.approx(64 / 16e-3)
    assert candidates(alone, net)[0].samples_per_s < 64 / 25e-3


def test_one_worker_may_be_best() -> None:
    # As for AlexNet with a small batch in the paper on WAP: communication costs more than what it saves.
    work = Workload(16, 100 << 20, [Worker(1e-3, 5e-3)] * 4)
    found = candidates(work, network(4))
    assert named(found, "all_reduce", 1).samples_per_s > 1.5 * found[0].samples_per_s
    exact = [one for one in found if one.preference is Preference.EXACT]
    assert len(choose([found[0], *exact]).chosen.workers) == 1


def test_a_slow_link_is_left_out() -> None:
    work = Workload(64, 10 << 20, [Worker(10e-3)] * 4)
    found = candidates(work, network(4, slow=100 * GIGABIT))
    exact = [one for one in found if one.preference is Preference.EXACT]
    assert choose([found[0], *exact]).chosen.workers == (0, 1, 2)


def test_equal_workers_get_the_plain_all_reduce() -> None:
    advice = choose(candidates(Workload(256, 1 << 16, [Worker(1e-2)] * 4), network(4)))
    assert advice.chosen is advice.plain
    assert advice.gain == 1


def test_balanced_batches_come_before_asynchrony() -> None:
    work = Workload(256, 1 << 16, [Worker(1e-3)] * 3 + [Worker(5e-3)])
    advice = choose(candidates(work, network(4)))
    assert advice.chosen.name == "balanced batches"
    assert advice.gain == pytest.approx(5 * (3 + 0.2) / 4, rel=0.1)


def test_groups_are_workers_that_are_alike() -> None:
    work = Workload(64, 1 << 16, [Worker(1e-3), Worker(4e-3), Worker(1.1e-3), Worker(4e-3)])
    hybrid = named(candidates(work, network(4)), "hybrid groups", 4)
    assert hybrid.how == "hybrid:groups=0+2/1+3"
    assert hybrid.staleness == 1


def test_servers_links_bound_asynchronous_updates() -> None:
    work = Workload(4, 100 << 20, [Worker(1e-3)] * 4)
    one = named(candidates(work, network(4)), "asynchronous server", 4)
    # Each update moves three quarters of the vector through a worker's link, and through servers' links.
    assert one.samples_per_s <= 4 / (0.75 * (100 << 20) * GIGABIT)
    assert one.samples_per_s > 0.8 * 4 / (0.75 * (100 << 20) * GIGABIT)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_all_candidates_are_whole(ranks: int) -> None:
    work = Workload(37, 1 << 20, [Worker(1e-3 * (1 + at)) for at in range(ranks)])
    for one in candidates(work, network(ranks)):
        assert sum(one.samples) == pytest.approx(37)
        assert len(one.samples) == len(one.workers) == len(set(one.workers))
        assert one.samples_per_s > 0


def test_the_strategies_texts_can_be_read() -> None:
    from braid.strategies.text import read

    work = Workload(64, 1 << 16, [Worker(1e-3), Worker(4e-3), Worker(1e-3)])
    texts = [one.how for one in candidates(work, network(3)) if one.preference is Preference.ASYNCHRONOUS]
    assert len(texts) == 3
    for text in texts:
        read(text)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "advice.json", tmp_path / "advice.png"
    options = "--batch 256 --bytes 1M --sample-ms 3,3,3,12 --overhead-ms 5 --hosts 4x1gbit"
    assert main(["advise", *options.split(), "--json", str(out), "--plot", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "Advice: balanced batches on all workers" in said
    assert "links are stated" in said
    found = json.loads(out.read_text())
    assert found["advice"]["samples"] == [79, 79, 79, 19]
    assert len(found["candidates"]) > 10
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_processors_of_stated_hosts_count(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--batch 90 --bytes 1K --sample-ms 3 --hosts 1x1gbit,1x1gbit@50%"
    assert main(["advise", *options.split()]) == 0
    assert "samples of each: 60, 30" in capsys.readouterr().out


SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(100, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    time.sleep(0.02)
    model(torch.ones(4, 100)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_script_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, out = tmp_path / "train.py", tmp_path / "advice.json"
    script.write_text(SCRIPT)
    options = f"--batch 16 --script-batch 4 --steps 5 --hosts 2x1gbit --json {out}".split()
    assert main(["advise", *options, "--script", f"{script} 1000"]) == 0
    found = json.loads(out.read_text())
    assert found["measured"]["steps"] == 5
    assert found["measured"]["step_s"] > 0.02
    assert found["workload"]["gradient_bytes"] == 4 * (100 * 100 + 100)
    capsys.readouterr()
    assert main(["advise", *options, "--script", f"{script} 3"]) == 2
    assert "ended before an optimizer of torch had made 6 steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--batch 0 --bytes 1M --sample-ms 1 --hosts 2x1gbit", "--batch: expected at least 1 sample, got 0"),
        ("--batch 8 --bytes 1M --hosts 2x1gbit", "say how long a sample takes"),
        ("--batch 8 --sample-ms 1 --hosts 2x1gbit", "say how many bytes of gradients travel"),
        ("--batch 8 --bytes 1M --model gpt2 --sample-ms 1 --hosts 2x1gbit", "leave out --bytes"),
        ("--batch 8 --bytes 1M --sample-ms 1,2,3 --hosts 2x1gbit", "--sample-ms: 3 numbers for 2 ranks"),
        ("--batch 8 --bytes 1M --sample-ms 0 --hosts 2x1gbit", "--sample-ms: expected numbers above 0, got '0'"),
        ("--batch 8 --bytes 1M --sample-ms x --hosts 2x1gbit", "--sample-ms: expected numbers, got 'x'"),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2xfast", "'fast' is no rate"),
        ("--batch 8 --bytes 1M --sample-ms 1 --overlap 2 --hosts 2x1gbit", "--overlap: expected 0 to 1, got 2"),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2x1gbit --lab 2x1gbit", "leave out --lab"),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2x1gbit --plot a.txt", "--plot writes"),
        (
            "--batch 8 --bytes 1M --script nowhere.py --script-batch 2 --hosts 2x1gbit",
            "there is no file nowhere.py",
        ),
        ("--batch 8 --bytes 1M --script a.py --hosts 2x1gbit", "--script needs --script-batch"),
        ("--batch 8 --bytes 1M --script a.py --sample-ms 1 --hosts 2x1gbit", "leave one out"),
        ("--batch 8 --bytes 1M --sample-ms 1", "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set"),
    ],
)
def test_what_is_refused(options: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *options.split()]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
