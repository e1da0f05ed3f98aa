# SPDX-License-Identifier: Apache-2.0
"""Checks that no modules of python/braid import each other in a circle, and that its rooms stay apart."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# A room, and what its modules may not import. Names end where a dot or the name does.
APART: dict[str, tuple[str, ...]] = {
    "braid._array": ("braid._torch", "braid._gpu", "braid.compression", "braid.hooks", "braid.strategies"),
    "braid._gpu": ("braid._array", "braid.compression", "braid.hooks", "braid.strategies"),
    "braid._torch": ("braid._array", "braid._gpu", "braid.cli", "braid.strategies"),
    "braid.compression": ("braid.strategies",),
    "braid.data": ("braid._gpu", "braid._torch", "braid.cli", "braid.compression", "braid.strategies"),
    "braid.strategies": ("braid._gpu", "braid._torch", "braid.cli", "braid.compression", "braid.hooks"),
}


def _is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def _modules(root: Path) -> dict[str, Path]:
    modules = {}
    for path in sorted((root / "python").rglob("*.py")):
        parts = path.relative_to(root / "python").with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _circle(edges: dict[str, set[str]]) -> list[str]:
    """Return the modules of one circle in order; none if there is none."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return way[way.index(module) :]
        if module not in done:
            for other in sorted(edges[module]):
                if found := walk(other, [*way, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in sorted(edges) if (found := walk(module, []))), [])


def check(root: Path) -> list[str]:
    """Return one line for every broken rule below ``root``/python."""
    modules = _modules(root)
    edges: dict[str, set[str]] = {module: set() for module in modules}
    found = []
    for module, path in modules.items():
        for line, name in _imported(path):
            # `from package import name` imports a module of that name, or the package.
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                edges[module].add(target)
            found += [
                f"{path.relative_to(root)}:{line}: {room} may not import {other}"
                for room, others in APART.items()
                for other in others
                if _is_in(module, room) and _is_in(name, other)
            ]
    # Each module imports its package first, and the package may import it: that is no circle.
    for module, others in edges.items():
        others -= {other for other in others if _is_in(module, other)}
    if circle := _circle(edges):
        found.append(f"import each other in a circle: {' -> '.join([*circle, circle[0]])}")
    return found


if __name__ == "__main__":
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems) if problems else "check_imports: no circles, and rooms stay apart")
    sys.exit(bool(problems))
