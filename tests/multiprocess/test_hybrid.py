# SPDX-License-Identifier: Apache-2.0
"""Groups on unequal hosts, in a lab: what is chosen, what crosses each link, and that it is right."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from braid.cli import main
from braid.lab import Job, Lab, environments, unavailable
from slowness import asserts_speed, limit
from waiting import eventually

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]
MIB = 1 << 20
# Headers take 4.3 % of what a card passes, acknowledgements a little.
HEADERS = 1 / 0.957

RANK = """
    import json, os, sys, time
    from pathlib import Path
    import braid, numpy
    folder, rank, size = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    comm = braid.Communicator(f"file://{folder}/meeting", rank=rank, size=size, timeout_s=60)
    comm.barrier()
    (folder / f"ready.{rank}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    for repetition in range(int(sys.argv[2])):
        x = numpy.arange(int(sys.argv[3]) // 4, dtype=numpy.float32) % 1000 + rank
        expected = (numpy.arange(x.size) % 1000).astype(numpy.float32) * size + size * (size - 1) / 2
        comm.all_reduce(x)
        assert numpy.array_equal(x, expected), (rank, repetition)
    explained = comm.explain("all_reduce", int(sys.argv[3]), "float32", "sum")
    (folder / f"explained.{rank}").write_text(json.dumps(explained))
    comm.barrier()
    comm.close()
"""


def await_all(folder: Path, name: str, size: int) -> None:
    eventually(lambda: all((folder / f"{name}.{rank}").exists() for rank in range(size)), f"all ranks at {name!r}")


def run(
    lab: Lab, folder: Path, ranks: list[int], count: int, round_robin: bool = False
) -> tuple[list[float], dict]:
    """All-reduce 4 times; return what each host's card sent, as a multiple of the vector, and the choice."""
    places = environments(lab, ranks, round_robin)
    command = [sys.executable, "-c", textwrap.dedent(RANK), str(folder), "4", str(count)]
    with Job(places, command, stderr=subprocess.PIPE) as job:
        await_all(folder, "ready", len(places))
        before = [lab.sent_bytes(host) for host in lab.hosts]
        (folder / "go").touch()
        codes = job.wait(limit(120))
        says = [rank.stderr.read().decode() for rank in job.ranks if rank.stderr]
        assert codes == [0] * len(places), says
    sent = [(lab.sent_bytes(host) - old) / (4 * count) for host, old in zip(lab.hosts, before, strict=True)]
    choices = [json.loads((folder / f"explained.{rank}").read_text()) for rank in range(len(places))]
    assert all(choice == choices[0] for choice in choices)
    return sent, choices[0]


@pytest.mark.alone
def test_a_slow_host_owns_nothing(tmp_path: Path) -> None:
    # 5:1, so T* is the time in which the slow card sends and receives the vector once.
    with Lab("3x100mbit,1x20mbit") as lab:
        sent, choice = run(lab, tmp_path, [1, 1, 1, 1], 2 * MIB)
    assert choice["algorithm"] == "direct", choice
    assert choice["shares"][3] == pytest.approx(0, abs=0.01)
    assert sum(choice["shares"]) == pytest.approx(1)
    assert 4096 <= choice["chunk_bytes"] <= 32 * 1024  # no more than a switch holds of four segments
    assert sent[3] == pytest.approx(HEADERS, rel=0.05)
    # The others own all of it: three times 1, and n-2 for what they own.
    assert sum(sent[:3]) == pytest.approx(5 * HEADERS, rel=0.05)


@pytest.mark.alone
def test_ranks_of_a_host_work_as_one(tmp_path: Path) -> None:
    with Lab("2x100mbit") as lab:
        sent, _ = run(lab, tmp_path, [2, 2], 2 * MIB, round_robin=True)
    # 2(H-1)/H of the vector leaves each host; ranks in turn on a flat ring would send 3.
    for of_host in sent:
        assert of_host == pytest.approx(HEADERS, rel=0.05)


@pytest.mark.alone
def test_hosts_may_have_different_numbers_of_ranks(tmp_path: Path) -> None:
    with Lab("3x100mbit") as lab:
        sent, _ = run(lab, tmp_path, [3, 1, 2], MIB)
    # 4/3 by hosts, 5/3 on a ring that goes host by host; ranks that each send for themselves: up to 5.
    assert max(sent) < 1.8 * HEADERS


@pytest.mark.alone
def test_links_that_are_equal_are_said_to_be(tmp_path: Path) -> None:
    with Lab("3x100mbit") as lab:
        sent, _ = run(lab, tmp_path, [1, 1, 1], MIB)
    for of_host in sent:
        assert of_host == pytest.approx(4 / 3 * HEADERS, rel=0.15)


@pytest.mark.long
@pytest.mark.alone
def test_bench_runs_in_a_lab(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    command = ["bench", "all_reduce", "--lab", "2x1gbit", "--ranks-per-host", "1,2", "--sizes", "64,64K"]
    assert main([*command, "--iters", "3", "--against", "gloo,openmpi", "--json", str(report)]) == 0
    assert "lab 2x1gbit" in capfd.readouterr().out
    found = json.loads(report.read_text())
    assert found["settings"]["ranks"] == 3
    assert set(found["cases"][0]["measurements"]) == {"braid", "gloo"}
    assert "--lab" in found["skipped"]["openmpi"]
    assert all(measured["wrong"] == 0 for case in found["cases"] for measured in case["measurements"].values())


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timing
@pytest.mark.parametrize("api", ["array", "torch"])
def test_bench_lends_hosts_to_aggregators(api: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    command = ["bench", "all_reduce", "--lab", "5x100mbit", "--servers", "2", "--sizes", "2M", "--iters", "8"]
    assert main([*command, "--api", api, "--against", "none", "--json", str(report)]) == 0
    assert "2 servers for braid" in capfd.readouterr().out
    found = json.loads(report.read_text())
    assert (found["settings"]["ranks"], found["settings"]["servers"]) == (3, 2)
    assert not any("servers ended" in note for note in found["notes"])
    braid = found["cases"][0]["measurements"]["braid"]
    assert braid["wrong"] == 0
    # Three cards alone need as much at least. One call that is faster shows the aggregators.
    assert not asserts_speed() or braid["min_us"] < 0.95 * 4 / 3 * HEADERS * 2 * MIB * 8 / 100


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["all_reduce", "--servers", "1"], "--servers: they are hosts of a lab"),
        (["all_reduce", "--lab", "2x1gbit", "--servers", "2"], "--servers: 2 of a lab of 2 leaves no host"),
        (["all_reduce", "--lab", "2x1gbit", "--servers", "-1"], "--servers: -1 of a lab"),
        (["broadcast", "--lab", "2x1gbit", "--servers", "1"], "--servers: they help all_reduce alone"),
    ],
)
def test_bench_refuses_servers_that_cannot_be(
    arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert line in capfd.readouterr().err


def test_bench_refuses_a_lab_that_cannot_be(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all_reduce", "--lab", "warp9"]) == 2
    assert "--lab" in capfd.readouterr().err


@pytest.mark.alone
@pytest.mark.timing
def test_topo_shows_what_was_measured(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "--lab", "2x100mbit,1x100mbit/20mbit", "--ranks-per-host", "1,2,1"]) == 0
    shown = capfd.readouterr().out
    assert "4 ranks on 3 hosts" in shown
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")
    ]
    assert [row[1] for row in rows] == ["1", "2", "1"]
    # Short probes on a machine with other work may find less than there is, and never more.
    least = 0.6 if asserts_speed() else 0.0
    for row, up, down in zip(rows, (100, 100, 100), (100, 100, 20), strict=True):
        assert least * up < float(row[2]) < 1.05 * up, shown
        assert least * down < float(row[4]) < 1.05 * down, shown
    told = " ".join(shown.rpartition("in GB/s of float32: ")[2].split()).replace("; codes ", ", ")
    work = dict(part.split(" ") for part in told.split(", "))
    assert {"sums", "int8", "top_k"} < set(work), shown
    assert all(0.001 < float(rate) < 1000 for rate in work.values()), shown


def test_topo_without_a_job_says_so(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert main(["topo"]) == 2
    assert "RANK" in capfd.readouterr().err
