# SPDX-License-Identifier: Apache-2.0
"""``braid advise``: divisions of a batch, predictions, the choice, and what the command refuses."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from braid import _core
from braid._advice.assumptions import Assumptions
from braid._advice.candidate import Candidate, Preference
from braid._advice.candidates import candidates
from braid._advice.choice import choose
from braid._advice.drift import drift, drift_from_centre, drift_in_pairs
from braid._advice.gossip import COPIES
from braid._advice.network import Network
from braid._advice.ports import QUEUE_BYTES, Traffic, there_and_back
from braid._advice.servers import server_shares
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
    # Each update moves three quarters of the vector to the servers, and then back. A host's link has as many of
    # others' updates.
    assert one.samples_per_s <= 4 / (1.5 * (100 << 20) * GIGABIT)
    assert one.samples_per_s > 0.8 * 4 / (1.5 * (100 << 20) * GIGABIT)


def test_a_slow_host_serves_nothing() -> None:
    assert server_shares(network(4)) == pytest.approx([0.25] * 4)
    assert server_shares(network(4, slow=10 * GIGABIT)) == pytest.approx([1 / 3] * 3 + [0])


def test_servers_on_fast_hosts_make_one_worker_slow_and_not_all() -> None:
    size, slow = 10 << 20, 1000 * GIGABIT
    one = named(candidates(Workload(4, size, [Worker(0.1)] * 4), network(4, slow=slow)), "elastic averaging", 4)
    # The slow link would let nobody through, were a quarter of the vector behind it.
    assert one.samples_per_s < 3 / 0.1
    assert one.samples_per_s > 10 * 4 * one.period / (2 * 0.75 * size * slow)


@pytest.mark.parametrize("size", [1e5, 1e7])
def test_an_answer_waits_behind_what_its_host_sends(size: float) -> None:
    slow = 100 * GIGABIT
    net = network(3, slow=slow)
    small, large = there_and_back(net, 0, {2: 0.0}), there_and_back(net, 2, {0: size / 2, 1: size / 2})
    assert Traffic(net, [small]).seconds()[0] == pytest.approx(2 * net.latency_s)
    traffic = Traffic(net, [small, large])
    # The card of host 2 sends for half of the time, and receives for the other half. Who comes finds it busy with
    # chance a half. Then it waits for half of the bytes, but for no more than a queue of them.
    seconds = traffic.settle(lambda seconds: [1.0, 1 / seconds[1]])
    wait_s = 0.5 * min(size / 2, QUEUE_BYTES) * slow
    assert seconds[0] == pytest.approx(2 * (wait_s + net.latency_s), rel=0.01)
    assert seconds[1] == pytest.approx(2 * (size * slow + net.latency_s), rel=0.01)


def test_ports_pass_no_more_than_they_can() -> None:
    net = network(5)
    to_one = [there_and_back(net, rank, {0: 1e6}) for rank in range(1, 5)]
    traffic = Traffic(net, to_one)
    traffic.settle(lambda seconds: [1e9] * 4)
    assert sum(traffic.rates) * 1e6 * GIGABIT == pytest.approx(1.0, rel=1e-3)


def test_on_one_host_no_exchange_takes_time() -> None:
    net = Network(_core.stated_topology([0, 0], 5e-5, GIGABIT, [(GIGABIT, GIGABIT)] * 2))
    assert Traffic(net, [there_and_back(net, 0, {1: 1e9})]).seconds() == [0.0]


def test_gossip_waits_for_nobody() -> None:
    times, copies_s = [1e-3, 2e-3, 4e-3], COPIES * 1024 * network(3).copy_s_per_byte
    work = Workload(6, 1024, [Worker(each / 2) for each in times])
    one = named(candidates(work, network(3)), "gossip", 3)
    assert one.samples_per_s == pytest.approx(sum(2 / (each + copies_s) for each in times))
    assert one.staleness == 0
    # A slow link leaves steps as fast as they are. But workers drift apart further.
    behind = named(candidates(work, network(3, slow=1e6 * GIGABIT)), "gossip", 3)
    assert behind.samples_per_s == one.samples_per_s
    assert behind.alone > 10 * one.alone


def test_gossip_copies_its_values_in_each_step() -> None:
    size = 100 << 20
    one = named(candidates(Workload(4, size, [Worker(0.1)] * 4), network(4)), "gossip", 4)
    assert 4 / one.samples_per_s == pytest.approx(0.1 + COPIES * size * network(4).copy_s_per_byte)


def test_a_slow_partner_keeps_a_worker_from_all_others() -> None:
    # Workers 0 and 2 begin. While one of them is with worker 3, behind the slow link, it does not see worker 1.
    work = Workload(4, 1 << 20, [Worker(5e-3)] * 4)
    alone = {slow: named(candidates(work, network(4, slow=slow)), "gossip", 4).alone for slow in (1e-6, 2e-6)}
    assert alone[2e-6] == pytest.approx(2 * alone[1e-6], rel=0.1)


def test_gossip_is_as_slow_as_the_slower_way() -> None:
    apart = Network(_core.stated_topology([0, 1], 5e-5, 1e-9, [(1e-9, 1e-9), (1e-9, 8e-9)]))
    size, step_s = 1 << 22, 4e-3
    one = named(candidates(Workload(8, size, [Worker(1e-3)] * 2), apart), "gossip", 2)
    step_s += COPIES * size * apart.copy_s_per_byte
    exchange_s = size * (8e-9 + 1e-9) + 2 * apart.latency_s
    # Two workers alone: each exchange makes them equal, but for the steps that pass until it has arrived. It ends
    # in the middle of a step, on average.
    assert one.alone == pytest.approx((exchange_s / step_s + 0.5) + 2 * 0.75 * exchange_s / step_s, rel=0.01)


def simulated(count: int, period: int, exchange: Callable[[np.ndarray, int], None]) -> float:
    """Return the drift of workers that take random steps, and then exchange if it is time."""
    chance = np.random.default_rng(1)
    values, distance, steps = np.zeros(count), 0.0, 40_000
    for step in range(steps):
        distance += np.square(values - values.mean()).sum() / (count - 1)
        values += chance.standard_normal(count)
        if (step + 1) % period == 0:
            exchange(values, step)
        values -= values.mean()
    return 1 + 2 * distance / steps


def test_drift_is_that_of_a_simulation() -> None:
    def mean(values: np.ndarray, step: int) -> None:
        values[:] = values.mean()

    def approach(values: np.ndarray, step: int) -> None:
        values -= 0.225 * (values - values.mean())

    assert simulated(4, 6, mean) == pytest.approx(drift(6, 0.0), rel=0.02)
    assert simulated(4, 10, approach) == pytest.approx(drift_from_centre(10, 0.225), rel=0.05)


@pytest.mark.parametrize(
    ("count", "period"),
    [(2, 1), (2, 5), (4, 6), *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((4, 1), (6, 3), (8, 2)))],
)
def test_drift_in_pairs_is_that_of_a_simulation(count: int, period: int) -> None:
    chance = np.random.default_rng(2)

    def meet(values: np.ndarray, step: int) -> None:
        for active in range(0, count, 2):
            pair = [active, 2 * chance.integers(count // 2) + 1]
            values[pair] = values[pair].mean()

    rate = 1 / (period * count / 2)  # of each pair, if a worker takes a step in a second
    rates = {(one, other): rate for one in range(0, count, 2) for other in range(1, count, 2)}
    assert drift_in_pairs(count, rates, 1.0, 0.0) == pytest.approx(simulated(count, period, meet), rel=0.1)


def test_a_short_training_pays_for_the_beginning() -> None:
    workers = [Worker(1e-3)] * 3 + [Worker(5e-3)]
    long, short = (
        named(candidates(Workload(256, 1 << 16, workers, training=samples), network(4)), "balanced batches", 4)
        for samples in (None, 20 * 256)
    )
    plain = candidates(Workload(256, 1 << 16, workers), network(4))[0]
    assert long.worth == long.samples_per_s == short.samples_per_s
    # For ten steps of twenty all have equal batches.
    seconds = 10 * 256 / plain.samples_per_s + 10 * 256 / long.samples_per_s
    assert short.worth == pytest.approx(20 * 256 / seconds)


def candidate(preference: Preference, worth: float, workers: int = 4) -> Candidate:
    shares = (1.0,) * workers
    return Candidate(preference.name, "", preference, tuple(range(workers)), shares, worth, 1.0)


def test_limits_do_not_multiply() -> None:
    # Each is less than 10 % better than a gentler one. The gentlest is 18 % worse than the best.
    exact = candidate(Preference.EXACT, 100.0)
    compressed = candidate(Preference.COMPRESSED, 109.0)
    asynchronous = candidate(Preference.ASYNCHRONOUS, 118.0)
    assert choose([exact, compressed, asynchronous]).chosen is compressed
    assert choose([exact, compressed]).chosen is exact
    assert choose([exact, asynchronous]).chosen is asynchronous


def test_local_steps_and_compression_are_alike() -> None:
    compressed, local = candidate(Preference.COMPRESSED, 120.0), candidate(Preference.LOCAL_STEPS, 125.0)
    assert choose([candidate(Preference.EXACT, 100.0), compressed, local]).chosen is local


@pytest.mark.parametrize(
    ("compute_s", "exchange_s", "drift"), [(5e-3, 4e-3, 0.018), (1e-3, 0.2, 0.05), (1, 1e-4, 0.1)]
)
def test_the_period_is_worth_most(compute_s: float, exchange_s: float, drift: float) -> None:
    assumed = Assumptions(drift_loss=drift)

    def worth(period: int) -> float:
        return 1 / ((compute_s + exchange_s / period) * (1 + assumed.loss(0, period)))

    best = max(range(1, 501), key=worth)
    assert worth(assumed.period(compute_s, exchange_s)) == pytest.approx(worth(best), rel=1e-3)


def test_the_period_follows_links_and_step_times() -> None:
    def local(s_per_byte: float, sample_s: float, drift: float = 0.018) -> Candidate:
        work = Workload(64, 1 << 20, [Worker(sample_s)] * 4)
        (found,) = (
            one
            for one in candidates(work, network(4, s_per_byte), Assumptions(drift_loss=drift))
            if one.preference is Preference.LOCAL_STEPS
        )
        return found

    base = local(GIGABIT, 1e-3)
    assert base.name == "LocalSGD"
    assert f"sync_every={base.period})" in base.how
    assert f"local:sync_every={base.period}" in base.how
    assert local(100 * GIGABIT, 1e-3).period == pytest.approx(10 * base.period, rel=0.2)
    assert local(GIGABIT, 1e-4).period > 2 * base.period
    assert local(GIGABIT, 1e-3, drift=0.0).name == "DiLoCo"


def test_what_is_assumed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "advice.json"
    options = f"--batch 128 --bytes 307240 --sample-ms 0.15 --hosts 4x1gbit --json {out}".split()
    assert main(["advise", *options]) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = json.loads(out.read_text())
    assert found["assumed"]["stale_loss"] == 0.14
    assert "(1 + 0.14 x staleness + 0.018 x (alone - 1)). Both numbers are assumed" in said
    assert "bench/strategies/time_to_accuracy" in found["assumed"]["sources"]["stale_loss"]
    assert "LocalSGD" in found["assumed"]["sources"]["drift_loss"]
    hanging = "--batch 128 --bytes 307240 --sample-ms 0.15 --overhead-ms 1.4 --hosts 4x1gbit"
    assert main(["advise", *hanging.split(), "--json", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = json.loads(out.read_text())
    assert found["assumed"]["with_twice"] != found["advice"]["name"]
    assert f"with twice of it {found['assumed']['with_twice']}" in said
    # A number that was given has no other source.
    assert main(["advise", *options, "--drift-loss", "0.01"]) == 0
    assert json.loads(out.read_text())["assumed"]["sources"]["drift_loss"] == "given"
    capsys.readouterr()
    # Without a loss workers meet as seldom as they may; with a large one nothing changes the training.
    assert main(["advise", *options, "--stale-loss", "0", "--drift-loss", "0"]) == 0
    assert json.loads(out.read_text())["advice"]["name"] == "DiLoCo"
    assert main(["advise", *options, "--stale-loss", "0.9", "--drift-loss", "0.9"]) == 0
    assert json.loads(out.read_text())["advice"]["preference"] in ("exact", "compressed")


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
    assert len(texts) == 4
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


@pytest.mark.long
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
        ("--batch 3 --bytes 1M --sample-ms 1 --hosts 4x1gbit", "--batch: 4 workers share 3 samples"),
        ("--batch 0 --bytes 1M --sample-ms 1 --hosts 2x1gbit", "--batch: expected at least 1 sample, got 0"),
        ("--batch 8 --bytes 1M --hosts 2x1gbit", "say what is trained: --sample-ms or --script"),
        ("--batch 8 --sample-ms 1 --hosts 2x1gbit", "say what is trained: --model, --bytes or --script"),
        ("", "say what is trained: --batch; --model, --bytes or --script; --sample-ms or --script"),
        ("--batch 8 --bytes 1M --model gpt2 --sample-ms 1 --hosts 2x1gbit", "leave out --bytes"),
        ("--batch 8 --bytes 1M --sample-ms 1,2,3 --hosts 2x1gbit", "--sample-ms: 3 numbers for 2 ranks"),
        ("--batch 8 --bytes 1M --sample-ms 0 --hosts 2x1gbit", "--sample-ms: expected numbers above 0, got '0'"),
        ("--batch 8 --bytes 1M --sample-ms x --hosts 2x1gbit", "--sample-ms: expected numbers, got 'x'"),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2xfast", "'fast' is no rate"),
        ("--batch 8 --bytes 1M --sample-ms 1 --overlap 2 --hosts 2x1gbit", "--overlap: expected 0 to 1, got 2"),
        ("--batch 8 --bytes 1M --sample-ms 1 --stale-loss 2 --hosts 2x1gbit", "--stale-loss: expected 0 or more"),
        (
            "--batch 8 --bytes 1M --sample-ms 1 --training-samples 0 --hosts 2x1gbit",
            "--training-samples: expected at least 1, got 0",
        ),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2x1gbit --lab 2x1gbit", "leave out --lab"),
        ("--batch 8 --bytes 1M --sample-ms 1 --hosts 2x1gbit --plot a.txt", "--plot writes"),
        (
            "--batch 8 --bytes 1M --script nowhere.py --script-batch 2 --hosts 2x1gbit",
            "there is no file nowhere.py",
        ),
        ("--batch 8 --bytes 1M --script a.py --hosts 2x1gbit", "--script needs --script-batch"),
        ("--batch 8 --bytes 1M --script a.py --sample-ms 1 --hosts 2x1gbit", "leave one out"),
        ("--batch 8 --bytes 1M --sample-ms 1", "for example --hosts 3x1gbit,1x200mbit"),
    ],
)
def test_what_is_refused(options: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *options.split()]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
