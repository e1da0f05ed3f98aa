# SPDX-License-Identifier: Apache-2.0
"""The table of settings: complete, and equal to its page; unknown names and wrong values are told."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from braid import _settings
from braid._settings import SETTINGS, unknown_names, wrong_values
from braid.cli import main
from slowness import limit

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
_READ = re.compile(r"""["'](BRAID_[A-Z0-9_]+)["']""")
_ROW = re.compile(r"^\| `(BRAID_\w+)` (\(\*\) )?\| (.*?) \| (.*?) \| .+ \|$", re.MULTILINE)


def sources() -> list[Path]:
    found = [*(ROOT / "csrc").rglob("*.cc"), *(ROOT / "csrc").rglob("*.h"), *(ROOT / "python").rglob("*.py")]
    return [path for path in found if path.name != "_settings.py"]


def test_the_table_has_all_that_sources_read_and_nothing_else() -> None:
    read = {name for path in sources() for name in _READ.findall(path.read_text())}
    assert read - SETTINGS.keys() - {_settings.STARTED_BY} == set()
    assert SETTINGS.keys() - read == set(), "nothing reads these"


def test_pages_name_settings_that_exist() -> None:
    build = re.compile(r"BRAID_(?:WITH_\w+|SANITIZE|UPDATE_GOLDEN|TEST_EVERY_FAULT)")  # of CMake and of the tests
    named = re.compile(r"\bBRAID_[A-Z0-9_]*[A-Z0-9]\b")
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        names = {name for name in named.findall(page.read_text()) if not build.fullmatch(name)}
        assert names <= SETTINGS.keys(), page


def test_the_page_shows_the_table() -> None:
    rows = _ROW.findall((ROOT / "docs" / "settings.md").read_text())
    shown = {name: (values, default, bool(mark)) for name, mark, values, default in rows}
    assert len(shown) == len(rows), "a setting is shown twice"
    table = {name: (each.values, each.default, each.equal) for name, each in SETTINGS.items()}
    assert all(default for _, default, _ in table.values()), "say what happens without"
    assert {name: without_marks(row) for name, row in shown.items()} == {
        name: without_marks(row) for name, row in table.items()
    }


def without_marks(row: tuple[str, str, bool]) -> tuple[str, str, bool]:
    """Return a row without marks; the page writes "1 to 16" for a whole number from 1 to 16."""
    values, default, equal = row
    return values.replace("`", "").removeprefix("a whole number from "), default.replace("`", ""), equal


def test_unknown_names_are_told_with_the_nearest() -> None:
    assert unknown_names(["BRAID_COMPRESION", "BRAID_ALGORITM", "BRAID_WINDOW", "PATH"]) == [
        "there is no setting BRAID_ALGORITM, so it is ignored; did you mean BRAID_ALGORITHM?",
        "there is no setting BRAID_COMPRESION, so it is ignored; did you mean BRAID_COMPRESSION?",
    ]
    assert unknown_names(["BRAID_XYZ"]) == [
        "there is no setting BRAID_XYZ, so it is ignored; docs/settings.md lists all"
    ]
    assert unknown_names(["BRAID_TEST_MARK", _settings.STARTED_BY]) == []


def test_how_to_stop_is_said_in_the_words_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_settings.STARTED_BY, raising=False)
    assert _settings.how_to_stop("BRAID_STRATEGY") == "unset BRAID_STRATEGY to stop"
    monkeypatch.setenv(_settings.STARTED_BY, "braid run")
    assert _settings.how_to_stop("BRAID_STRATEGY") == "leave out --strategy, or unset BRAID_STRATEGY, to stop"
    assert _settings.how_to_stop("BRAID_BALANCE") == "unset BRAID_BALANCE to stop"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("BRAID_BALANCE", "yes", "BRAID_BALANCE=yes: expected 0 or 1"),
        ("BRAID_QUIET", "2", "BRAID_QUIET=2: expected 0 or 1"),
        ("BRAID_PARAMETER_SERVERS", "65", "BRAID_PARAMETER_SERVERS=65: expected a whole number from 0 to 64"),
        ("BRAID_TAKEOVER", "glo", "BRAID_TAKEOVER=glo: there is no backend 'glo'; did you mean gloo?"),
        ("BRAID_TAKEOVER", "?", "BRAID_TAKEOVER=?: there is no backend '?'; give some of gloo, mpi, nccl,"),
        ("BRAID_COMPRESSION", "int7", 'BRAID_COMPRESSION=int7: codec "int7": there is none'),
    ],
)
def test_wrong_values_are_named(name: str, value: str, says: str) -> None:
    (line,) = wrong_values({name: value})
    assert line.startswith(says), line


def test_a_strategy_excludes_balanced_batches() -> None:
    both = {"BRAID_BALANCE": "1", "BRAID_STRATEGY": "local"}
    (line,) = wrong_values(both)
    assert line.startswith("BRAID_BALANCE=1 and BRAID_STRATEGY=local: ")
    assert line.endswith("; unset one of the two")
    assert wrong_values({**both, "BRAID_BALANCE": "0"}) == wrong_values({**both, "BRAID_STRATEGY": " "}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BRAID_BALANCE", "1"),
        ("BRAID_QUIET", " 0 "),
        ("BRAID_PARAMETER_SERVERS", ""),
        ("BRAID_TAKEOVER", "Gloo, nccl,none"),
        ("BRAID_COMPRESSION", "int8,head.*=exact"),
    ],
)
def test_right_values_are_taken(name: str, value: str) -> None:
    assert wrong_values({name: value}) == []


ONE_RANK = """
import braid
with braid.Communicator("file:///{folder}", rank=0, size=1) as comm:
    print(comm.size)
with braid.Communicator("file:///{folder}", rank=0, size=1, name="again") as comm:
    print(comm.size)
"""


def run_one_rank(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = ONE_RANK.format(folder=folder)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=limit(200),
    )


def test_a_communicator_tells_once_of_an_unknown_name(tmp_path: Path) -> None:
    done = run_one_rank(tmp_path, BRAID_WINDOWS="3")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line == "braid: there is no setting BRAID_WINDOWS, so it is ignored; did you mean BRAID_WINDOW?"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"BRAID_COMPRESSION": "int7"}, "BRAID_COMPRESSION=int7"),
        ({"BRAID_TAKEOVER": "glo"}, "did you mean gloo?"),
        ({"BRAID_PACING": "yes"}, "BRAID_PACING=yes: expected 0 or 1"),
        ({"BRAID_PORTS": "9-1"}, "BRAID_PORTS=9-1: expected two ports"),
    ],
)
def test_a_communicator_refuses_wrong_values(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    done = run_one_rank(tmp_path, **environment)
    assert done.returncode != 0
    assert says in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    "words", [["aggregator", "--join", "127.0.0.1:9"], ["serve", "--rendezvous", "127.0.0.1:9"]]
)
def test_commands_that_join_a_job_refuse_wrong_values_at_once(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRAID_BALANCE", "yes")
    assert main(words) == 2
    assert capsys.readouterr().err == "braid: BRAID_BALANCE=yes: expected 0 or 1\n"
