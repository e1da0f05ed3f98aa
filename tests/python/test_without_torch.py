# SPDX-License-Identifier: Apache-2.0
"""Where torch is not installed: communicators work, and all that needs torch says so in one sentence."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from slowness import limit

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = "import sys; sys.modules['torch'] = None\n"


def run_without_torch(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, timeout=limit(200)
    )


def test_a_communicator_needs_no_torch(tmp_path: Path) -> None:
    done = run_without_torch(
        "import braid, numpy\n"
        f"with braid.Communicator('file://{tmp_path}', rank=0, size=1) as comm:\n"
        "    print(comm.all_reduce(numpy.ones(3)))\n"
    )
    assert (done.stdout, done.stderr) == ("[1. 1. 1.]\n", "")


def test_a_parameter_service_needs_no_torch(tmp_path: Path) -> None:
    done = run_without_torch(
        "import braid, numpy\n"
        f"with braid.Parameters('file://{tmp_path}', elements=4, rule='add', rank=0, size=1) as service:\n"
        "    print(service.workers)\n"
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("name", ["hooks", "strategies", "data"])
@pytest.mark.parametrize("code", ["import braid; braid.{}", "import braid.{}", "from braid import {}"])
def test_what_needs_torch_says_so(name: str, code: str) -> None:
    done = run_without_torch(code.format(name))
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: braid.{name} needs torch: install torch 2.11 or newer, with pip install torch "
        "or as braid's extra [torch]"
    )


@pytest.mark.parametrize("words", [["run", "x.py"], ["build"]])
def test_commands_that_need_torch_say_so(words: list[str]) -> None:
    done = run_without_torch(f"from braid.cli import main; sys.exit(main({words!r}))")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("braid: ")
    assert "needs torch" in line
    assert "extra [torch]" in line


def test_commands_that_need_none_work() -> None:
    done = run_without_torch("from braid.cli import main; sys.exit(main(['info']))")
    assert done.returncode == 0, done.stderr


def test_torch_is_an_extra_and_no_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any(each.startswith("torch") for each in project["dependencies"])
    assert extras["torch"] == ["torch>=2.11"]
    assert "torch>=2.11" in extras["dev"], "make setup installs these"
