# SPDX-License-Identifier: Apache-2.0
"""Lists sentences above 30 words and lines above 120 columns in pages (*.md), comments and docstrings.

words_baseline.txt holds a number per file: the findings that are older than this check. A file with more findings
fails. --lower writes smaller numbers into the baseline, never larger ones.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import baseline

WORDS = 30
COLUMNS = 120
FOLDERS = ("csrc", "python", "tests", "bench", "examples", "tools")
BASELINE = "tools/words_baseline.txt"
_SOURCES = (".py", ".h", ".cc", ".cu", ".cuh")
_SKIPPED = {".venv", "build", "node_modules", ".git", "__pycache__"}

_FENCE = re.compile(r"^\s*(```|~~~)")
_NOT_PROSE = re.compile(r"^\s*(\||#+ |<|\[[^\]]+\]: )")
_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_CODE = re.compile(r"`+[^`]*`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CPP_COMMENT = re.compile(r"(?:^|\s)//[/!]?(?: |$)(.*)")
# An entry below "Args:" and the like.
_ENTRY = re.compile(r"^\s*\*{0,2}\w+(?: \([^)]*\))?: ")
_END = re.compile(r"[.!?][\"')\]*_]*$")
_LICENSE = "SPDX-License-Identifier"
_NOT_AN_END = {"e.g.", "i.e.", "vs.", "cf."}


class Finding(NamedTuple):
    """One sentence or line that is too long, and where it begins."""

    line: int
    text: str


# Lines of one paragraph, each with its number in the file.
Block = list[tuple[int, str]]


def page_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs and list items of a page; code blocks, tables and headings are left out."""
    block: Block = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = bool(_FENCE.match(line))
        if fence or fenced or not line.strip() or _NOT_PROSE.match(line) or _ITEM.match(line):
            yield block
            block = []
        if not (fence or fenced) and line.strip() and not _NOT_PROSE.match(line):
            block.append((number, _ITEM.sub("", line)))
        fenced ^= fence
    yield block


def _comment_blocks(comments: Iterator[tuple[int, str]]) -> Iterator[Block]:
    """Join comments on neighbouring lines; text that is indented by two or more is code."""
    block: Block = []
    last = -1
    for number, text in comments:
        code = text.startswith("  ")
        if number != last + 1 or code or not text.strip() or _LICENSE in text or _ITEM.match(text):
            yield block
            block = []
        if not code and _LICENSE not in text:
            block.append((number, _ITEM.sub("", text)))
        last = number
    yield block


def cpp_blocks(text: str) -> Iterator[Block]:
    """Yield the `//` comments of a C++ source."""
    found = ((number, _CPP_COMMENT.search(line)) for number, line in enumerate(text.splitlines(), 1))
    yield from _comment_blocks((number, match[1]) for number, match in found if match)


def _docstring_blocks(node: ast.Constant) -> Iterator[Block]:
    block: Block = []
    code_indent = 0  # What is indented this far is an example.
    before = 0
    for number, line in enumerate(str(node.value).splitlines(), node.lineno):
        indent = len(line) - len(line.lstrip())
        is_code = line.lstrip().startswith((">>>", "...")) or (code_indent and indent >= code_indent)
        if not line.strip() or is_code or indent < before or _ENTRY.match(line) or _ITEM.match(line):
            yield block
            block = []
        if line.strip():
            if not is_code:
                block.append((number, _ITEM.sub("", line)))
                code_indent = indent + 1 if line.rstrip().endswith("::") else 0
            before = indent
    yield block


def _docstrings(text: str) -> Iterator[ast.Constant]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as docstring), *_]:
                    yield docstring


def python_blocks(text: str) -> Iterator[Block]:
    """Yield the comments and docstrings of a Python source."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (token for token in tokens if token.type == tokenize.COMMENT)
    yield from _comment_blocks((each.start[0], each.string.lstrip("#").removeprefix(" ")) for each in comments)
    for docstring in _docstrings(text):
        yield from _docstring_blocks(docstring)


def _blanked(found: re.Match[str], word: str) -> str:
    return word + "\n" * found[0].count("\n")  # Keeps the numbers of the lines.


def long_sentences(block: Block) -> Iterator[Finding]:
    """Yield each sentence of a paragraph that is too long; `code` counts as one word, a link as its text."""
    text = "\n".join(line for _, line in block)
    text = _CODE.sub(lambda found: _blanked(found, "code"), text)
    text = _LINK.sub(lambda found: found[1] + "\n" * found[0][len(found[1]) :].count("\n"), text)
    words: Block = []
    for (number, _), line in zip(block, text.split("\n"), strict=False):
        for word in line.split():
            if any(c.isalnum() for c in word):
                words.append((number, word))
            if _END.search(word) and word.lower() not in _NOT_AN_END:
                yield from _too_long(words)
                words = []
    yield from _too_long(words)


def _too_long(words: Block) -> Iterator[Finding]:
    if len(words) > WORDS:
        start = " ".join(word for _, word in words[:8])
        yield Finding(words[0][0], f"a sentence of {len(words)} words, at most {WORDS}: {start} ...")


def _blocks(name: str, text: str) -> Iterator[Block]:
    suffix = Path(name).suffix
    return page_blocks(text) if suffix == ".md" else python_blocks(text) if suffix == ".py" else cpp_blocks(text)


def findings(name: str, text: str) -> list[Finding]:
    """Return the findings in one file, which is a page, Python or C++ by its name."""
    lines = text.splitlines()
    found = set()
    for block in _blocks(name, text):
        found |= {*long_sentences(block)} if block else set()
        for number, _ in block:
            columns = len(lines[number - 1])
            if columns > COLUMNS:
                found.add(Finding(number, f"a line of {columns} columns, at most {COLUMNS}"))
    return sorted(found)


def all_findings(root: Path) -> dict[str, list[Finding]]:
    """Return the findings of every page and source below ``root``, by path; files without any are left out."""
    sources = [p for folder in FOLDERS for kind in _SOURCES for p in (root / folder).rglob(f"*{kind}")]
    files = [p for p in (*root.rglob("*.md"), *sources) if not _SKIPPED & set(p.relative_to(root).parts)]
    found = {p.relative_to(root).as_posix(): findings(p.name, p.read_text()) for p in sorted(files)}
    return {name: each for name, each in found.items() if each}


def check(root: Path) -> list[str]:
    """Return one line for each finding of each file that has more of them than the baseline allows."""
    allowed = baseline.read(root / BASELINE)
    return [
        f"{name}:{each.line}: {each.text} ({len(found)} in this file, {allowed.get(name, 0)} allowed)"
        for name, found in all_findings(root).items()
        if len(found) > allowed.get(name, 0)
        for each in found
    ]


def lower(root: Path) -> int:
    """Write the baseline anew, and return how many findings it still allows."""
    counts = {name: len(found) for name, found in all_findings(root).items()}
    head = "The long sentences and lines that each file may have; check_words.py --lower lowers them."
    return baseline.lower(root / BASELINE, counts, head)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--lower"]:
        print(f"check_words: the baseline allows {lower(here)} findings")
    problems = check(here)
    print("\n".join(problems) if problems else "check_words: no new long sentences or lines")
    sys.exit(bool(problems))
