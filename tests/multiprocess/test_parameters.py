# SPDX-License-Identifier: Apache-2.0
"""``braid.Parameters``: workers in processes of their own, without torch."""

import os
import signal
import threading
import time

import braid
import numpy as np
import pytest
from ranks import SOON_S, Rank, run_ranks
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1003


def join(rank: Rank, **options):
    import braid

    return braid.Parameters(
        f"file://{rank.folder}/parameters", elements=ELEMENTS, rank=rank.rank, timeout_s=60.0,
        **{"size": rank.size, **options},
    )  # fmt: skip


def quadratic(rank: Rank, mode: str, rule: str, numbers: dict) -> float:
    """Minimise |x - target|^2 together; return the distance at the end."""
    target = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    with join(rank, mode=mode, rule=rule, staleness=2) as parameters:
        values = parameters.start(np.full(ELEMENTS, float(rank.rank), np.float32))
        rank.mark("started")
        for other in range(rank.size):
            rank.wait_for("started", other)
        assert np.all(values == 0.0)  # rank 0's, for nobody has pushed yet
        for _ in range(60):
            parameters.push_pull(values - target, values, **numbers).wait()
        rank.mark("pushed")  # else the last pull could come before another worker's first pushes
        for other in range(rank.size):
            rank.wait_for("pushed", other)
        parameters.pull(values).wait()
    return float(np.abs(values - target).max())


@pytest.mark.parametrize(
    ("mode", "rule", "numbers"),
    [
        ("async", "sgd", {"rate": 0.1}),
        ("ssp", "sgd:momentum", {"rate": 0.05, "momentum": 0.5}),
        ("sync", "sgd", {"rate": 0.2}),
        ("round_robin", "sgd", {"rate": 0.1}),
    ],
)
def test_workers_find_the_minimum(wire, mode, rule, numbers):
    for distance in run_ranks(quadratic, 3, mode, rule, numbers, wire=wire, join=False):
        assert distance < 0.05


def one_of_many(rank: Rank) -> list[float]:
    with join(rank) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        requests = [parameters.push_pull(np.full(ELEMENTS, -1, np.float32), None, rate=1.0) for _ in range(10)]
        for request in requests:
            request.wait()
        rank.mark("pushed")
        for other in range(rank.size):
            rank.wait_for("pushed", other)
        parameters.pull(values).wait()
    return [float(values.min()), float(values.max())]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_push_counts_once(size):
    for seen in run_ranks(one_of_many, size, join=False):
        assert seen == [10.0 * size, 10.0 * size]


def killed_in_the_middle(rank: Rank, victim: int) -> dict:
    parameters = join(rank)
    values = parameters.start(np.zeros(ELEMENTS, np.float32))
    rank.meet("begun")  # else nobody may be left who has the dead one's values
    update = np.full(ELEMENTS, -1, np.float32)
    longest = 0.0
    for step in range(120):
        if rank.rank == victim and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 30:
            rank.wait_for_death(victim, "begun")
        begun = time.monotonic()
        parameters.push_pull(update, values, rate=1.0).wait()
        longest = max(longest, time.monotonic() - begun)
        assert np.isfinite(values).all()
        time.sleep(0.005)
    stats = parameters.stats()
    parameters.close()
    return {"longest": longest, "homes": stats["homes"], "least": float(values.min())}


@pytest.mark.parametrize("victim", [0, 2])
def test_others_go_on_when_a_member_is_killed(wire, victim):
    results = run_ranks(killed_in_the_middle, 4, victim, wire=wire, join=False, killed=[victim])
    for rank, result in enumerate(results):
        if rank == victim:
            continue
        assert result["homes"][victim] != victim, "its shard has moved"
        assert result["least"] >= 120, "this worker's own updates are all there, but those on their way"
        assert result["longest"] < SOON_S


