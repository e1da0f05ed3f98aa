# SPDX-License-Identifier: Apache-2.0
"""Makes python/braid/_core.pyi from the built module braid._core; with --check, compares only.

pybind11-stubgen reads signatures from the module. Here they are sorted and spelled alike for all machines and all
versions of Python and pybind11. The tables below add the types and names that pybind11 does not know.
"""

import ast
import difflib
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODULE = "braid._core"
STUB = Path("python/braid/_core.pyi")
ADVICE = f"{STUB} differs from the built core: run `make stubs` and commit the file."

_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_stubs.py; `make types` compares. Change csrc/python, or the tables of that tool.
"""

_DEFINITIONS = """\
_Array: typing.TypeAlias = numpy.typing.NDArray[typing.Any]
_Method = typing.TypeVar("_Method", bound=collections.abc.Callable[..., typing.Any])

class _Store(typing.Protocol):
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout_s: float) -> bytes: ...
"""

# Expressions of the generator -> those of the stub.
_SPELLINGS = [
    # What pybind11 converts to an integer depends on its version. Callers pass integers.
    (r"typing\.SupportsInt( \| typing\.SupportsIndex)?", "int"),
    (r"typing\.SupportsFloat( \| typing\.SupportsIndex)?", "float"),
    (r"\bnumpy\.ndarray\b", "_Array"),
    (r"\bnumpy\.dtype\[typing\.Any\]", "numpy.typing.DTypeLike"),
    (r"\bcollections\.abc\.Buffer\b", "typing_extensions.Buffer"),  # Python 3.11 has no other
    (r"\bdict\b(?!\[)", "dict[str, typing.Any]"),
]

_BLOCKS = ("collective", "dtype", "op", "root", "input", "input_counts", "output", "output_counts")

# Functions whose parameters have no names in C++ -> names for them. They stay positional.
NAMES: dict[str, tuple[str, ...]] = {
    "Communicator.abort": ("reason",),
    "Communicator.recv": ("array", "source", "tag"),
    "Communicator.run": _BLOCKS,
    "Communicator.send": ("array", "to", "tag"),
    "Communicator.set_timeout": ("timeout_s",),
    "Communicator.start": _BLOCKS,
    "quick": ("method",),
}

# Parameters, results and attributes that are plain objects in C++ -> their types.
TYPES: dict[str, str] = {
    "assumed_between": "tuple[float, float]",
    "backup": "_Array | None",
    "based_on": "ParameterRequest | None",
    "door_store": "_Store",
    "input": "_Array | None",
    "method": "_Method",
    "output": "_Array | None",
    "quick": "_Method",
    "residual": "_Array | None",
    "result": "_Array | None",
    "say": "collections.abc.Callable[[str], typing.Any]",
    "sent": "_Array | None",
    "servers": "_Store | None",
    "stopped": "collections.abc.Callable[[], bool]",
    "store": "_Store",
}
_UNTYPED = {"typing.Any", "collections.abc.Callable", "tuple", "list"}


class StubError(Exception):
    """A stub cannot be made; the message says why, and what to do."""


class _Writer:
    """Turns the generator's module into ours. Remembers which rows of the tables were used."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def typed(self, name: str, where: str, annotation: ast.expr | None) -> ast.expr:
        """Return a type: the generator's, or the table's where that says nothing."""
        if annotation is not None and ast.unparse(annotation) not in _UNTYPED:
            return annotation
        if name not in TYPES:
            raise StubError(f"{where}: pybind11 knows no type for {name}: add it to TYPES in tools/make_stubs.py")
        self.used.add(name)
        return ast.parse(TYPES[name], mode="eval").body

    def function(self, function: ast.FunctionDef, owner: str) -> ast.FunctionDef:
        """Return a function without docstring, with names and types for all parameters."""
        where = f"{owner}.{function.name}" if owner else function.name
        arguments = function.args
        own = [one for one in arguments.args if one.arg != "self"]
        if any(re.fullmatch(r"arg\d+", one.arg) for one in own):
            names = NAMES.get(where, ())
            if len(names) != len(own):
                raise StubError(f"{where}: give its {len(own)} parameters names, by NAMES in tools/make_stubs.py")
            self.used.add(where)
            for one, name in zip(own, names, strict=True):
                one.arg = name
            arguments.posonlyargs, arguments.args = arguments.args, []
        for one in own:
            one.annotation = self.typed(one.arg, where, one.annotation)
        # The default of a sequence, which the generator writes as a list.
        defaults = arguments.defaults
        arguments.defaults = [ast.Tuple([]) if isinstance(one, ast.List) else one for one in defaults]
        function.returns = self.typed(function.name, where, function.returns)
        function.body = [ast.Expr(ast.Constant(...))]
        return function

    def member(self, node: ast.stmt, owner: str = "") -> ast.stmt | None:
        """Return a class, a function or an attribute; None for all else, such as docstrings and imports."""
        if isinstance(node, ast.FunctionDef):
            return self.function(node, owner)
        if isinstance(node, ast.ClassDef):
            inner = [self.member(one, node.name) for one in node.body]
            node.body = [one for one in inner if one is not None] or [ast.Expr(ast.Constant(...))]
            return node
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "__all__":
            node.annotation = self.typed(node.target.id, owner or MODULE, node.annotation)
            node.value = None  # of this build
            return node
        return None


