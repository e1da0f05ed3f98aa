# SPDX-License-Identifier: Apache-2.0
"""``braid bench``: that it finds wrong results, survives what contestants do, and leaves nothing behind."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from braid import cli
from braid._bench import rounds
from braid._bench.collectives import COLLECTIVES
from braid._bench.ddp.results import DdpReport
from braid._bench.intervals import LEAST_ROUNDS
from braid._bench.ranks.contestants import Setting, UnavailableError, braid_recipe, recipe_for
from braid._bench.ranks.team import Recipe, Team, TeamError
from braid._bench.ranks.teams import teams_for
from braid._bench.results import Report
from braid._bench.rounds import Budget, CaseRun
from braid._bench.workload import workload
from ranks import start_fork_server
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.multiprocess

FOLDERS = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"


@pytest.fixture(autouse=True)
def _find_oddities(monkeypatch):
    start_fork_server()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def braid_ranks(ranks: int, api: str = "array", **more) -> Recipe:
    return braid_recipe(Setting(ranks, api, **more))


def odd(name: str) -> Recipe:
    return Recipe(name.lower(), f"bench_oddities:{name}")


QUICK = Budget(0.02)


def measure(teams, work, ranks, budget=QUICK):
    return CaseRun(teams, work, ranks, budget, lambda name, done, planned: None).run()


AFTER_A_BENCHMARK = """
import multiprocessing
import os
import signal
from braid._bench.ranks.teams import _start_fork_server

