# SPDX-License-Identifier: Apache-2.0
"""The teams of a run, and the folder that they work in; both end with the run, however it ends."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from types import FrameType

from braid._bench.ranks.team import Recipe, Team, TeamError

_SHARED = Path("/dev/shm")
_SEGMENT_PREFIXES = ("Intel_MPI_", "mpich_shm_", "sm_segment.", "vader_segment.")


@contextlib.contextmanager
def teams_for(
    recipes: list[Recipe], ranks: int, modules: list[str]
) -> Iterator[tuple[dict[str, Team], dict[str, str]]]:
    """Start a team for each recipe; give those that came up, and why others did not. They end with the block.

    Args:
        recipes: one per contestant.
        ranks: how many each has.
        modules: what forked ranks need imported; it is done once.
    """
    _start_fork_server(modules)
    skipped: dict[str, str] = {}
    teams: dict[str, Team] = {}
    with workplace() as place, contextlib.ExitStack() as stack:
        for recipe in recipes:
            try:
                teams[recipe.name] = stack.enter_context(Team(recipe, ranks, place))
            except TeamError as error:
                skipped[recipe.name] = str(error)
        yield teams, skipped


def _start_fork_server(modules: list[str]) -> None:
    multiprocessing.get_context("forkserver").set_forkserver_preload([*modules, "braid._bench.ranks.imported"])
    resource_tracker.ensure_running()  # the server's start would do it, and unblock the signal
    # Ctrl-C is for the coordinator; the server must not be killed by it while it imports.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Give a folder, in memory where that can be, for sockets, stores and segments; it goes with what is in it.

    In the block SIGTERM and SIGHUP raise, as SIGINT does, so that all is cleaned up after them too. Segments that
    an MPI of ours left elsewhere, because it was stopped while it started, go as well.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    parent = _SHARED if os.access(_SHARED, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"braid-bench-{os.getpid()}-", dir=parent))
    segments = _segments()
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(folder, ignore_errors=True)
        _remove_unused(_segments() - segments)


def _segments() -> set[Path]:
    return {path for prefix in _SEGMENT_PREFIXES for path in _SHARED.glob(f"{prefix}*")}


def _remove_unused(segments: set[Path]) -> None:
    """Remove those that no process has mapped: others of this user may have come from another job."""
    if not segments:
        return
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines()}
    for segment in segments:
        with contextlib.suppress(OSError):
            if segment.stat().st_uid == os.getuid() and str(segment) not in mapped:
                segment.unlink()
