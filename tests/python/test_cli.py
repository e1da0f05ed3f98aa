# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, what it refuses, and what it leaves to the script."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from braid import _core, _machine, _settings, cli
from braid.cli import build, errors, ranks_watch, run
from braid.cli.program import app
from ports import free_port
from slowness import limit
from waiting import eventually

SCRIPT = """
import os, sys, time
rank = int(os.environ["RANK"])
environment = [os.environ.get(name) for name in ("WORLD_SIZE", "OMP_NUM_THREADS", "BRAID_TAKEOVER")]
# In one piece: the ranks share one pipe.
os.write(1, f"{' '.join(map(str, [rank, *environment, sys.argv[1:]]))}\\n".encode())
match sys.argv[1:]:
    case ["fail"] if rank == 1: sys.exit(3)
    case ["die"] if rank == 1: os.kill(os.getpid(), 9)
    case ["late"]:
        time.sleep(0.3 * (rank == 0))
        sys.exit(3 - 2 * (rank == 0))
    case ["wait"]: time.sleep(120)
    case ["torch"]:
        import torch
        os.write(1, b"imported\\n")
        time.sleep(120)
"""
# The adapter is not what is tested here, so nothing is compiled.
PROGRAM = """
import sys
from braid.cli import main, run
run.ensure_adapter = lambda: None
sys.exit(main())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.unit
def test_info_as_json(capsys) -> None:
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["version"] == _core.version
    assert facts["torch"]["version"].startswith("2.")
    assert {"adapter", "problem"} & facts["torch"].keys()
    assert 1 <= facts["machine"]["usable_cores"] <= facts["machine"]["cores"]
    assert facts["machine"]["memory_bytes"]["available"] < facts["machine"]["memory_bytes"]["total"]
    assert {row["name"] for row in facts["capabilities"]} == {
        *("process_vm_readv", "memfd", "/dev/shm", "CUDA", "MPI"),
    }
    assert all(row["detail"] for row in facts["capabilities"])
    ways = {row["device"]: row for row in facts["devices"]}
    assert {"cuda", "arrays on a GPU"} <= ways.keys()
    assert all(row["path"] in ("none", "through the host") and row["why"] for row in ways.values())


@pytest.mark.unit
def test_info_as_a_table(capsys, monkeypatch) -> None:
    monkeypatch.setattr(_machine, "capabilities", lambda: [_machine.Capability("MPI", False, "try [mpi]")])
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"braid +{re.escape(_core.version)} \({_core.build_type}", out)
    assert re.search(r"MPI +no: try \[mpi\]", out)
    assert re.search(r"adapter +\S.*_c10d\.so", out), "a path is cut"


@pytest.mark.unit
def test_single_copy_reports_what_the_kernel_says(monkeypatch) -> None:
    works = _machine._read_from_child() == 0
    assert _machine.single_copy().available == works
    monkeypatch.setattr(_machine, "_read_from_child", lambda: 1)
    refused = _machine.single_copy()
    assert not refused.available
    assert "EPERM" in refused.detail


@pytest.mark.unit
def test_build_prints_the_path_and_copies(tiny_adapter, monkeypatch, capfd) -> None:
    _, package = tiny_adapter.arguments()
    monkeypatch.setattr(build.PackageFiles, "installed", lambda: package)
    assert cli.main(["build"]) == 0
    first = Path(capfd.readouterr().out.strip())
    assert first.name == "_c10d.so"
    assert first.is_relative_to(tiny_adapter.root / "cache")
    assert cli.main(["build", "--into", str(tiny_adapter.root / "wheel")]) == 0
    assert tiny_adapter.builds() == 1
    copied = Path(capfd.readouterr().out.split()[1])
    assert copied.read_bytes() == first.read_bytes()
    assert cli.main(["build", "--force"]) == 0
    assert tiny_adapter.builds() == 2


@pytest.mark.unit
def test_build_into_what_is_no_folder_is_one_line(tiny_adapter, monkeypatch, capfd) -> None:
    _, package = tiny_adapter.arguments()
    monkeypatch.setattr(build.PackageFiles, "installed", lambda: package)
    assert cli.main(["build"]) == 0
    capfd.readouterr()
    assert cli.main(["build", "--into", "/dev/null/wheel"]) == 2
    assert capfd.readouterr().err == "braid: --into: cannot write into /dev/null/wheel: Not a directory\n"


@pytest.mark.unit
def test_build_without_a_compiler_is_one_line(tiny_adapter, monkeypatch, capsys) -> None:
    _, package = tiny_adapter.arguments()
    monkeypatch.setattr(build.PackageFiles, "installed", lambda: package)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert cli.main(["build"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("braid: braid has no adapter")
    assert err.count("\n") == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "No such command 'nothing'."),
        (["info", "--yaml"], "No such option: --yaml"),
        (["run"], "which script? Write, for example, braid run --nproc 2 train.py"),
        (
            ["lab", "--hosts", "2x1gbit"],
            "which command? Write, for example, braid lab --hosts 2x1gbit -- python train",
        ),
        (["run", "nowhere.py"], "no such script: nowhere.py"),
        (["run", "-m", "nowhere.module"], "no such module: nowhere.module"),
        (["run", "--no-python", "nowhere-to-be-found"], "no such program: nowhere-to-be-found"),
        (
            ["run", "--nproc", "two", "x.py"],
            "--nproc: expected a whole number, got 'two'; or one of auto, cpu, gpu",
        ),
        (["run", "--nproc", "0", "x.py"], "--nproc: expected at least 1, got 0"),
        (["run", "--nnodes", "2:1", "x.py"], "--nnodes: expected at least 1, got 2:1"),
        (["run", "--nnodes", "1:2:3", "x.py"], "--nnodes: "),
        (["run", "--takeover", "glo", "x.py"], "--takeover: there is no backend 'glo'; did you mean gloo?"),
        (
            ["run", "--takeover", "?", "x.py"],
            "--takeover: there is no backend '?'; give some of gloo, mpi, nccl, none, ucc, xccl",
        ),
        (["run", "--compression", "int9", "x.py"], "--compression 'int9': codec \"int9\": there is none"),
        (["run", "--max-restarts", "many", "x.py"], "argument --max-restarts/--max_restarts: invalid int"),
    ],
)
def test_bad_input_is_one_line_and_2(arguments: list[str], complaint: str, capsys) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"braid: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("BRAID_COMPRESSION", "int9", 'BRAID_COMPRESSION=int9: codec "int9": there is none'),
        ("BRAID_WINDOW", "abc", "BRAID_WINDOW=abc: expected a whole number from 1 to 64"),
        ("BRAID_ALGORITHM", "rign", 'BRAID_ALGORITHM: algorithm: no algorithm "rign"; there are '),
        ("BRAID_STRATEGY", "locl", "BRAID_STRATEGY=locl: there is no 'locl'; did you mean local?"),
        ("BRAID_WAIT", "yeild", "BRAID_WAIT=yeild: expected auto, spin, yield or sleep"),
        ("BRAID_STALL_NOTICE", "soon", "BRAID_STALL_NOTICE=soon: expected seconds from 0.1 to "),
    ],
)
def test_wrong_settings_end_run_and_lab_before_ranks_start(
    name: str, value: str, says: str, script: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv(name, value)
    for command in (["run", "--takeover", "", str(script)], ["lab", "--", "true"]):
        assert cli.main(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"braid: {says}")
        assert err.count("\n") == 1


@pytest.mark.unit
def test_run_refuses_balanced_batches_beside_a_strategy(script: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("BRAID_BALANCE", "1")
    monkeypatch.setenv("BRAID_STRATEGY", "")  # to be as before, at the end
    assert cli.main(["run", "--takeover", "", "--strategy", "local", str(script)]) == 2
    assert capsys.readouterr().err.startswith("braid: BRAID_BALANCE=1 and BRAID_STRATEGY=local: ")


@pytest.mark.unit
def test_backends_of_scripts_may_be_named_in_settings(monkeypatch) -> None:
    monkeypatch.setenv("BRAID_LOCAL_LEG", "cpu:of_the_script")
    errors.check_settings_of_ranks()
    with pytest.raises(ValueError, match="there is no backend 'of_the_script'"):
        _settings.refuse_wrong_values()


@pytest.mark.unit
def test_failed_ranks_are_named_in_the_order_of_their_end() -> None:
    def failures(*codes: int, times: tuple[int, ...] = (5, 5, 5)) -> dict[int, SimpleNamespace]:
        rows = zip(codes, times, strict=True)
        return {
            rank: SimpleNamespace(pid=100 + rank, exitcode=code, timestamp=at)
            for rank, (code, at) in enumerate(rows)
        }

    failed = failures(1, 3, -15)
    order = ranks_watch.in_order(failed, [102, 101, 100])
    assert order == [2, 1, 0], "SIGTERM came first, so it was not torch's"
    order = ranks_watch.in_order(failed, [101, 100, 102])
    assert ranks_watch.words(failed, order) == (
        "rank 1 (process 101) ended with exit code 3; then rank 0 (process 100) ended with exit code 1"
    )
    assert ranks_watch.in_order(failures(1, -9, 4, times=(7, 6, 5)), []) == [2, 1, 0]
    many = {rank: SimpleNamespace(pid=rank, exitcode=-9, timestamp=0) for rank in range(11)}
    line = ranks_watch.words(many, list(range(11)))
    assert line.endswith("; then rank 7 (process 7) was killed by SIGKILL; then 3 more")


@pytest.mark.unit
def test_the_watch_notes_who_ends_first_and_tells_once_of_a_wait(capsys) -> None:
    elsewhere = subprocess.Popen(["sleep", "60"])  # as a server that was started before
    try:
        with ranks_watch.RanksWatch("nobody comes", 0.01) as watch:
            said = eventually(lambda: capsys.readouterr().err, "the line")
            children = [subprocess.Popen(["sleep", seconds]) for seconds in ("3.5", "1")]
            for child in children:
                child.wait()
        assert watch.ended == [children[1].pid, children[0].pid]
        assert said + capsys.readouterr().err == "braid: nobody comes\n"
        with ranks_watch.RanksWatch("nobody comes", 2) as watch:
            assert subprocess.call(["sleep", "3"]) == 0
        assert len(watch.ended) == 1
        with ranks_watch.RanksWatch("nobody comes", 0):
            time.sleep(0.3)
        assert capsys.readouterr().err == ""
    finally:
        elsewhere.kill()
        elsewhere.wait()


@pytest.mark.unit
def test_help_lists_the_commands(capsys) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("info", "build", "run"))


@pytest.mark.unit
def test_options_are_named_where_their_metavar_looks_like_their_name() -> None:
    """Typer 0.27 makes --SIZES of an option `sizes` with the metavar SIZES."""
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = [command.callback for group in groups if group for command in group.registered_commands]
    unnamed, seen = [], 0
    for command in commands:
        assert command is not None
        for name, hint in get_type_hints(command, include_extras=True).items():
            for option in getattr(hint, "__metadata__", ()):
                seen += 1
                named = option.param_decls or isinstance(option.default, str)  # typer's first argument
                if (option.metavar or "").lower() == name and not named:
                    unnamed.append((command.__name__, name))
    assert seen > 40
    assert not unnamed


def test_words_for_what_was_taken_over() -> None:
    assert run._list(["gloo", "mpi", "none"]) == "gloo, mpi and the default backend"
    assert run._list(["nccl"]) == "nccl"


@pytest.mark.multiprocess
def test_run_leaves_the_scripts_arguments_alone(script: Path) -> None:
    launcher = start("--nproc", 2, "--max-restarts=0", script, "--nproc", "9", "--help", "--", "-m", "x")
    out, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 0, err
    arguments = "['--nproc', '9', '--help', '--', '-m', 'x']"
    assert sorted(out.splitlines()) == [f"{rank} 2 1 gloo,nccl,mpi,none {arguments}" for rank in range(2)]
    assert "braid: starting 2 ranks; gloo, nccl, mpi and the default backend run on braid\n" in err
    assert "*****" not in err


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("action", "code", "line"),
    [
        ("die", 137, "was killed by SIGKILL"),
        pytest.param("fail", 3, "ended with exit code 3", marks=pytest.mark.long),
    ],
)
def test_run_passes_the_exit_code_on(script: Path, action: str, code: int, line: str) -> None:
    launcher = start("--nproc=2", "--takeover", "", script, action)
    out, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == code, err
    assert out.splitlines()[0].endswith(f"1  ['{action}']")
    assert err.splitlines()[-1].startswith("braid: rank 1 (process ")
    assert err.splitlines()[-1].endswith(line)


@pytest.mark.multiprocess
@pytest.mark.long
def test_run_names_all_that_failed_the_first_in_time_first(script: Path) -> None:
    # torch looks at the ranks so seldom that it sees both ends at once.
    launcher = start("--nproc=2", "--takeover", "", "--monitor-interval", 6, script, "late")
    _, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 3, err
    first, second = (
        rf"rank {rank} \(process \d+\) ended with exit code {code}" for rank, code in ((1, 3), (0, 1))
    )
    assert re.fullmatch(f"braid: {first}; then {second}", err.splitlines()[-1]), err


@pytest.mark.multiprocess
@pytest.mark.parametrize("node", [pytest.param(0, marks=pytest.mark.long), 1])
def test_run_tells_of_a_node_that_does_not_come(script: Path, node: int, monkeypatch) -> None:
    monkeypatch.setenv("BRAID_STALL_NOTICE", "0.5")
    port = free_port()
    where = ("--master-addr", "127.0.0.1", "--master-port", port)
    launcher = start("--nnodes", 2, "--node-rank", node, *where, "--takeover", "", script)
    assert launcher.stderr is not None
    try:
        assert launcher.stderr.readline() == (
            f"braid: waiting for 1 more of 2 nodes at 127.0.0.1:{port}; is it started, is the port open?\n"
        )
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.multiprocess
def test_run_tells_of_a_name_that_nobody_knows(script: Path, monkeypatch) -> None:
    monkeypatch.setenv("BRAID_STALL_NOTICE", "0.5")
    where = ("--master-addr", "nowhere.invalid", "--master-port", free_port())
    launcher = start("--nnodes", 2, "--node-rank", 1, *where, "--takeover", "", script)
    assert launcher.stderr is not None
    try:
        assert any(
            line == "braid: waiting for the other nodes, but this machine knows no address of 'nowhere.invalid'\n"
            for line in launcher.stderr
        )
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.multiprocess
def test_braids_options_behind_the_script_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text("import sys; print(sys.argv[1:], flush=True)")
    launcher = start("--nproc=1", tmp_path / "shows.py", "--takeover", "gloo")
    out, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 0, err
    assert "['--takeover', 'gloo']" in out
    assert "braid: --takeover stands behind the script, so the script gets it" in err


@pytest.mark.multiprocess
def test_a_port_in_use_is_one_line(script: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launcher = start("--nproc", 1, "--takeover", "", "--master-port", port, script)
        _, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 1
    assert err.splitlines()[-1] == f"braid: port {port} is in use at 127.0.0.1: give another --master-port"
    assert "Traceback" not in err


@pytest.mark.unit
@pytest.mark.parametrize("module", ["braid", "braid.cli"])
def test_it_runs_as_a_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=limit(200)
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: braid" in done.stdout


@pytest.mark.unit
def test_ctrl_c_during_the_imports_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "braid.cli", "info"]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what a shell has started may ignore it
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.multiprocess
def test_run_takes_a_module_and_ends_cleanly_on_ctrl_c(script: Path) -> None:
    launcher = start("-m", "train", "wait", cwd=script.parent, start_new_session=True)
    assert launcher.stdout is not None
    assert launcher.stdout.readline().startswith("0 1 ")
    time.sleep(0.2)
    os.killpg(launcher.pid, signal.SIGINT)
    _, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 130, err
    assert "torchrun" not in err
    assert "SignalException" not in err
    with pytest.raises(ProcessLookupError):
        os.killpg(launcher.pid, 0)


@pytest.mark.multiprocess
def test_ctrl_c_prints_no_tracebacks_of_ranks(script: Path) -> None:
    launcher = start("--nproc", 2, script, "torch", start_new_session=True)
    assert launcher.stdout is not None
    imported = 0
    while imported < 2 and (line := launcher.stdout.readline()):
        imported += line == "imported\n"
    os.killpg(launcher.pid, signal.SIGINT)
    _, err = launcher.communicate(timeout=limit(200))
    assert launcher.returncode == 130, err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err
