# SPDX-License-Identifier: Apache-2.0
"""Checks that relative links in *.md lead somewhere, and that the paths and tests they name exist."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^#+\s+(.*?)\s*#*$")
# A word in `code` is taken for a path when it begins with one of the house's folders.
_PATH = re.compile(r"(?:csrc|python|tests|bench|docs|examples|tools|cmake|\.ci)/[\w./*-]*")
# A test: file::name, the file being anywhere below tests.
_TEST = re.compile(r"(\w+\.(?:py|cc))::(\w+)")
_SKIPPED = {".venv", "build", "node_modules", ".git"}


def _lines_outside_fences(text: str) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def _anchors(page: Path) -> set[str]:
    headings = (_HEADING.match(line) for _, line in _lines_outside_fences(page.read_text()))
    plain = (re.sub(r"[^\w\- ]", "", heading[1].lower()) for heading in headings if heading)
    return {words.replace(" ", "-") for words in plain}


def _broken_link(page: Path, target: str) -> bool:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return False  # not ours to check
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    if not path.exists():
        return True
    return bool(anchor) and path.suffix == ".md" and anchor not in _anchors(path)


def _missing_path(root: Path, path: str) -> bool:
    return not (any(root.glob(path)) if "*" in path else (root / path).exists())


def _missing_test(root: Path, file: str, name: str) -> bool:
    word = re.compile(rf"\b{name}\b")
    return not any(word.search(path.read_text()) for path in (root / "tests").rglob(file))


def check_page(page: Path, root: Path) -> list[str]:
    """Return one line for every link or path of a page that leads nowhere."""
    found = []
    for number, line in _lines_outside_fences(page.read_text()):
        where = f"{page.relative_to(root).as_posix()}:{number}"
        links = _LINK.findall(_CODE.sub("", line))
        found += [f"{where}: the link {link} leads nowhere" for link in links if _broken_link(page, link)]
        for code in _CODE.findall(line):
            match = _PATH.fullmatch(code.rstrip(":"))
            if match and _missing_path(root, match[0]):
                found.append(f"{where}: there is no {match[0]}")
            test = _TEST.fullmatch(code)
            if test and _missing_test(root, *test.groups()):
                found.append(f"{where}: there is no test {code}")
    return found


def check(root: Path) -> list[str]:
    """Return one line for every problem in the pages below ``root``."""
    pages = sorted(page for page in root.rglob("*.md") if not _SKIPPED & set(page.relative_to(root).parts))
    return [problem for page in pages for problem in check_page(page, root)]


if __name__ == "__main__":
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems) if problems else "check_docs: all links, paths and tests exist")
    sys.exit(bool(problems))
