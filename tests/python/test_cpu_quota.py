# SPDX-License-Identifier: Apache-2.0
"""Limits of processor time: set by the kernel here, and in files as other kernels and containers show them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from braid import _cpu_quota
from braid._cpu_quota import cores_to_use, cpu_quota
from slowness import limit

FIRST, SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
SHOW = "from braid._cpu_quota import cores_to_use, cpu_quota; print(cpu_quota(), cores_to_use())"


@contextlib.contextmanager
def limited(period_us: int, quota_us: int) -> Iterator[Path]:
    """Make a control group with a limit; skip the test where that is not allowed."""
    is_first = (FIRST / "cpu.cfs_quota_us").exists() or FIRST.is_dir()
    group = (FIRST if is_first else SECOND) / f"braid-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            if is_first:
                (group / "cpu.cfs_period_us").write_text(str(period_us))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        except OSError as error:
            pytest.skip(f"control groups cannot limit processor time here: {error}")
        yield group
    finally:
        group.rmdir()


def test_a_process_in_a_group_with_a_limit() -> None:
    with limited(100_000, 75_000) as group:

        def enter() -> None:
            (group / "cgroup.procs").write_text("0")

        shown = subprocess.run(
            [sys.executable, "-c", SHOW],
            preexec_fn=enter,
            capture_output=True,
            text=True,
            timeout=limit(60),
            check=True,
        )
    outer = cpu_quota() or 0.75
    assert shown.stdout.split() == [str(min(outer, 0.75))] * 2


def test_cores_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = len(os.sched_getaffinity(0))
    for quota, cores in ((None, usable), (0.5, 0.5), (usable + 0.5, usable)):
        monkeypatch.setattr(_cpu_quota, "cpu_quota", lambda quota=quota: quota)
        assert cores_to_use() == cores


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("group", "top", "limits", "cores"),
    [
        pytest.param("/", "/", {"": "150000 100000"}, 1.5, id="a container that sees its own group as the top"),
        pytest.param("/", "/", {"": "max 100000"}, None, id="no limit"),
        pytest.param(
            "/job.slice/step/task",
            "/",
            {"job.slice/step/task": "400000 100000", "job.slice/step": "max 100000", "job.slice": "20000 10000"},
            2.0,
            id="the tightest of all groups above",
        ),
        pytest.param(
            "/docker/abc/worker",
            "/docker/abc",
            {"": "300000 100000", "worker": "50000 100000"},
            0.5,
            id="a path that begins above the group that is mounted",
        ),
        pytest.param("/../other", "/docker/abc", {"": "300000 100000"}, 3.0, id="a path outside of that group"),
        pytest.param("/../other", "/", {"": "300000 100000"}, 3.0, id="a path above the top"),
        pytest.param("/a", "/", {"a": "1 1000000"}, 1e-6, id="a tiny limit"),
        *[
            pytest.param("/", "/", {"": odd}, None, id=f"odd:{odd}")
            for odd in ("", "0 100000", "-5 100000", "100000 0", "100000", "x y", "nan 1", "1 2 3")
        ],
    ],
)
def test_the_second_version(
    tmp_path: Path, group: str, top: str, limits: dict[str, str], cores: float | None
) -> None:
    write(tmp_path / "proc/self/cgroup", f"0::{group}\n")
    write(
        tmp_path / "proc/self/mountinfo",
        "24 1 8:1 / / rw - ext4 /dev/root rw\n\n24 x\n"
        f"29 22 0:26 {top} /sys/fs/cgroup\\040x rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    )
    write(tmp_path / "cpu.max", "1 100000")  # not of any group
    for path, text in limits.items():
        write(tmp_path / "sys/fs/cgroup x" / path / "cpu.max", text)
    assert cpu_quota(tmp_path) == cores


def test_the_first_version(tmp_path: Path) -> None:
    write(
        tmp_path / "proc/self/cgroup",
        "9:name=systemd:/\n\n4:cpuset:/x\n2:cpu,cpuacct:/docker/abc\n0::/x\n",
    )
    write(
        tmp_path / "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n",
    )
    for group, quota in (("docker/abc", "250000"), ("", "-1")):
        write(tmp_path / "sys/fs/cgroup/cpu" / group / "cpu.cfs_quota_us", quota)
        write(tmp_path / "sys/fs/cgroup/cpu" / group / "cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == 2.5


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
