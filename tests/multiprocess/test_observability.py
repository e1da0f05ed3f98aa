# SPDX-License-Identifier: Apache-2.0
"""What shows a group at work: profiles, counters, the flight record, torch's own debug mode."""

import atexit
import gc
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, error_of, run_ranks
from slowness import limit
from torch.profiler import ProfilerActivity, profile
from waiting import eventually

pytestmark = pytest.mark.multiprocess

CPU = torch.device("cpu")


def all_are_over(braid: Any) -> bool:
    return all(entry["state"] == "completed" for entry in braid.flight_record()["entries"])


def appear_in_profiles(rank: Rank) -> None:
    import braid

    n = rank.size
    blocks = [torch.zeros(2, 2) for _ in range(n)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(5))
        dist.all_gather(blocks, torch.ones(2, 2), async_op=True).wait()
        dist.reduce(torch.ones(3), 0)
        dist.scatter(torch.zeros(2, 2), blocks if rank.rank == 0 else None)
        dist.group.WORLD._get_backend(CPU).allreduce_coalesced([torch.ones(2), torch.ones(3)]).wait()
        receive = dist.irecv(torch.zeros(4), (rank.rank - 1) % n)
        dist.send(torch.ones(4), (rank.rank + 1) % n)
        receive.wait()
        dist.barrier()
        # wait() may return before the events have ended. The record of an operation ends after its event.
        eventually(lambda: all_are_over(braid), "the ends")
    shapes = {}
    for event in profiler.events():
        if event.name.startswith("braid:"):
            shapes.setdefault(event.name, []).append(event.input_shapes)
    assert shapes["braid:all_reduce"] == [[[5]], [[2], [3]]]  # operations that are one in torch are one event
    assert shapes["braid:all_gather"] == [[[2, 2]]]
    assert shapes["braid:reduce"] == [[[3]]]
    assert shapes["braid:scatter"] == [[[2, 2]] * n if rank.rank == 0 else []]
    assert shapes["braid:send"] == shapes["braid:recv"] == [[[4]]]
    assert len(shapes["braid:barrier"]) == 1

    path = rank.folder / f"trace.{rank.rank}.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    facts = [event["args"] for event in events if event.get("name") == "record_param_comms"]
    reduction = next(each for each in facts if each["Collective name"] == "allreduce")
    assert reduction["dtype"] == "Float"
    assert reduction["In msg nelems"] == reduction["Out msg nelems"] == 5
    assert reduction["Group size"] == n
    gathering = next(each for each in facts if each["Collective name"] == "all_gather")
    assert (gathering["In msg nelems"], gathering["Out msg nelems"]) == (4, 4 * n)


def count(rank: Rank) -> None:
    import braid

    group = dist.new_group()
    for _ in range(10):
        dist.all_reduce(torch.ones(100), group=group)
    if rank.size > 1:
        receive = dist.irecv(torch.zeros(4), (rank.rank - 1) % rank.size, group=group)
        dist.send(torch.ones(4), (rank.rank + 1) % rank.size, group=group)
        receive.wait()
    known = {entry["group"]: entry for entry in braid.stats()}
    assert len(known) == 2
    entry = known[group.group_name]
    assert (entry["rank"], entry["ranks"]) == (rank.rank, rank.size)
    rows = {row["collective"]: row for row in entry["operations"]}
    row = rows["all_reduce"]
    assert (row["calls"], row["bytes"], row["min_bytes"], row["max_bytes"]) == (10, 4000, 400, 400)
    assert 0 < row["p50_s"] <= row["p95_s"] <= row["p99_s"] <= row["max_s"] <= row["seconds"]
    if rank.size > 1:
        assert rows["send"]["bytes"] == rows["recv"]["bytes"] == 16
    dist.destroy_process_group(group)
    del group
    gc.collect()
    eventually(lambda: len(braid.stats()) == 1, "the end of the group")  # its thread may still hold it


