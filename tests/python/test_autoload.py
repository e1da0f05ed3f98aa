# SPDX-License-Identifier: Apache-2.0
"""Registration with torch: there after ``import torch``, light, and never in the way."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from braid._torch import autoload, backend, devices

pytestmark = pytest.mark.unit


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_torch_registers_and_loads_nothing_else() -> None:
    code = """
import sys, torch
assert "BRAID" in torch.distributed.Backend._plugins
print(sorted(name for name in sys.modules if name.startswith("braid")))
"""
    loaded = [
        "braid",
        "braid._torch",
        "braid._torch.autoload",
        "braid._torch.backend_name",
        "braid._torch.coalescing",
        "braid._torch.devices",
    ]
    assert run_python(code).strip() == repr(loaded)


def test_import_braid_registers_where_autoloading_is_off() -> None:
    code = "import torch; assert 'BRAID' not in torch.distributed.Backend._plugins; import braid; {check}"
    check = "assert 'BRAID' in torch.distributed.Backend._plugins"
    run_python(code.format(check=check), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    run_python(f"import braid, torch; {check}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_import_braid_alone_does_not_import_torch() -> None:
    assert (
        run_python("import sys, braid; print(braid.__version__, 'torch' in sys.modules)").strip().endswith("False")
    )


@pytest.mark.parametrize(
    ("environment", "error", "code", "says"),
    [
        ({"BRAID_STARTED_BY": "braid run"}, "KeyboardInterrupt", -signal.SIGINT, ""),
        pytest.param(
            {"BRAID_STARTED_BY": "braid run"}, "ValueError('x')", 1, "ValueError: x", marks=pytest.mark.long
        ),
        pytest.param(
            *(
                {"BRAID_STARTED_BY": "braid run", "BRAID_DEBUG": "1"},
                "KeyboardInterrupt",
                -signal.SIGINT,
                "Traceback",
            ),
            marks=pytest.mark.long,
        ),
        ({}, "KeyboardInterrupt", -signal.SIGINT, "Traceback"),
    ],
)
def test_only_braid_run_hides_the_traceback_of_ctrl_c(
    environment: dict[str, str], error: str, code: int, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import torch; raise {error}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert says in done.stderr
    assert says or done.stderr == ""


def test_registers_for_the_devices_that_can_be_there_and_keeps_the_defaults() -> None:
    autoload.register()
    autoload.register()
    assert dist.Backend.backend_capability["braid"] == devices.at_first()
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"
    assert dist.Backend.backend_list.count("braid") == 1


@pytest.mark.parametrize(
    ("is_compiled", "hip", "has_driver", "expected"),
    [
        (False, None, True, ["cpu"]),
        (True, None, False, ["cpu"]),
        (True, None, True, ["cpu", "cuda"]),
        (True, "6.4", False, ["cpu", "cuda"]),
    ],
)
def test_cuda_is_among_the_devices_unless_there_cannot_be_one(
    monkeypatch, is_compiled: bool, hip: str | None, has_driver: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: is_compiled)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(devices, "_has_driver", lambda: has_driver)
    assert devices.at_first() == expected
    assert devices.offered()[:2] == ("cpu", "cuda")  # a script for "cpu:gloo,cuda:nccl" gets the plain name


def test_never_raises_and_says_why_only_when_asked(monkeypatch, capsys) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(dist.Backend, "_plugins", {})
    monkeypatch.setattr(dist.Backend, "register_backend", refuse)
    autoload.register()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("BRAID_DEBUG", "1")
    autoload.register()
    assert capsys.readouterr().err == "braid: the backend was not registered: RuntimeError: not today\n"


@pytest.mark.parametrize(("given", "expected"), [([], [0, 1, 2]), ([4, 0, 7], [4, 0, 7])])
def test_hands_the_groups_facts_to_the_adapter(monkeypatch, given: list[int], expected: list[int]) -> None:
    adapter = SimpleNamespace(create_backend=lambda *args: args, on_derived=lambda call: None)
    monkeypatch.setattr(backend, "load_adapter", lambda: adapter)
    monkeypatch.setattr(backend.ctrl_c, "watch", lambda adapter: None)
    options = SimpleNamespace(
        store="store",
        group_rank=1,
        group_size=3,
        timeout=timedelta(seconds=142.199997),  # torch keeps 142.2 as a 32-bit float
        group_id="7",
        global_ranks_in_group=given,
    )
    names = ("BALANCE", "COMPRESSION", "LOCAL_LEG", "PARAMETER_SERVERS", "STRATEGY")
    equal = "" if given else "".join(f"BRAID_{name}=\t" for name in names)
    made = autoload._create(options, pg_options=object())  # type: ignore[arg-type]
    assert made == ("store", 1, 3, timedelta(seconds=142.2), "7", expected, "braid", None, None, equal)
