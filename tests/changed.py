# SPDX-License-Identifier: Apache-2.0
"""Names the tests that recent commits add or edit: they must pass five times, without a second try.

`python tests/changed.py` prints them as pytest takes them, one a line; nothing where there is no history. New
tests are named before edited ones. Of very many it names the first: to run them all five times would take hours.
`python tests/changed.py --added` prints the first of the new ones alone: those of them that are long run twice.
"""

import argparse
import ast
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A change is what was committed since then: longer than a change is worked on.
CHANGE_S = 4 * 3600
MOST = 30
MOST_ADDED = 8
_FILE = re.compile(r"^\+\+\+ b/(tests/.*/test_\w+\.py)$")
_OTHER_FILE = re.compile(r"^\+\+\+ ")
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def recent_commits(root: Path) -> list[str]:
    """Return the commits that belong to the change, the newest first; none where there is no history."""
    command = ["git", "rev-list", f"--since={int(time.time()) - CHANGE_S}", "HEAD"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.split()


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Return the lines of test files that a diff adds or edits, by file; of `git diff -U0`."""
    found: dict[str, set[int]] = {}
    lines: set[int] = set()
    for line in diff.splitlines():
        if file := _FILE.match(line):
            lines = found.setdefault(file[1], set())
        elif _OTHER_FILE.match(line):
            lines = set()
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.update(range(first, first + count))
    return found


def tests_at(source: str, lines: set[int]) -> Iterator[tuple[str, bool]]:
    """Yield the test functions of a file that these lines concern, and whether they are new.

    A line of another function, class or value concerns all tests that name it, directly or through others.
    """
    nodes = [node for node in ast.parse(source).body if not isinstance(node, ast.Import | ast.ImportFrom)]
    edited = {id(node) for node in nodes if lines & set(range(_first_line(node), (node.end_lineno or 0) + 1))}
    concerned = {name for node in nodes if id(node) in edited for name in _defined(node)}
    size = -1
    while size < len(concerned):
        size = len(concerned)
        for node in nodes:
            if _named(node) & concerned:
                concerned |= _defined(node)
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.name in concerned:
            yield node.name, node.lineno in lines


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a file gives a meaning to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _named(node: ast.stmt) -> set[str]:
    """Return the names that a statement uses, those of a function's arguments too: they may be fixtures."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def changed_tests(root: Path) -> dict[str, bool]:
    """Return whether the change adds a test, by "file::function"; those that it adds come first."""
    commits = recent_commits(root)
    if not commits:
        return {}
    command = ["git", "diff", "-U0", f"{commits[-1]}^", "HEAD", "--", "tests"]
    diff = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False).stdout
    found = [
        (not is_new, f"{file}::{name}")
        for file, lines in changed_lines(diff).items()
        if (root / file).exists()
        for name, is_new in tests_at((root / file).read_text(), lines)
    ]
    return {name: not is_edited for is_edited, name in sorted(found)}


def tests_to_repeat(root: Path) -> list[str]:
    """Return the first of changed_tests()."""
    return list(changed_tests(root))[:MOST]


def added_tests(root: Path) -> list[str]:
    """Return the first of the tests that the change adds."""
    return [name for name, is_added in changed_tests(root).items() if is_added][:MOST_ADDED]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--added", action="store_true", help="name new tests alone")
    print("\n".join((added_tests if parser.parse_args().added else tests_to_repeat)(ROOT)))
