# SPDX-License-Identifier: Apache-2.0
"""Lists tensors that braid makes without a dtype: they would have the user's, of torch.set_default_dtype()."""

import ast
import sys
from pathlib import Path

_MAKERS = ("empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros")


def without_dtype(text: str) -> list[int]:
    """Return the lines of a module that call a maker of torch without ``dtype=``."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr in _MAKERS) == ("torch", True)
        and not any(keyword.arg in ("dtype", None) for keyword in node.keywords)
    ]


def check(root: Path) -> list[str]:
    """Return one line for each tensor without a dtype in the package."""
    return [
        f"{path.relative_to(root)}:{line}: give the tensor a dtype; else it has the user's default"
        for path in sorted((root / "python/braid").rglob("*.py"))
        for line in without_dtype(path.read_text())
    ]


if __name__ == "__main__":
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems) if problems else "check_dtypes: all tensors have a dtype")
    sys.exit(bool(problems))
