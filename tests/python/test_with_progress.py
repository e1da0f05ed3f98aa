# SPDX-License-Identifier: Apache-2.0
"""tools/with_progress.py: what the screen shows of a long command."""

from pathlib import Path

import pytest
import with_progress

pytestmark = pytest.mark.unit


def test_it_tells_the_newest_step_and_the_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "build" / "log"
    go_on = tmp_path / "go on"
    script = f'echo "[3/7] compiling"; until test -e "{go_on}"; do sleep 0.02; done'

    class Screen:
        """Lets the command go on once a step was told."""

        def write(self, text: str) -> None:
            told.append(text)
            if "[3/7]" in text:
                go_on.touch()

        def flush(self) -> None:
            pass

    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", Screen())
        assert with_progress.run("building", log, ["sh", "-c", script], every_s=0.05, end="\n") == 0
    assert "".join(told).splitlines()[-1].startswith("building: done after ")
    assert log.read_text() == "[3/7] compiling\n"
    assert capfd.readouterr() == ("", "")


def test_a_failure_shows_its_last_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", "seq 1 100; exit 3"]
    assert with_progress.run("building", tmp_path / "log", command, every_s=100, end="\n") == 3
    out, err = capfd.readouterr()
    assert out.startswith("building: failed after ")
    assert err.splitlines() == [str(number) for number in range(41, 101)]
