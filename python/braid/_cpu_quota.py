# SPDX-License-Identifier: Apache-2.0
"""The processor time that control groups leave to this process: containers have limits, as 1.5 cores."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_ESCAPED = re.compile(r"\\([0-7]{3})")


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Read the tightest limit among those of the process's control group and of the groups above it.

    Args:
        root: The folder that has ``proc`` and ``sys``.

    Returns:
        Cores, above 0, as 0.5 or 4.0. None if no group sets a limit, or if the kernel does not say.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files; versions 1 and 2.
    """
    limits = [limit for folder in _folders(root) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def cores_to_use() -> float:
    """Return how many cores this process can use at a time: less than one where a small quota limits it."""
    usable = len(os.sched_getaffinity(0))
    return min(usable, cpu_quota() or usable)


def _folders(root: Path) -> Iterator[Path]:
    """The folders of the process's groups that may limit processor time, each with the ones above it."""
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):  # "5:cpu,cpuacct:/docker/abc", in version 2 "0::/docker/abc"
        _, controllers, group, *_ = [*line.split(":", 2), "", ""]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for version, top, mounted_at in mounts:
            if version != (1 if controllers else 2):
                continue
            # A container may see its own group as the top of the tree, but its path as the machine's. "/.." leads
            # out of the tree that it sees.
            is_seen = Path(group).is_relative_to(top) and ".." not in group.split("/")
            below = Path(group).relative_to(top) if is_seen else Path()
            at = root / mounted_at.lstrip("/")
            yield from (at / part for part in (below, *below.parents))
            break


def _mounts(root: Path) -> Iterator[tuple[int, str, str]]:
    """The trees of groups that may limit processor time: version, the group on top, where it is mounted."""
    # Lines like "32 31 0:29 TOP MOUNTED_AT rw,relatime shared:4 - cgroup cgroup rw,cpu".
    for line in _lines(root / "proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        words, (type_, _, options, *_) = place.split(), [*kind.split(), "", "", ""]
        is_limiting = type_ == "cgroup2" or (type_ == "cgroup" and "cpu" in options.split(","))
        if is_limiting and len(words) > 4:
            top, mounted_at = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), word) for word in words[3:5])
            yield 2 if type_ == "cgroup2" else 1, top, mounted_at


def _limit(folder: Path) -> float | None:
    """Read the limit of one group, in cores. "max" and -1 are no limits."""
    words = [
        word
        for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        for line in _lines(folder / name)
        for word in line.split()
    ]
    if len(words) != 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
        return None
    return int(words[0]) / int(words[1])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
