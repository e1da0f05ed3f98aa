# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, what it refuses, and what it leaves to the script."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from braid import _core, _machine, cli
from braid.cli import build, run

SCRIPT = """
import os, sys, time
rank = int(os.environ["RANK"])
environment = [os.environ.get(name) for name in ("WORLD_SIZE", "OMP_NUM_THREADS", "BRAID_TAKEOVER")]
# In one piece: the ranks share one pipe.
os.write(1, f"{' '.join(map(str, [rank, *environment, sys.argv[1:]]))}\\n".encode())
match sys.argv[1:]:
    case ["fail"] if rank == 1: sys.exit(3)
    case ["die"] if rank == 1: os.kill(os.getpid(), 9)
    case ["wait"]: time.sleep(120)
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


@pytest.mark.unit
def test_info_as_a_table(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(_machine, "capabilities", lambda: [_machine.Capability("MPI", False, "try [mpi]")])
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"braid +{re.escape(_core.version)} \({_core.build_type}", out)
    assert re.search(r"MPI +no: try \[mpi\]", out)


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
        (["run"], "which script?"),
        (["run", "nowhere.py"], "no such script: nowhere.py"),
        (["run", "-m", "nowhere.module"], "no such module: nowhere.module"),
        (["run", "--no-python", "nowhere-to-be-found"], "no such program: nowhere-to-be-found"),
        (["run", "--nproc", "few", "x.py"], "--nproc: "),
        (["run", "--nproc", "0", "x.py"], "--nproc: expected at least 1, got 0"),
        (["run", "--nnodes", "2:1", "x.py"], "--nnodes: expected at least 1, got 2:1"),
        (["run", "--nnodes", "1:2:3", "x.py"], "--nnodes: "),
        (["run", "--takeover", "glo", "x.py"], "--takeover: unknown backend 'glo'"),
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
def test_help_lists_the_commands(capsys) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("info", "build", "run"))


@pytest.mark.unit
def test_words_for_what_was_taken_over() -> None:
    assert run._list(["gloo", "mpi", "none"]) == "gloo, mpi and the default backend"
    assert run._list(["nccl"]) == "nccl"


@pytest.mark.multiprocess
def test_run_leaves_the_scripts_arguments_alone(script: Path) -> None:
    launcher = start("--nproc", 2, "--max-restarts=0", script, "--nproc", "9", "--help", "--", "-m", "x")
    out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, err
    arguments = "['--nproc', '9', '--help', '--', '-m', 'x']"
    assert sorted(out.splitlines()) == [f"{rank} 2 1 gloo,nccl,mpi,none {arguments}" for rank in range(2)]
    assert "braid: starting 2 ranks; gloo, nccl, mpi and the default backend run on braid\n" in err
    assert "*****" not in err


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("action", "code", "line"), [("fail", 3, "ended with exit code 3"), ("die", 137, "was killed by SIGKILL")]
)
def test_run_passes_the_exit_code_on(script: Path, action: str, code: int, line: str) -> None:
    launcher = start("--nproc=2", "--takeover", "", script, action)
    out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == code, err
    assert out.splitlines()[0].endswith(f"1  ['{action}']")
    assert err.splitlines()[-1].startswith("braid: rank 1 (process ")
    assert err.splitlines()[-1].endswith(line)


@pytest.mark.multiprocess
def test_run_takes_a_module_and_ends_cleanly_on_ctrl_c(script: Path) -> None:
    launcher = start("-m", "train", "wait", cwd=script.parent, start_new_session=True)
    assert launcher.stdout is not None
    assert launcher.stdout.readline().startswith("0 1 ")
    time.sleep(0.2)
    os.killpg(launcher.pid, signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, err
    assert "torchrun" not in err
    assert "SignalException" not in err
    with pytest.raises(ProcessLookupError):
        os.killpg(launcher.pid, 0)
