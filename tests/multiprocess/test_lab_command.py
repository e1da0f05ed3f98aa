# SPDX-License-Identifier: Apache-2.0
"""``braid lab``: the command. It measures nothing, so other tests may run beside it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from braid.cli import main
from braid.lab import unavailable
from braid.lab.namespaces import children_of
from slowness import limit
from waiting import eventually

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]


@pytest.mark.long
def test_the_command_passes_output_and_exit_codes_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--hosts", "2x1gbit", "--", "sh", "-c", "echo rank $RANK on $(hostname)"]) == 0
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "rank 0 on h0", "rank 1 on h1"]
    assert main(["lab", "--hosts", "2x1gbit", "--", "sh", "-c", "exit $((RANK * 7))"]) == 7
    assert "rank 1 on h1 ended with exit code 7" in capfd.readouterr().err
    # Rank 2 ends first, and the lab ends rank 0 for it, ten seconds later. Rank 1 ends in the middle between.
    does = "case $RANK in 0) exec sleep 100;; 1) sleep 5; exit 3;; 2) kill -9 $$;; esac"
    assert main(["lab", "--hosts", "3x1gbit", "--", "sh", "-c", does]) == 137
    assert capfd.readouterr().err.splitlines() == [
        "braid: rank 2 on h2 was killed by SIGKILL",
        "braid: rank 1 on h1 ended with exit code 3",
    ]
    code = main(
        ["lab", "--hosts", "2x1gbit", "--at", "0.1 h1 kill", "--at", "0 h0 rate 10mbit", "--", "sleep", "12"]
    )
    error = capfd.readouterr().err
    assert code != 0
    assert "0 s: h0 rate 10mbit" in error
    assert "0.1 s: h1 kill" in error


GLOO_SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
print(type(backend).__module__, dist.get_backend(), tensor[0].item(), flush=True)
dist.barrier()
os._exit(0)  # Gloo's threads may abort a process at its end
"""


@pytest.mark.parametrize(
    ("options", "module"), [pytest.param([], "torch", marks=pytest.mark.long), (["--takeover", "gloo"], "braid")]
)
def test_takeover_carries_a_gloo_script(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    module: str,
) -> None:
    for name in ("BRAID_TAKEOVER", "BRAID_STARTED_BY", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        monkeypatch.setenv(name, "")  # the command sets them in this process
        monkeypatch.delenv(name)
    script = tmp_path / "train.py"
    script.write_text(GLOO_SCRIPT)
    assert main(["lab", "--hosts", "2x1gbit", *options, "--", sys.executable, str(script)]) == 0
    out, err = capfd.readouterr()
    assert [line.split(".")[0] for line in out.splitlines()] == [module] * 2, out
    assert all(line.endswith(" gloo 2.0") for line in out.splitlines()), out
    assert ('runs the script\'s backend "gloo" (taken over; leave out --takeover to stop)' in err) == (
        module == "braid"
    ), err


def test_takeover_of_a_name_that_no_backend_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--takeover", "glo", "--", "true"]) == 2
    assert "--takeover: there is no backend 'glo'; did you mean gloo?" in capsys.readouterr().err


def test_an_interrupted_command_leaves_nothing() -> None:
    command = [
        sys.executable,
        "-m",
        "braid.cli",
        "lab",
        "--hosts",
        "2x1gbit",
        "--",
        "sh",
        "-c",
        "echo up; sleep 100",
    ]
    # Where the tests run in the background SIGINT is ignored, and children inherit that.
    owner = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    assert owner.stdout is not None
    assert [owner.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    children = children_of(owner.pid)
    assert len(children) >= 5  # a switch, two hosts, two ranks
    owner.send_signal(signal.SIGINT)
    assert owner.wait(limit(30)) == 130
    eventually(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()], "the end of its processes")
