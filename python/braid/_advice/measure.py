# SPDX-License-Identifier: Apache-2.0
"""Measures the steps of a training script: how long one takes alone, and how many bytes its gradients have.

``python -m braid._advice.measure OUT STEPS SCRIPT [ARGUMENTS]`` runs a script as the only rank of a job. Hooks on
all optimizers of torch count its steps. After enough of them the process ends, wherever the script is.
"""

import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SKIPPED = 3  # first steps, which allocate and compile
_VARIABLES = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
}


class MeasureError(Exception):
    """The script could not be measured; the text says why."""


@dataclass(frozen=True)
class Measured:
    """Steps of a script on one worker.

    Attributes:
        step_s: the median.
        spread: (third - first quartile) / median.
        steps: how many were measured.
        gradient_bytes: of all parameters that had a gradient, as float32.
    """

    step_s: float
    spread: float
    steps: int
    gradient_bytes: int


def measure(script: Path, arguments: Sequence[str], steps: int, timeout_s: float) -> Measured:
    """Run a script alone until it has made so many steps.

    Raises:
        MeasureError: it failed, ended too early, took no step of an optimizer, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="braid-advise-") as folder:
        out = Path(folder) / "steps.json"
        command = [sys.executable, "-m", __name__, str(out), str(steps), str(script), *arguments]
        environment = {**os.environ, **_VARIABLES, "MASTER_PORT": "0"}  # the only rank takes any
        environment.pop("BRAID_STRATEGY", None)
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise MeasureError(f"{script} made fewer than {steps} steps in {timeout_s:g} s") from None
        if done.returncode != 0:
            last = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
            raise MeasureError(f"{script} failed with exit code {done.returncode}: {last}")
        if not out.exists():
            raise MeasureError(
                f"{script} ended before an optimizer of torch had made {_SKIPPED + 3} steps: give it more data"
            )
        found = json.loads(out.read_text())
    times = found["times_s"]
    first, median, third = statistics.quantiles(times, n=4, method="inclusive")
    return Measured(median, (third - first) / median, len(times), found["gradient_bytes"])


class _Steps:
    """Counts steps, and ends the process after the last."""

    def __init__(self, out: Path, wanted: int) -> None:
        self._out, self._wanted = out, wanted
        self._ends: list[float] = []
        self._bytes: dict[int, int] = {}

    def after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._ends.append(time.perf_counter())
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._bytes[id(parameter)] = 4 * parameter.numel()
        if len(self._ends) > _SKIPPED + self._wanted:
            self.write()
            os._exit(0)

    def write(self) -> None:
        ends = self._ends[_SKIPPED:]
        times = [later - earlier for earlier, later in itertools.pairwise(ends)]
        if len(times) >= 2:
            said = {"times_s": times, "gradient_bytes": sum(self._bytes.values())}
            self._out.write_text(json.dumps(said))


def _main(out: str, steps: str, script: str, *arguments: str) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted = _Steps(Path(out), int(steps))
    register_optimizer_step_post_hook(counted.after_step)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        counted.write()  # a short script: better few steps than none


if __name__ == "__main__":
    _main(*sys.argv[1:])