def record_a_failure(rank: Rank) -> str:
    import braid

    rank.join()
    dist.all_reduce(torch.ones(2, 3, dtype=torch.float64))
    if rank.rank == 0:
        dist.recv(torch.zeros(4))
    elif rank.rank == 1:
        dist.send(torch.ones(4), 0)
    error = ""
    rank.set_timeout(3)
    if rank.rank != 2:
        error = error_of(lambda: dist.all_gather([torch.zeros(7) for _ in range(3)], torch.ones(7)))
    else:
        rank.wait_for("late", 0)
    rank.mark("late")
    if rank.rank != 2:  # the thread that ends an operation wakes its waiter, and then records the end
        eventually(lambda: braid.flight_record()["entries"][-1]["failed"], "the record of the failure")
    entries = braid.flight_record()["entries"]
    first, last = entries[0], entries[-1]
    assert first["profiling_name"] == "gloo:all_reduce"
    assert first["input_sizes"] == first["output_sizes"] == [[2, 3]]
    assert first["input_dtypes"] == ["Double"]
    assert first["state"] == "completed"
    assert not first["failed"]
    assert first["time_created_ns"] <= first["time_discovered_completed_ns"]
    messages = [entry["profiling_name"] for entry in entries if entry["is_p2p"]]
    assert messages == {0: ["gloo:recv 0<-1"], 1: ["gloo:send 1->0"], 2: []}[rank.rank]
    if rank.rank != 2:
        assert last["profiling_name"] == "gloo:all_gather"
        assert (last["state"], last["failed"], last["collective_seq_id"]) == ("started", True, 2)
    atexit._run_exitfuncs()  # the harness's processes end without
    return error


def record_little(rank: Rank) -> None:
    import braid

    for _ in range(10):
        dist.barrier()
    held = braid.flight_record()["entries"]
    assert len(held) == int(os.environ["TORCH_FR_BUFFER_SIZE"])
    assert all(entry["collective_seq_id"] > 7 for entry in held)


def check_in_detail(rank: Rank) -> None:
    """torch's wrapper compares every call with those of other ranks."""
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    rank.join()
    total = torch.ones(4)
    dist.all_reduce(total)
    assert total[0].item() == rank.size
    blocks = [torch.zeros(2) for _ in range(rank.size)]
    dist.all_gather(blocks, torch.full((2,), float(rank.rank)))
    assert [block[0].item() for block in blocks] == list(range(rank.size))
    with pytest.raises(RuntimeError, match="Detected mismatch"):
        dist.all_reduce(torch.ones(4 + rank.rank))
    dist.barrier()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("function", [appear_in_profiles, count])
def test_groups_show_themselves(function: object, size: int) -> None:
    run_ranks(function, size)


def test_the_flight_record_tells_what_failed_and_torch_can_read_it(tmp_path: Path) -> None:
    dump = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    errors = run_ranks(record_a_failure, 3, join=False, environment=dump)
    assert all("rank 2" in error for error in errors[:2])
    records: list[dict[str, Any]] = []
    for rank in (0, 1):  # rank 2 has no operation that failed
        records.append(pickle.loads((tmp_path / f"trace_{rank}").read_bytes()))
    assert [group["ranks"] for group in records[0]["pg_config"].values()] == ["[0, 1, 2]"]
    (tmp_path / "trace_2").write_bytes(pickle.dumps(records[0] | {"entries": records[0]["entries"][:1]}))
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "--prefix", "trace_"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=limit(200))
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert "collective: gloo:all_gather\nmissing ranks: {2}" in told, told


@pytest.mark.parametrize("size", ["0", "2"])
def test_the_flight_record_is_as_long_as_asked_for(size: str) -> None:
    run_ranks(record_little, 2, environment={"TORCH_FR_BUFFER_SIZE": size})


def test_torch_debug_mode() -> None:
    run_ranks(check_in_detail, 2, join=False, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
