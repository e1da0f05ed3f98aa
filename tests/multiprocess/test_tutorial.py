# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tutorial.md run, and say what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from braid import _core
from braid.lab import unavailable
from slowness import asserts_speed, limit

pytestmark = [
    pytest.mark.long,
    pytest.mark.alone,
    pytest.mark.multiprocess,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text()
COMMANDS = re.findall(r"^```\n\$ (.+)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
ALGORITHMS = re.compile(
    r"\b(?:" + "|".join(sorted(_core.algorithms("all_reduce"), key=len, reverse=True)) + r")\b"
)


def key(line: str) -> str:
    """Return what two runs have in common: the beginning of a sentence, without numbers and algorithms."""
    plain = re.sub(r"\d[\d.]*", "#", ALGORITHMS.sub("ALGORITHM", " ".join(line.split())))
    return re.split(r"[:;,] ", plain, maxsplit=1)[0]


def is_compared(line: str) -> bool:
    return line not in ("", "...") and not re.match(r"[│ ]", line)  # tables show measurements


def is_of_gloo(command: str) -> bool:
    return "braid lab" in command and "train.py" in command and "--takeover" not in command


def ms_a_step(said: str) -> float:
    return float(re.findall(r"(\d+) ms a step", said)[-1])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all commands in one folder, one after the other, as a reader does."""
    folder = tmp_path_factory.mktemp("tutorial")
    (script,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "train.py").write_text(script)
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = {}
    for command, _ in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": place},
            capture_output=True,
            text=True,
            timeout=limit(200),
            check=False,
        )
        found[command] = done.stdout + done.stderr
        aborted = is_of_gloo(command) and "step 20: loss" in done.stdout  # at its end: see braid._rivals
        assert (done.returncode != 0 and not aborted) == ("kill" in command), found[command]
    return found


# One test, since the commands take four minutes: two would run them twice, on two workers.
@pytest.mark.timing
@pytest.mark.timeout(900)
def test_every_command_says_what_the_page_shows(outputs: dict[str, str]) -> None:
    assert len(COMMANDS) == 10
    for command, shown in COMMANDS:
        said = {key(line) for line in outputs[command].splitlines()}
        missing = [line for line in shown.splitlines() if is_compared(line) and key(line) not in said]
        assert not missing, (command, missing, outputs[command])
    gloo, braid, int8, local = (
        ms_a_step(said)
        for command, said in outputs.items()
        if "lab" in command and "train.py" in command and "kill" not in command
    )
    assert not asserts_speed() or (braid < 0.9 * gloo and int8 < 0.5 * braid and local < 0.5 * braid)
    losses = [
        re.findall(r"step 20: loss ([\d.]+)", said)[0]
        for command, said in outputs.items()
        if "lab" in command and "train.py 20" in command and "STRATEGY" not in command and "kill" not in command
    ]
    assert len(set(losses)) == 1, "Gloo and braid train alike"
