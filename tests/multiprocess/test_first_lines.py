# SPDX-License-Identifier: Apache-2.0
"""What a job says when it starts: one line on rank 0, wrong settings, names and launchers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import braid
import pytest
import torch
import torch.distributed as dist
from ports import free_port
from ranks import Rank, error_of, run_ranks
from slowness import limit

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group({name})
tensor = torch.ones(8)
dist.all_reduce(tensor)
group = dist.new_group([0])
assert tensor[0] == dist.get_world_size()
dist.destroy_process_group()
"""


def run(tmp_path: Path, *words: str, name: str = '"gloo"', **environment: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(name=name))
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("BRAID_", "RANK", "WORLD_"))}
    if cache := os.environ.get("BRAID_CACHE_DIR"):
        plain["BRAID_CACHE_DIR"] = cache
    return subprocess.run(
        [*words, str(script)], env={**plain, **environment}, capture_output=True, text=True, timeout=limit(120)
    )


def start_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"braid \d+\.\d+\.\d+: ", line)]


BRAID_RUN = (sys.executable, "-m", "braid.cli", "run", "--nproc", "2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.long
def test_braid_run_tells_once_what_it_carries_and_how_to_stop(tmp_path: Path) -> None:
    done = run(tmp_path, *BRAID_RUN)
    assert done.returncode == 0, done.stderr
    (line,) = start_lines(done.stderr)
    assert line.endswith(
        ': 2 ranks on 1 host, by shm; runs the script\'s backend "gloo" (taken over; start the script with '
        "torchrun, or give --takeover '', to stop)"
    ), line
    assert start_lines(run(tmp_path, *BRAID_RUN, BRAID_QUIET="1").stderr) == []


@pytest.mark.long
@pytest.mark.parametrize("ends", ["dist.destroy_process_group()", "pass"])
def test_the_end_is_told_once_by_rank_0(tmp_path: Path, ends: str) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "from braid._torch import end_lines\n"
        "end_lines.LEAST_SECONDS = 0\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(120): dist.all_reduce(torch.ones(250))\n"
        f"{ends}\n"
    )
    done = subprocess.run([*BRAID_RUN, script], capture_output=True, text=True, timeout=limit(120), check=True)
    start, end = start_lines(done.stderr)
    assert "2 ranks on 1 host" in start
    assert re.search(
        r": 12\d operations carried 117 KiB, in \d+\.\d s added up; .* Most, 117 KiB, by \w+: 120 times", end
    )


@pytest.mark.long
def test_torchrun_says_it_in_words_of_the_variable(tmp_path: Path) -> None:
    done = run(tmp_path, *TORCHRUN, BRAID_TAKEOVER="gloo", BRAID_TRANSPORTS="tcp")
    assert done.returncode == 0, done.stderr
    (line,) = start_lines(done.stderr)
    said = 'on 1 host, by tcp; runs the script\'s backend "gloo" (taken over; unset BRAID_TAKEOVER to stop)'
    assert line.endswith(said), line


@pytest.mark.long
def test_a_script_that_names_braid_is_told_of_ranks_and_wires(tmp_path: Path) -> None:
    done = run(tmp_path, *TORCHRUN, name='"braid"', BRAID_COMPRESION="int8")
    assert done.returncode == 0, done.stderr
    (line,) = start_lines(done.stderr)
    assert line.endswith(": 2 ranks on 1 host, by shm"), line
    told = "there is no setting BRAID_COMPRESION, so it is ignored; did you mean BRAID_COMPRESSION?"
    assert done.stderr.count(told) == 1


@pytest.mark.long
def test_a_misspelt_takeover_is_told_though_no_group_is_made(tmp_path: Path) -> None:
    done = run(tmp_path, *TORCHRUN, BRAID_TAKEOVR="gloo")
    assert done.returncode == 0, done.stderr
    told = "braid: there is no setting BRAID_TAKEOVR, so it is ignored; did you mean BRAID_TAKEOVER?"
    assert done.stderr.count(told) == 1, done.stderr
    assert start_lines(done.stderr) == []


