# SPDX-License-Identifier: Apache-2.0
"""``braid compare``: messages, a rank that pauses, results, ways to train, what is shown and what is refused."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from braid._advice.candidate import Candidate, Preference
from braid._compare import show, ways
from braid._compare.messages import Channel, Order, Report, Step
from braid._compare.places import Places, _sent
from braid._compare.rank import Pacer
from braid._compare.results import Block, Result
from braid.cli import main
from braid.lab import parse_hosts
from rich.console import Console

pytestmark = pytest.mark.unit


@pytest.fixture
def ends() -> Any:
    one, other = (Channel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    yield one, other
    one.close()
    other.close()


def test_messages_come_as_they_were_sent(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    reports = [Report(3, [Step(0.5, 1.25, 32), Step(0.75, None, 0)]), Report(3, [], True, 400, "ring")]
    for report in reports:
        one.send(report)
    assert [other.report(), other.report()] == reports
    other.send(Order(steps=7))
    other.send(Order(seconds=0.5))
    other.send(Order())
    orders = [one.order() for _ in range(3)]
    assert orders == [Order(7), Order(0, 0.5), Order()]
    assert [order.is_end for order in orders] == [False, False, True]


def test_an_end_that_is_gone_is_an_error(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.close()
    with pytest.raises(EOFError):
        one.order()


def optimizer(*sizes: int) -> Any:
    return SimpleNamespace(param_groups=[{"params": [torch.zeros(size, requires_grad=True) for size in sizes]}])


def test_a_rank_pauses_after_the_steps_it_was_told(ends: tuple[Channel, Channel]) -> None:
    mine, its = ends
    its.send(Order(steps=2))
    pacer = Pacer(mine, 5)
    taken: list[int] = []
    one = optimizer(10, 5)

    def script() -> None:
        for number in range(3):
            pacer.forward([(torch.zeros(4, 9),), {}])
            pacer.forward([(), {"x": [torch.zeros(2, 9)]}])  # gradients of two batches are added up
            with torch.no_grad():
                pacer.forward([(torch.zeros(100, 9),), {}])  # an evaluation
            pacer.backward(torch.tensor(1.0 + number))
            pacer.backward(torch.tensor(2.0 + number))
            pacer.backward(torch.zeros(3))  # no loss
            assert pacer.step(lambda _self, given: given, one, number) == number
            taken.append(number)
        pacer.end()

    thread = threading.Thread(target=script, daemon=True)
    thread.start()
    report = its.report()
    assert taken == [0]  # the second step() has not returned
    assert [(step.loss, step.samples) for step in report.steps] == [(1.5, 6), (2.5, 6)]
    assert 0 < report.steps[0].seconds < report.steps[1].seconds
    assert (report.rank, report.gradient_bytes, report.has_ended) == (5, 60, False)
    its.send(Order(steps=100))
    last = its.report()
    thread.join()
    assert last.has_ended
    assert [step.loss for step in last.steps] == [3.5]
    assert last.steps[0].seconds > report.steps[1].seconds
    assert taken == [0, 1, 2]


def test_a_step_within_a_step_counts_once(ends: tuple[Channel, Channel]) -> None:
    mine, its = ends
    its.send(Order(steps=9))
    pacer = Pacer(mine, 0)
    inner = optimizer(1)
    pacer.step(lambda _self: pacer.step(lambda _self: None, inner), inner)
    pacer.end()
    assert len(its.report().steps) == 1


def test_a_rank_trains_as_long_as_it_was_told(ends: tuple[Channel, Channel]) -> None:
    mine, its = ends
    its.send(Order(seconds=1e-9))
    pacer = Pacer(mine, 0)
    its.send(Order(steps=1))  # so that it does not wait
    pacer.step(lambda _self: None, optimizer(1))
    assert len(its.report().steps) == 1


def result(name: str, seconds: list[float], losses: list[float], **more: Any) -> Result:
    """Two ranks that take a step at the same times, with batches of 10."""
    steps = [[Step(1 + at, loss + rank, 10) for at, loss in zip(seconds, losses, strict=True)] for rank in (0, 1)]
    blocks = [Block(2 * len(seconds), seconds[-1], 1000)]
    return Result(name, "", 2, blocks, steps, begun_s=[1.0, 1.0], **more)


def test_times_are_of_all_ranks_and_ratios_of_the_same_round() -> None:
    slow, fast = result("slow", [1, 2], [2, 1]), result("fast", [1, 2], [2, 1])
    slow.blocks = [Block(20, 10, 600), Block(20, 20, 600), Block(20, 10, 600)]
    fast.blocks = [Block(40, 10, 40), Block(20, 5, 20), Block(20, 10, 0)]
    assert slow.step_s == 1.0
    assert fast.step_s == 0.5
    assert slow.bytes_per_step == 60
    assert fast.times_as_fast_as(slow) == (2, 1, 4)
    assert slow.seconds == 40


def test_losses_are_of_the_last_fifth_of_samples_or_of_time() -> None:
    one = result("one", [float(at) for at in range(1, 11)], [10.0 - at for at in range(10)])
    assert one.samples == 200
    # The last 40 of 200 samples are two steps of both ranks: 2, 3, 1, 2.
    assert one.loss_after_samples(200) == 2
    assert one.loss_after_samples(100) == 6.5  # step 5 of both
    assert one.loss_after_seconds(5.0) == 6.5
    assert one.loss_after_seconds(0.5) is None
    assert one.curve(2) == [(5.0, 8.5), (10.0, 3.5)]


def test_losses_that_nobody_has_seen_are_none() -> None:
    one = result("one", [1.0], [1.0])
    one.steps = [[replace(step, loss=None) for step in rank] for rank in one.steps]
    assert one.loss_after_samples(20) is None
    assert one.curve(5) == []


@pytest.mark.parametrize(
    ("text", "is_free", "period"),
    [
        ("parameter_server", True, 1),
        ("parameter_server:mode=sync", False, 1),
        ("hybrid:groups=0+1/2", True, 1),
        ("elastic:sync_every=7", True, 7),
        ("elastic:schedule=sync1", False, 1),
        ("local:sync_every=2+16", False, 16),
        ("diloco:sync_every=50", False, 50),
        ("gossip", True, 1),
    ],
)
def test_strategies_whose_workers_wait_for_nobody_train_by_the_clock(
    text: str, is_free: bool, period: int
) -> None:
    way = ways.strategy(text)
    assert (way.is_free, way.period) == (is_free, period)
    assert way.environment["BRAID_STRATEGY"] == text
    assert way.why


def candidate(how: str) -> Candidate:
    return Candidate("its name", how, Preference.EXACT, (0, 1), (1.0, 1.0), 1.0, 1.0)


def test_what_is_proposed_becomes_settings() -> None:
    balanced = ways.proposed(candidate("BRAID_BALANCE=1"))
    assert (balanced.name, balanced.environment["BRAID_BALANCE"]) == ("its name", "1")
    local = ways.proposed(candidate('bs.LocalSGD(model, optimizer, sync_every=8), "local:sync_every=8"'))
    assert local.environment["BRAID_STRATEGY"] == "local:sync_every=8"
    served = ways.proposed(candidate("elastic:sync_every=10"))
    assert served.environment["BRAID_STRATEGY"] == "elastic:sync_every=10"


def test_advice_hangs_on_the_links() -> None:
    slow = ways.topology(parse_hosts("3x100mbit,1x10mbit"), [1] * 4)
    chosen = ways.advised(slow, [0.01] * 4, 32, 4_000_000)
    assert chosen is not None
    assert len(chosen.workers) == 4
    assert "BRAID_STRATEGY" in ways.proposed(chosen).environment
    fast = ways.topology(parse_hosts("4x100gbit"), [1] * 4)
    assert ways.advised(fast, [0.1] * 4, 32, 4_000) is None
    uneven = ways.advised(fast, [0.1, 0.1, 0.1, 0.4], 32, 4_000)
    assert uneven is not None
    assert ways.proposed(uneven).environment.get("BRAID_BALANCE") == "1"


def test_bytes_are_of_the_hosts_card() -> None:
    table = (
        "Inter-|   Receive                        |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n"
        "    lo:  111 1 0 0 0 0 0 0  111 1 0 0 0 0 0 0\n"
        "  eth0:222222222 7 0 0 0 0 0 0 12345 9 0 0 0 0 0 0\n"
    )
    assert _sent(table) == 12345


def test_jobs_on_this_machine_meet_at_ports_of_their_own() -> None:
    places = Places(None, [3])
    jobs = [places.of_next_job() for _ in range(3)]
    assert [own["RANK"] for _, own in jobs[0]] == ["0", "1", "2"]
    assert len({job[0][1]["MASTER_PORT"] for job in jobs}) == 3
    assert places.sent_bytes() == 0


def shown(results: list[Result], *, is_on_one_host: bool = False) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(show.table(results, is_on_one_host))
    return captured.get()


def test_the_table_has_a_row_for_each_way_that_came_to_its_end() -> None:
    results = [
        result("Gloo", [1.0, 2.0], [4.0, 3.0]),
        result("braid", [0.5, 1.0], [4.0, 3.0], algorithm="ring"),
        Result("broken", "", 2, failure="broken: rank 0 ended with exit code 3\n  its last line"),
    ]
    text = shown(results)
    assert [line.split() for line in text.splitlines() if line.startswith((" Gloo", " braid"))] == [
        ["Gloo", "1000", "1.00", "3.5", "4.5", "500", "B"],
        ["braid", "500", "2.00", "3.5", "3.5", "500", "B", "ring"],
    ]
    assert "broken" not in text
    assert "500 B" not in shown(results, is_on_one_host=True)
    assert show.sentences(results) == [
        "braid: 2.00 times as fast as Gloo (2.00 to 2.00 in 1 rounds).",
        "failed, broken: rank 0 ended with exit code 3\n  its last line",
    ]


def test_a_row_without_gloo_is_compared_with_the_first_that_came_to_its_end() -> None:
    results = [
        Result("Gloo", "", 2, failure="Gloo: rank 0 was killed by SIGABRT"),
        result("braid", [1.0], [4.0]),
        result("other", [2.0], [4.0]),
    ]
    assert "other: 0.50 times as fast as braid" in show.sentences(results)[0]


def test_the_document_has_every_step() -> None:
    found = json.loads(json.dumps(show.document([result("Gloo", [1.0], [4.0])], {"what": "this"})))
    assert found["what"] == "this"
    assert found["ways"][0]["steps"][1] == [{"seconds": 2.0, "loss": 5.0, "samples": 10}]
    assert found["ways"][0]["step_s"] == 1.0


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = [result(name, [1.0, 2.0, 3.0], [4.0, 2.0, 1.0]) for name in ("Gloo", "braid")]
    show.draw([*results, Result("broken", "", 2, failure="x")], "title", tmp_path / "losses.svg")
    text = (tmp_path / "losses.svg").read_text()
    assert "Gloo" in text
    assert "broken" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "which script?"),
        (["none.py"], "no such script: none.py"),
        (["--steps", "3", __file__], "--steps: expected at least 10, got 3"),
        (["--nproc", "1", __file__], "--nproc: expected at least 2, got 1"),
        (["--strategy", "gossipp", __file__], "did you mean gossip?"),
        (["--hosts", "1xfast", __file__], "--hosts: "),
        (["--hosts", "1x1gbit", __file__], "one rank has nobody to talk to"),
        (["--hosts", "2x1gbit", "--ranks-per-host", "1,1,1", __file__], "3 numbers for 2 hosts"),
        (["--hosts", "2x1gbit", "--nproc", "2", __file__], "with --hosts say --ranks-per-host"),
        (["--ranks-per-host", "2", __file__], "on this machine say --nproc"),
        (["--plot", "losses.txt", __file__], "--plot writes"),
        (["--json", "/no/such/folder/x.json", __file__], "--json: cannot write"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