def blocked(told):
    told.send(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    told.send(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _start_fork_server(["braid._bench.ranks.pattern"])
    heard, told = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(target=blocked, args=(told,))
    process.start()
    print(heard.recv(), heard.recv())
"""


def test_processes_forked_after_a_benchmark_hear_ctrl_c(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AFTER_A_BENCHMARK)
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=limit(200), check=True)
    assert told.stdout == "[] True\n", told


# ---- what is measured


@pytest.mark.parametrize("api", [pytest.param("array", marks=pytest.mark.long), "torch"])
@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))])
def test_every_collective(api, ranks) -> None:
    modules = ["torch", "torch.distributed"] if api == "torch" else []
    with teams_for([braid_ranks(ranks, api)], ranks, modules) as (teams, skipped):
        assert not skipped
        for name in COLLECTIVES:
            if ranks == 1 and name in ("send_recv", "ping_pong"):
                continue
            for size in (0, 20, 5000):
                work = workload(name, "float32", "sum", size, ranks, None, False)
                case = measure(teams, work, ranks)
                assert not case.refused, (name, size)
                found = case.measurements["braid"]
                assert found.wrong == 0, (name, size)
                assert 0 < found.min_us <= found.p50_us <= found.p95_us
                assert len(found.rounds_us) >= LEAST_ROUNDS
                assert bool(found.algorithm) == (name not in ("send_recv", "ping_pong")), name


@pytest.mark.parametrize("api", ["array", pytest.param("torch", marks=pytest.mark.long)])
def test_dtypes_operators_and_placements(api) -> None:
    ops = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
    works = [("all_reduce", dtype, "sum", None) for dtype in ("float64", "float16", "int8", "bool", "complex64")]
    works += [("all_reduce", "int32", op, None) for op in ops]
    works += [("all_gather", "float32", "sum", True)]
    if api == "torch":
        works += [("reduce_scatter", dtype, "avg", None) for dtype in ("bfloat16", "float8_e4m3fn")]
    else:
        works += [(name, "float32", "max", False) for name in ("all_reduce", "reduce")]
    with teams_for([braid_ranks(3, api)], 3, []) as (teams, _):
        for name, dtype, op, in_place in works:
            for cold in (False, True):
                work = workload(name, dtype, op, 999, 3, in_place, cold)
                case = measure(teams, work, 3, Budget(0.02, calls=1 if cold else None))
                assert not case.refused, work
                assert case.measurements["braid"].wrong == 0, work


@pytest.mark.parametrize("name", ["openmpi", "mpich", "intelmpi"])
def test_an_mpi(name) -> None:
    try:
        recipe = recipe_for(name, None, Setting(2))
    except UnavailableError as error:
        pytest.skip(f"{name}: {error}")
    with teams_for([braid_ranks(2), recipe], 2, []) as (teams, skipped):
        assert not skipped
        for collective in COLLECTIVES:
            case = measure(teams, workload(collective, "float32", "sum", 5000, 2, None, False), 2)
            assert not case.refused, collective
            assert {mpi: found.wrong for mpi, found in case.measurements.items()} == {"braid": 0, name: 0}, (
                collective
            )
            assert name in case.ratios
        for collective in ("all_reduce", "reduce", "all_gather"):
            in_place = not COLLECTIVES[collective].in_place
            case = measure(teams, workload(collective, "int16", "max", 999, 2, in_place, False), 2)
            assert case.measurements[name].wrong == 0, collective
        assert teams[name].ask("about")[0].count(".") == 2
        case = measure(teams, workload("all_reduce", "float32", "avg", 64, 2, None, False), 2)
        assert case.refused == {name: "ValueError: MPI has no operator for averages"}


def test_a_forced_algorithm_and_a_layout() -> None:
    with teams_for([braid_ranks(4, algorithm="ring", hosts=(2, 2))], 4, []) as (teams, skipped):
        assert not skipped
        case = measure(teams, workload("all_reduce", "float32", "sum", 1000, 4, None, False), 4)
    assert case.measurements["braid"].algorithm == "ring"


# ---- contestants that misbehave


def test_wrong_results_are_counted() -> None:
    with teams_for([odd("Careless"), odd("Idle")], 2, []) as (teams, _):
        for name in ("all_reduce", "all_to_all", "broadcast"):
            case = measure(teams, workload(name, "float32", "sum", 4000, 2, None, False), 2)
            assert case.measurements["careless"].wrong == 4, name  # two checks, two elements of one rank
            assert case.measurements["idle"].wrong > 900, name


def test_the_others_go_on() -> None:
    with teams_for([braid_ranks(2), odd("Mortal"), odd("Stillborn")], 2, []) as (teams, skipped):
        assert list(skipped) == ["stillborn"]
        assert re.fullmatch(r"RuntimeError: rank [01] has no engine", skipped["stillborn"])
        for _ in range(2):
            case = measure(teams, workload("all_reduce", "float32", "sum", 64, 2, None, False), 2)
            assert list(case.measurements) == ["braid"]
            # The coordinator sees the process end, or the other rank tells of it first.
            assert re.search(r"rank 1 (ended|\(pid \d+\) died)", case.refused["mortal"])
            assert not case.ratios


def test_ranks_that_are_killed_leave_the_folder_alone(monkeypatch, tmp_path) -> None:
    kill = ForkServerProcess.kill

    def kill_late(process: ForkServerProcess) -> None:
        time.sleep(0.3)  # for others to see the end of their connection, if it has come
        kill(process)

    monkeypatch.setattr(ForkServerProcess, "kill", kill_late)
    (tmp_path / "workplace").mkdir()
    with pytest.raises(TeamError, match="AttributeError"), Team(odd("Idle"), 2, tmp_path / "workplace") as team:
        team.ask("no_such_method")
    assert (tmp_path / "workplace" / "idle" / "log").exists()


def test_a_rank_that_does_not_answer(monkeypatch) -> None:
    monkeypatch.setattr(rounds, "_ANSWER_TIMEOUT_S", 5.0)
    with teams_for([odd("Sleepy")], 2, []) as (teams, _):
        case = measure(teams, workload("all_reduce", "float32", "sum", 64, 2, None, False), 2)
        assert case.refused["sleepy"] == "no answer to 'check' from rank 0, 1 in 5 s"
        with pytest.raises(TeamError, match="no answer"):
            teams["sleepy"].ask("describe")


# ---- the command


def command(*arguments: object, mark: str = "", **options) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "braid.cli", "bench", *map(str, arguments)],
        env={**os.environ, "BRAID_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def processes_of(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def folders_of(process: "subprocess.Popen[str]") -> list[str]:
    return [name for name in os.listdir(FOLDERS) if name.startswith(f"braid-bench-{process.pid}-")]


def test_as_a_user(tmp_path) -> None:
    (tmp_path / "mpi" / "bin").mkdir(parents=True)
    process = command(
        *("all_reduce", "--sizes", "8,100K", "--time", "0.05", "--json", tmp_path / "r.json"),
        *("--against", f"gloo,nccl,openmpi={tmp_path}/mpi", "--csv", tmp_path / "r.csv"),
    )
    out, error = process.communicate(timeout=limit(200))
    assert process.returncode == 0, error
    assert "skipped nccl: " in out
    assert "skipped openmpi: " in out
    assert "\x1b" not in out
    report = Report.read(tmp_path / "r.json")
    assert report.contestants == ["braid", "gloo"]
    assert [case.bytes for case in report.cases] == [8, 102400]
    for case in report.cases:
        assert {name: found.wrong for name, found in case.measurements.items()} == {"braid": 0, "gloo": 0}
        assert case.ratios["gloo"].low <= case.ratios["gloo"].median <= case.ratios["gloo"].high
    assert report.machine["copy_gb_s"] > 0
    assert report.command[:3] == ["braid", "bench", "all_reduce"]
    with (tmp_path / "r.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert not folders_of(process)


@pytest.mark.long
def test_against_an_earlier_run_beside_load(tmp_path) -> None:
    options = ("all_reduce", "--sizes", "8,100K", "--time", "0.05")
    _, error = (process := command(*options, "--json", tmp_path / "r.json")).communicate(timeout=limit(200))
    assert process.returncode == 0, error
    process = command(*options, "--busy", "1", "--compare", tmp_path / "r.json")
    out, error = process.communicate(timeout=limit(200))
    assert process.returncode == 0, error
    assert "old p50" in out
    assert "beside 1 busy process" in out
    assert "braid against gloo: " in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["all_reduce", "--ranks", "0"], "--ranks: expected 1 to"),
        (["ping_pong", "--ranks", "1"], "--ranks: expected 2 to"),
        (["all_reduce", "--sizes", "8:4"], "--sizes"),
        (["all_reduce", "--dtype", "float33"], "--dtype: unknown dtype"),
        (["all_reduce", "--op", "plus"], "--op: unknown operator"),
        (["all_reduce", "--against", "glue"], "--against: unknown contestant 'glue'"),
        (["all_reduce", "--algorithm", "tree"], "--algorithm: all_reduce has"),
        (["all_reduce", "--layout", "3,1"], "--layout"),
        (["all_reduce", "--time", "0"], "--time"),
        (["all_reduce", "--iters", "0"], "--iters"),
        (["all_reduce", "--busy", "-1"], "--busy: expected 0 to 256, got -1"),
        (["all_reduce", "--sizes", "900G"], "GiB are available"),
        (["all_reduce", "--json", "/nowhere/r.json"], "--json: cannot write"),
        (["all_reduce", "--plot", "r.txt"], ".png"),
        (["all_reduce", "--compare", "/nowhere/r.json"], "/nowhere/r.json"),
        (["broadcast", "--out-of-place"], "in place only"),
        (["all_reduce", "--out-of-place"], "--api array"),
        (["all_reduce", "--api", "numpy"], "--api"),
        (["all_reducee"], "all_reducee"),
        (["barrier", "--plot", "r.png"], "--plot"),
        (["ddp", "--model", "resnet51"], "--model: there is no 'resnet51', expected one of resnet50"),
        (["ddp", "--compute", "fast"], "--compute: expected measured, or"),
        (["ddp", "--batch", "0"], "--batch: expected more than 0"),
        (["ddp", "--busy", "257"], "--busy: expected 0 to 256, got 257"),
        (["ddp", "--ranks", "10000"], "GiB are available"),
    ],
)
def test_wrong_arguments_get_one_line(arguments, line, capsys) -> None:
    assert cli.main(["bench", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert len(error.splitlines()) == 1, error
    assert error.startswith("braid: ")
    assert line in error


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_in_the_middle_it_leaves_nothing(tmp_path, number) -> None:
    mark = uuid.uuid4().hex
    process = command(
        *("all_reduce", "--sizes", "8,16,32M", "--time", "10", "--against", "gloo", "--json", tmp_path / "r.json"),
        *("--busy", "1"),
        mark=mark,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs are made to ignore it
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] in (["8"], ["~8"]):
            break
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    process.communicate(timeout=limit(100))
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    eventually(lambda: not processes_of(mark), "the end of its processes", 20)
    eventually(lambda: not folders_of(process), "the end of its folder", 20)
    if number == signal.SIGINT:
        report = json.loads((tmp_path / "r.json").read_text())
        assert [case["bytes"] for case in report["cases"]] == [8]
        assert report["notes"] == ["interrupted after 1 of 3 sizes"]


def test_explain_measures_nothing() -> None:
    process = command("all_reduce", "--explain")
    out, _ = process.communicate(timeout=limit(200))
    assert process.returncode == 0
    assert "2(n-1)/n" in out


@pytest.mark.long
def test_gradients_of_a_model(tmp_path) -> None:
    process = command(
        *("ddp", "--model", "resnet50", "--compute", "1", "--batch", "16", "--time", "0.1"),
        *("--against", "gloo,mpich", "--json", tmp_path / "r.json"),
    )
    out, error = process.communicate(timeout=limit(200))
    assert process.returncode == 0, error
    assert "skipped mpich: DistributedDataParallel needs a backend of torch" in out
    report = DdpReport.read(tmp_path / "r.json")
    assert {name: found.wrong for name, found in report.measurements.items()} == {"braid": 0, "gloo": 0}
    assert report.facts["tensors"] == 161
    assert report.machine["cores"] == os.cpu_count()