@pytest.mark.parametrize(
    ("name", "environment", "says"),
    [
        ('"gloo"', {"BRAID_TAKEOVER": "glo"}, "BRAID_TAKEOVER=glo: there is no backend 'glo'; did you mean gloo?"),
        ('"braid"', {"BRAID_COMPRESSION": "int7"}, 'BRAID_COMPRESSION=int7: codec "int7": there is none'),
        pytest.param(
            *('"briad"', {"BRAID_TAKEOVER": "gloo"}, 'there is no backend "briad"; did you mean "braid"?'),
            marks=pytest.mark.long,
        ),
        ('"gloo"', {"BRAID_TAKEOVER": "gloo"}, "are not set: start the script with braid run or torchrun"),
    ],
)
def test_a_wrong_start_is_told_in_one_sentence(
    tmp_path: Path, name: str, environment: dict[str, str], says: str
) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = run(tmp_path, sys.executable, name=name, **environment, **({} if "are not set" in says else own))
    assert done.returncode != 0
    assert says in done.stderr.splitlines()[-1], done.stderr


def test_a_strategy_that_comes_too_late_is_told(tmp_path: Path) -> None:
    late = '"braid" if __import__("os").environ.setdefault("BRAID_STRATEGY", "local") else ""'
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    told = "braid: BRAID_STRATEGY is ignored: it was set after torch was imported\n"
    done = run(tmp_path, sys.executable, name=late, **place)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(told) == 1
    assert told not in run(tmp_path, sys.executable, name=late, **place, BRAID_STRATEGY="local").stderr


def differ(rank: Rank, name: str, values: list[str]) -> None:
    os.environ[name] = values[rank.rank]
    text = error_of(rank.join)
    assert f"{name} differs: " in text, text
    for number, value in enumerate(values):
        assert f"rank {number} has {(value and repr(value).replace(chr(39), chr(34))) or 'none'}" in text, text


@pytest.mark.parametrize(
    ("name", "values"),
    [("BRAID_COMPRESSION", ["int8", ""]), ("BRAID_BALANCE", ["0", "1"]), ("BRAID_WINDOW", ["4", "8"])],
)
def test_settings_that_differ_are_named(name: str, values: list[str]) -> None:
    run_ranks(differ, 2, name, values, wire="tcp", join=False)


def listen(rank: Rank, first: int, last: int) -> list[str]:
    os.environ["BRAID_PORTS"] = f"{first}-{last}"
    if first == last:
        # The other rank hears nothing of it, and waits for as long.
        return [error_of(lambda: rank.join(timeout_s=limit(6)))]
    rank.join()
    return braid.wires()


def test_ranks_listen_within_the_range() -> None:
    first = 21000 + os.getpid() % 500 * 10
    found = run_ranks(listen, 3, first, first + 9, wire="tcp", join=False)
    for rank, wires in enumerate(found):
        for other, line in enumerate(wires):
            if other == rank:
                continue
            port = re.search(r"tcp \S+:(\d+) from \S+ \(", line)
            assert port, line
            assert first <= int(port[1]) <= first + 9, line


def test_one_port_is_too_few_for_two_ranks() -> None:
    first = 26000 + os.getpid() % 500 * 10
    texts = [text for (text,) in run_ranks(listen, 2, first, first, wire="tcp", join=False)]
    assert any(f"BRAID_PORTS={first}-{first}: no port of this range is free at " in text for text in texts), texts


def refuse_meta(rank: Rank) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(TypeError, match="device meta, where tensors have no data; materialize it"):
        backend.allreduce([torch.ones(3, device="meta")])
    dist.barrier()


def test_a_tensor_without_data_is_refused() -> None:
    run_ranks(refuse_meta, 2)
