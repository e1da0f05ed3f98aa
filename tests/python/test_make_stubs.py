# SPDX-License-Identifier: Apache-2.0
"""The stub of the core: spelled alike everywhere, complete, and that of the built core."""

from pathlib import Path

import make_stubs
import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
GENERATED = '''
"""
A core.
"""
from __future__ import annotations
import collections.abc
import numpy
import typing
__all__: list[str] = ['Table', 'count', 'version']
class Table:
    def add(self, arg0: numpy.ndarray, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Adds.
        """
    def fill(self, residual: typing.Any, scale: typing.SupportsFloat = 1.0) -> dict:
        ...
    @property
    def name(self) -> str:
        ...
class Empty:
    pass
def count(sizes: collections.abc.Sequence[typing.SupportsInt] = []) -> list[dict]:
    """
    Counts.
    """
version: str = '0.1.0'
'''
EXPECTED = """\
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

{definitions}
version: str

def count(sizes: Sequence[int] = ()) -> list[dict[str, Any]]: ...

class Empty: ...

class Table:
    def add(self, array: _Array, index: int, /) -> None: ...
    def fill(self, residual: _Array | None, scale: float = 1.0) -> dict[str, Any]: ...
    @property
    def name(self) -> str: ...
"""


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_stubs, "NAMES", {"Table.add": ("array", "index")})
    monkeypatch.setattr(make_stubs, "TYPES", {"residual": "_Array | None"})


@pytest.mark.usefixtures("tables")
def test_a_stub_is_spelled_alike_everywhere() -> None:
    made = make_stubs.stub_of(GENERATED)
    definitions = made[made.index("_Array: ") : made.index("version: ")]
    assert made.partition("\n")[0] == "# SPDX-License-Identifier: Apache-2.0"
    assert made.endswith(EXPECTED.format(definitions=definitions.rstrip("\n") + "\n"))
    # Another order in C++, another build, another pybind11 and another Python make the same.
    table, rest = GENERATED.split("class Empty:")
    head, table = table.split("class Table:")
    assert make_stubs.stub_of(f"{head}class Empty:{rest}class Table:{table}") == made
    other = GENERATED.replace("'0.1.0'", "'0.2.0'").replace("typing.SupportsFloat", "float").replace("A core", "B")
    assert make_stubs.stub_of(other) == made


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "sizes: collections.abc.Sequence[typing.SupportsInt]",
            "sizes: typing.Any",
            "count: .* no type for sizes",
        ),
        (") -> list[dict]", ") -> typing.Any", "count: .* no type for count"),
        ("version: str", "version: tuple", "braid._core: .* no type for version"),
        ("arg0: numpy.ndarray, ", "", "Table.add: give its 1 parameters names"),
        ("residual: typing.Any, ", "", "no use for residual"),
        ("arg0: numpy.ndarray, arg1", "index", "no use for Table.add"),
    ],
)
def test_what_the_tables_lack_is_told(old: str, new: str, told: str) -> None:
    assert GENERATED.count(old) == 1
    with pytest.raises(make_stubs.StubError, match=told):
        make_stubs.stub_of(GENERATED.replace(old, new))


def test_the_stub_is_that_of_the_built_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pybind11_stubgen", reason="pybind11-stubgen is not installed: run `make setup`")
    assert make_stubs.main(["--check"], ROOT / make_stubs.STUB) == 0, capsys.readouterr().out
    changed = tmp_path / "_core.pyi"
    assert make_stubs.main(["--check"], changed) == 1
    assert make_stubs.main([], changed) == 0
    text = changed.read_text()
    assert text == (ROOT / make_stubs.STUB).read_text()
    changed.write_text(text.replace("def dtypes() -> list[str]: ...", "def dtypes() -> list[int]: ..."))
    capsys.readouterr()
    assert make_stubs.main(["--check"], changed) == 1
    said = capsys.readouterr().out.splitlines()
    assert "-def dtypes() -> list[int]: ..." in said
    assert "+def dtypes() -> list[str]: ..." in said
    assert said[-1] == make_stubs.ADVICE
