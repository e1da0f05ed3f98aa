# SPDX-License-Identifier: Apache-2.0
"""Links that a file states: every way into a group believes them, whatever the wires really do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import braid
import numpy as np
import pytest
import torch.distributed as dist
from arrays import join
from braid import _core
from braid._links import load, topology_text
from braid.cli import main
from braid.lab import Job, Lab, environments, unavailable
from ranks import Rank, error_of, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

in_lab = pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}")
BYTES = 16 << 20
# h1 is slow, says the file; in truth h2 is.
FILE = """
[between]
rate = "1gbit"
latency = "70us"
[[host]]
name = "10.77.0.2"
up = "100mbit"
down = "50mbit"
"""
STATED = (
    "between alpha_s=7e-05 beta_s_per_byte=8e-09\n"
    "card 1 up_s_per_byte=8e-08 down_s_per_byte=1.6e-07\n"
)  # fmt: skip
SCRIPT = """
import json, os, sys
import torch, torch.distributed as dist
import braid

with braid.Communicator("env://", name="arrays") as comm:
    told = {"topology": comm.topology(), "arrays": comm.explain("all_reduce", BYTES)}
dist.init_process_group(sys.argv[2])
x = torch.ones(1000)
dist.all_reduce(x)
assert x.sum() == 1000 * dist.get_world_size()
told["tensors"] = dist.group.WORLD._get_backend(torch.device("cpu")).explain("all_reduce", BYTES)
with open(f"{sys.argv[1]}.{dist.get_rank()}", "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
"""


@pytest.fixture
def links(tmp_path: Path) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(f"BYTES = {BYTES}\n{SCRIPT}")
    return path


def check_told(folder: Path, text: str, ranks: int) -> None:
    expected = _core.Tuner(text).explain("all_reduce", "float32", "sum", 0, BYTES)
    for rank in range(ranks):
        told = json.loads((folder / f"told.{rank}").read_text())
        assert told["tensors"].pop("local_leg") is False
        assert "asks for none" in told["tensors"].pop("local_leg_reason")
        assert told == {"topology": text, "arrays": expected, "tensors": expected}
    assert expected["algorithm"] == "direct"
    assert expected["shares"][1] < min(expected["shares"][0], expected["shares"][2])


@pytest.mark.long
@in_lab
def test_the_file_is_believed_and_not_the_wires(links: Path, script: Path, tmp_path: Path) -> None:
    with Lab("2x1gbit,1x200mbit") as lab:
        places = [(host, own | {"BRAID_LINKS": str(links)}) for host, own in environments(lab, [1, 1, 1])]
        with Job(places, [sys.executable, str(script), str(tmp_path / "told"), "braid"]) as job:
            assert job.wait(limit(120)) == [0, 0, 0]
    sharers = max(3 / len(os.sched_getaffinity(0)), 1.0)  # three hosts, but their cores are this machine's
    within = f"within alpha_s={2e-6 * sharers!r} beta_s_per_byte={1.5e-10 * sharers!r}\n"
    check_told(tmp_path, f"topology hosts=0,1,2\n{within}{STATED}", 3)


@in_lab
def test_topo_shows_the_hosts_of_a_lab_as_the_file_has_them(
    links: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["topo", "--lab", "2x1gbit,1x200mbit", "--links", str(links)]
    assert main([*arguments, "--ranks-per-host", "1,2,1", "--text"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("topology hosts=0,1,1,2\n")
    assert text.endswith(STATED)
    assert main(arguments) == 0
    rows = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines() if "│" in line]
    numbers = {
        row[0]: [word for word in row if word.isdigit()] for row in rows if len(row) > 4 and row[0].isdigit()
    }
    assert numbers == {
        "0": ["0", "1", "1000", "1000"],
        "1": ["1", "1", "100", "50"],
        "2": ["2", "1", "1000", "1000"],
    }


@pytest.mark.long
def test_run_takes_a_file(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text('[between]\nrate = "1gbit"\n[[host]]\nname = "host-1"\nrate = "100mbit"')
    own = tmp_path / "own.py"
    own.write_text(f'import os\nos.environ["BRAID_HOST"] = "host-" + os.environ["RANK"]\n{script.read_text()}')
    arguments = ["--nproc", "3", "--links", path.name, str(own), str(tmp_path / "told"), "gloo"]
    environment = {**os.environ, "BRAID_LINKS": "measure"}
    command = [sys.executable, "-m", "braid.cli", "run", *arguments]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=limit(200)).returncode == 0
    file = load(path)
    check_told(tmp_path, topology_text(file, [file.usual, file.hosts["host-1"], file.usual], [1, 1, 1]), 3)


def disagree(rank: Rank, files: list[str]) -> str:
    os.environ["BRAID_HOST"] = f"host-{rank.rank}"
    os.environ["BRAID_LINKS"] = files[rank.rank]
    with pytest.raises((braid.CommunicatorError, ValueError)) as caught:
        join(rank)
    text = error_of(rank.join)
    assert not dist.is_initialized()
    assert str(caught.value).partition("BRAID_LINKS")[2] == text.partition("BRAID_LINKS")[2]
    return text


def test_ranks_with_other_files_are_told(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.toml" for number in range(2)]
    for number, path in enumerate(paths):
        path.write_text(f'[between]\nrate = "{number + 1}gbit"')
    for text in run_ranks(disagree, 2, list(map(str, paths)), wire="tcp", join=False):
        for path in paths:
            assert f"a file with the digest {load(path).digest}" in text
        assert "BRAID_LINKS differs" in text
    paths[1].unlink()
    for text in run_ranks(disagree, 2, list(map(str, paths)), wire="tcp", join=False):
        assert "rank 0 has" in text
        assert f"{paths[1]}: No such file or directory" in text


def work_over(rank: Rank, cache: str) -> tuple[str, str]:
    """Two ranks on each of two hosts; return the links before and after some work."""
    os.environ.update(BRAID_HOST=f"host-{rank.rank // 2}", BRAID_LINKS="", BRAID_CACHE_DIR=cache)
    x = np.ones(1 << 20, np.float32)
    with join(rank) as comm:
        before = comm.topology()
        for _ in range(40):
            comm.all_reduce(x, "avg")
        return before, comm.topology()


@pytest.mark.long
@pytest.mark.alone
def test_ranks_that_share_a_host_find_out_that_a_cache_is_wrong(tmp_path: Path) -> None:
    run_ranks(work_over, 4, str(tmp_path), wire="shm,tcp", join=False)
    file = tmp_path / "links"
    rows = [line.split() for line in file.read_text().splitlines()]
    assert len(rows) == 2, "one for each host"
    file.write_text("".join(" ".join([*row[:5], "8e-08", "8e-08", row[7]]) + "\n" for row in rows))
    for before, after in run_ranks(work_over, 4, str(tmp_path), wire="shm,tcp", join=False):
        assert "beta_s_per_byte=8e-08" in before
        assert "beta_s_per_byte=8e-08" not in after
    # No rank has written down again what was forgotten.
    assert "8e-08" not in file.read_text()


def other_address() -> str:
    """Return an address of this machine besides loopback's, "" if there is none."""
    told = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=False).stdout
    found = [line.split()[3].partition("/")[0] for line in told.splitlines()]
    return next((address for address in found if not address.startswith("127.")), "")


@pytest.mark.long
@pytest.mark.alone
def test_another_way_between_the_same_hosts_is_measured(tmp_path: Path) -> None:
    if not other_address():
        pytest.skip("this machine has one address")
    found = []
    for address in ("127.0.0.1", other_address(), "127.0.0.1"):
        environment = {"BRAID_INTERFACE": address}
        told = run_ranks(work_over, 4, str(tmp_path), wire="shm,tcp", join=False, environment=environment)
        found.append([line for text in told[0] for line in text.splitlines() if line.startswith("between")])
    (_, first), (other, _), (again, _) = found
    assert first == again != other


def find_no_file(rank: Rank) -> None:
    for attempt in (lambda: join(rank), rank.join):
        with pytest.raises(ValueError, match=r"none\.toml: No such file"):
            attempt()


def test_a_file_that_nobody_can_read_is_a_wrong_argument() -> None:
    for size in (1, 2):
        run_ranks(find_no_file, size, join=False, environment={"BRAID_LINKS": "none.toml"})