def _place(node: ast.stmt) -> tuple[int, str]:
    """Return what statements are sorted by: attributes, functions, classes; then by name."""
    if isinstance(node, ast.AnnAssign):
        return 0, ast.unparse(node.target)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    return 1 + isinstance(node, ast.ClassDef), node.name


def _with_imports(body: str) -> str:
    """Import the names that a stub takes from other modules, and write them without their modules."""
    outside = re.compile(r"\b(collections\.abc|numpy\.typing|typing|typing_extensions)\.(\w+)")
    imports = sorted({f"from {module} import {name}\n" for module, name in outside.findall(body)})
    return "".join(imports) + "\n" + outside.sub(r"\2", body)


def _formatted(stub: str) -> str:
    for command in (("check", "--quiet", "--fix", "--select", "I"), ("format",)):
        stub = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "_core.pyi", "-"],
            **{"input": stub, "capture_output": True, "text": True, "check": True},
            cwd=Path(__file__).resolve().parent.parent,  # whose pyproject.toml has the style
        ).stdout
    return stub


def stub_of(generated: str) -> str:
    """Return our stub for the text that pybind11-stubgen made.

    Raises:
        StubError: a type or a name is missing in the tables, or a row of a table is of no use.
    """
    for pattern, spelling in _SPELLINGS:
        generated = re.sub(pattern, spelling, generated)
    writer = _Writer()
    found = [writer.member(node) for node in ast.parse(generated).body]
    if idle := sorted({*NAMES, *TYPES} - writer.used):
        raise StubError(f"the core has no use for {', '.join(idle)}: remove the row from tools/make_stubs.py")
    members = sorted((node for node in found if node is not None), key=_place)
    body = _DEFINITIONS + "".join(ast.unparse(ast.fix_missing_locations(node)) + "\n" for node in members)
    return _formatted(_HEADER + _with_imports(body))


def generated_text() -> str:
    """Return what pybind11-stubgen makes of the module that this Python has installed."""
    if importlib.util.find_spec("pybind11_stubgen") is None:
        raise StubError("pybind11-stubgen is not installed: run `make setup`")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", MODULE, "-o", folder, "--exit-code"]
        done = subprocess.run(
            [*command, "--numpy-array-remove-parameters"], capture_output=True, text=True, check=False, cwd=folder
        )
        if done.returncode != 0:
            raise StubError(f"pybind11-stubgen failed:\n{done.stderr}")
        return (Path(folder) / (MODULE.replace(".", "/") + ".pyi")).read_text()


def differences(stub: Path, made: str) -> list[str]:
    """Return a diff from a stub to the one that was made, and what to do; nothing if they are equal."""
    old = stub.read_text() if stub.exists() else ""
    lines = difflib.unified_diff(old.splitlines(), made.splitlines(), str(stub), "the built core", lineterm="")
    return [*lines, ADVICE] if old != made else []


def main(arguments: list[str], stub: Path) -> int:
    """Write the stub, or compare it; return the exit status."""
    try:
        made = stub_of(generated_text())
    except StubError as error:
        print(f"make_stubs: {error}")
        return 1
    if "--check" not in arguments:
        stub.write_text(made)
        print(f"make_stubs: wrote {STUB}")
        return 0
    found = differences(stub, made)
    print("\n".join(found) if found else f"make_stubs: {STUB} is that of the built core")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent / STUB))