def relaxed_and_killed(rank: Rank, victim: int) -> dict:
    """Add ones in mapped memory, past the death of a member; return what this server and worker saw."""
    with join(rank, rule="add", consistency="relaxed") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        rank.meet("begun")  # else nobody may be left who has the dead one's values
        update = np.ones(ELEMENTS, np.float32)
        for step in range(120):
            if rank.rank == victim and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 30:
                rank.wait_for_death(victim, "begun")
            parameters.push_pull(update, values).wait()
            assert (values == np.round(values)).all(), "no value is torn"
            assert values.min() >= 1
            assert values.max() <= 380
            time.sleep(0.005)
        rank.mark("added")
        for other in range(rank.size):
            if other != victim:
                rank.wait_for("added", other)
        parameters.pull(values).wait()
        own = values[rank.rank * ELEMENTS // rank.size : (rank.rank + 1) * ELEMENTS // rank.size]
        return {**parameters.stats(), "least": float(own[20:-20].min())}


def test_relaxed_workers_add_in_mapped_memory_and_outlive_a_member():
    results = run_ranks(relaxed_and_killed, 4, 2, join=False, killed=[2])
    for rank, seen in enumerate(results):
        if rank == 2:
            continue
        assert seen["homes"] == [0, 1, 3, 3]
        assert [seen["wires"][server] for server in (0, 1, 3)] == ["mapped memory"] * 3
        assert seen["versions"][rank] == 3 * 120 + 20, "every update counts, whether it lost a race or not"
        assert sum(seen["sent_bytes"]) < 30 * 4 * ELEMENTS, "bodies do not travel"
        assert seen["least"] > 120, "some of the others' updates are there"


def differs(rank: Rank) -> str:
    try:
        join(rank, rule="adam" if rank.rank == 1 else "sgd")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def test_settings_that_differ_are_named():
    for text in run_ranks(differs, 3, join=False):
        assert "rule adam" in text
        assert "rule sgd" in text


def late(rank: Rank) -> float:
    is_late = rank.rank == 2
    if is_late:
        for other in range(2):
            rank.wait_for("trained", other)
    with join(rank, size=2, late=is_late) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        if not is_late:
            parameters.push_pull(np.full(ELEMENTS, -1, np.float32), values, rate=1.0).wait()
            rank.mark("trained")
            rank.wait_for("came", 2)
        else:
            rank.mark("came")
        return float(values[0])


def test_a_worker_may_come_late():
    assert run_ranks(late, 3, join=False)[2] == 2.0


def wrong(rank: Rank) -> None:
    import braid

    where = f"file://{rank.folder}/parameters"
    with pytest.raises(ValueError, match="rule"):
        braid.Parameters(where, elements=3, rule="sgdd", rank=0, size=1)
    with pytest.raises(ValueError, match="int9"):
        braid.Parameters(where, elements=3, compression="int9", rank=0, size=1)
    with pytest.raises(ValueError, match="elastic takes no codec"):
        braid.Parameters(where, elements=3, rule="elastic", pull_compression="bf16", rank=0, size=1)
    with pytest.raises(ValueError, match="expected 'atomic' or 'relaxed'"):
        braid.Parameters(where, elements=3, consistency="lax", rank=0, size=1)
    with pytest.raises(ValueError, match="rules without state"):
        braid.Parameters(where, elements=3, rule="adam", consistency="relaxed", rank=0, size=1)
    with pytest.raises(ValueError, match="mode"):
        braid.Parameters(where, elements=3, mode="later", rank=0, size=1)
    with pytest.raises(ValueError, match="negative"):
        braid.Parameters(where, elements=-1, rank=0, size=1)
    with pytest.raises(ValueError, match="servers"):
        braid.Parameters(where, elements=3, servers=[0, 0], rank=0, size=1)
    with braid.Parameters(where, elements=3, rank=0, size=1) as parameters:
        values = parameters.start(np.zeros(3, np.float32))
        with pytest.raises(TypeError, match=r"shape \(3,\)"):
            parameters.pull(np.zeros(4, np.float32))
        with pytest.raises(TypeError, match="float32"):
            parameters.push_pull(np.zeros(3), values, rate=1.0)
        with pytest.raises(ValueError, match="colour"):
            parameters.push_pull(values, None, colour=1.0)
        with pytest.raises(ValueError, match="not both"):
            parameters.push_pull(values, None, numbers=[(3, {})], rate=1.0)
        with pytest.raises(ValueError, match="no snapshot"):
            parameters.restore({"numbers": values})
        with pytest.raises(ValueError, match=r"shape \(3,\); the snapshot has \(4,\)"):
            parameters.restore({"vectors": [np.zeros(4, np.float32)], "ends": [4]})
        with pytest.raises(ValueError, match="has 3 numbers, not 6"):
            parameters.restore({"vectors": [values, values], "ends": [3], "steps": [0]})
        with pytest.raises(ValueError, match="rate"):
            parameters.push_pull(np.zeros(3, np.float32), values, rate=-1.0).wait()
    with pytest.raises(braid.CommunicatorError, match="closed"):
        parameters.pull(values)


LINKS = """
[between]
rate = "150mbit"
[[host]]
name = "h0"
rate = "100mbit"
[[host]]
name = "h2"
up = "300mbit"
down = "200mbit"
"""


def cut_by_links(rank: Rank, links: str) -> tuple[list[int], list[int], bool]:
    """Return the ends of the shards, by links and by `shares`, and whether training works."""
    os.environ["BRAID_HOST"] = f"h{rank.rank}"
    os.environ["BRAID_LINKS"] = links
    with join(rank) as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        parameters.push_pull(np.ones(ELEMENTS, np.float32), values, rate=1.0).wait()
        ends, is_changed = list(parameters._core.ends()), bool((values < 0).all())
    with join(rank, shares=[1, 1, 2, 0], name="by hand") as parameters:
        return ends, list(parameters._core.ends()), is_changed


def test_shards_follow_the_stated_cards(tmp_path):
    links = tmp_path / "links.toml"
    links.write_text(LINKS)
    # T = max(1 / 100, 6 / 600) = 1 / 100, so the shares are (T b - 1) / 2 = 0, 1/4, 1/2, 1/4.
    for ends, by_hand, is_changed in run_ranks(cut_by_links, 4, str(links), wire="tcp", join=False):
        assert ends == [0, 240, 752, ELEMENTS]
        assert by_hand == [240, 496, ELEMENTS, ELEMENTS]
        assert is_changed


def test_wrong_arguments_are_refused():
    run_ranks(wrong, 1, join=False)


def resumed(rank: Rank) -> bool:
    update = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    numbers = {"rate": 0.1, "momentum": 0.9}
    with join(rank, rule="sgd:momentum") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        parameters.push_pull(update, values, **numbers).wait()
        saved = parameters.snapshot()
        parameters.push_pull(update, values, **numbers).wait()
        expected = values.copy()
        parameters.restore(saved)
        parameters.push_pull(update, values, **numbers).wait()
    return bool((values == expected).all())


def test_a_snapshot_is_restored_to_the_bit():
    assert run_ranks(resumed, 1, join=False) == [True]


def save_and_go_on(rank: Rank):
    """Save after two steps of Adam, and return what a third one makes of the values."""
    target = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    with join(rank, rule="adam", mode="sync") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        for _ in range(2):
            parameters.push_pull(values - target, values, rate=0.1).wait()
        rank.mark("pushed")
        for other in range(rank.size):
            rank.wait_for("pushed", other)
        saved, before = parameters.snapshot(), values.copy()
        rank.mark("saved")
        for other in range(rank.size):
            rank.wait_for("saved", other)
        parameters.push_pull(before - target, values, rate=0.1).wait()
    return saved, before, values


def restore_and_go_on(rank: Rank, saved: dict, before: np.ndarray):
    target = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    with join(rank, rule="adam", mode="sync") as parameters:
        values = parameters.start(np.zeros(ELEMENTS, np.float32))
        if rank.rank == 0:
            parameters.restore(saved)
        rank.mark("restored")
        rank.wait_for("restored", 0)
        assert parameters.snapshot()["steps"] == [2] * rank.size
        rank.mark("looked")
        for other in range(rank.size):
            rank.wait_for("looked", other)
        parameters.push_pull(before - target, values, rate=0.1).wait()
    return values


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_a_snapshot_goes_to_another_number_of_shards(workers: int):
    saved, before, expected = run_ranks(save_and_go_on, 3, join=False)[0]
    assert [vector.shape for vector in saved["vectors"]] == [(ELEMENTS,)] * 3
    for values in run_ranks(restore_and_go_on, workers, saved, before, join=False):
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def stopped(rank: Rank, victim_notices: bool) -> str:
    if rank.rank == 2 and not victim_notices:
        os.environ["BRAID_PEER_TIMEOUT"] = "1000"
    parameters = join(rank)
    values = parameters.start(np.zeros(ELEMENTS, np.float32))
    update = np.full(ELEMENTS, -1, np.float32)
    parameters.push_pull(update, values, rate=1.0).wait()
    rank.mark(f"pid-{os.getpid()}")
    try:
        if rank.rank == 0:
            victim = next(int(p.name.split("-")[1].split(".")[0]) for p in wait_for(rank, "pid-*.2"))
            os.kill(victim, signal.SIGSTOP)
            deadline = time.monotonic() + limit(60)
            while parameters.stats()["homes"] != [0, 1, 0] and time.monotonic() < deadline:
                parameters.push_pull(update, values, rate=1.0).wait()
            os.kill(victim, signal.SIGCONT)
        elif rank.rank == 1:
            deadline = time.monotonic() + limit(60)
            while parameters.stats()["homes"] != [0, 1, 0] and time.monotonic() < deadline:
                parameters.push_pull(update, values, rate=1.0).wait()
        else:
            deadline = time.monotonic() + limit(60)
            while time.monotonic() < deadline:
                parameters.push_pull(update, values, rate=1.0).wait()
                time.sleep(0.01)
        return str(parameters.stats()["homes"])
    except Exception as error:
        return str(error)
    finally:
        parameters.close(5.0)


def wait_for(rank: Rank, pattern: str):
    return eventually(lambda: list(rank.folder.glob(pattern)), pattern)


@pytest.mark.parametrize("victim_notices", [True, False])
def test_a_member_that_stood_still_is_told_and_trains_no_more(victim_notices: bool):
    environment = {"BRAID_PEER_TIMEOUT": str(round(limit(6)))}
    results = run_ranks(stopped, 3, victim_notices, join=False, environment=environment)
    assert results[:2] == ["[0, 1, 0]", "[0, 1, 0]"]
    assert "stood still" in results[2]


def close_meanwhile(rank: Rank) -> list[str]:
    """Close while another thread starts a request: to encode so many numbers takes some milliseconds."""
    update = np.ones(8_000_000, np.float32)
    errors = []
    for turn in range(4):
        where = f"file://{rank.folder}/closed-{turn}"
        parameters = braid.Parameters(where, elements=update.size, rank=0, size=1, compression="int8")
        values = parameters.start(update)
        begins = threading.Event()

        def push(parameters=parameters, values=values, begins=begins) -> None:
            try:
                while True:
                    begins.set()
                    parameters.push_pull(update, values, rate=0.1).wait()
            except braid.CommunicatorError as error:
                errors.append(str(error))

        thread = threading.Thread(target=push)
        thread.start()
        begins.wait()
        parameters.close(0.0)
        thread.join()
    return errors


def test_closing_ends_a_request_that_another_thread_starts():
    (errors,) = run_ranks(close_meanwhile, 1, join=False)
    assert len(errors) == 4
    assert set(errors) <= {"the parameter service was closed", "this parameter service is closed"}
