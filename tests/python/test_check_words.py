# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import baseline
import check_words
import pytest

pytestmark = pytest.mark.unit

LONG = " ".join(["a"] * 31) + "."
SHORT = " ".join(["a"] * 30) + "."


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        pytest.param("a.md", f"# Title\n\nShort one.\n{LONG}\n", 4, id="page"),
        pytest.param("a.md", f"- {SHORT}\n- {LONG}\n", 2, id="item"),
        pytest.param("a.md", f"Over two\nlines, {LONG}\n", 1, id="begins earlier"),
        pytest.param("a.md", "word `a\nb` " * 10 + "word.\n\n" + LONG, 13, id="code over two lines"),
        pytest.param("a.h", f"int a;  // Short.\n\n// Short.\n// {LONG}\n", 4, id="C++"),
        pytest.param("a.py", f"a = 1\n# {LONG}\n", 2, id="Python comment"),
        pytest.param(
            "a.py",
            f'def f():\n    """Do.\n\n    Args:\n        x: short\n        y: {LONG}\n    """\n',
            6,
            id="docstring",
        ),
    ],
)
def test_finds_a_long_sentence(name: str, text: str, line: int) -> None:
    [found] = check_words.findings(name, text)
    assert found.line == line
    assert "at most 30" in found.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("a.md", SHORT, id="thirty words"),
        pytest.param("a.md", f"```\n{LONG}\n```\n", id="code block"),
        pytest.param("a.md", f"| {LONG} |\n# {LONG}\n", id="table and heading"),
        pytest.param("a.md", f"- {SHORT[:-1]}\n- {SHORT[:-1]}\n\n{SHORT}", id="items and paragraphs"),
        pytest.param("a.md", f"See `{LONG}` and [here](a_b_c).", id="code counts as one word"),
        pytest.param("a.py", f'x = """{LONG}"""\ny = "# {LONG}"\n', id="strings"),
        pytest.param("a.py", f'"""Do so::\n\n    {LONG}\n"""\n', id="example"),
        pytest.param("a.py", f"# SPDX-License-Identifier: X\n# {SHORT}\n", id="license"),
        pytest.param("a.cc", f"// {SHORT[:-1]}\n//\n//   {LONG}\nint a;\n// {SHORT}\n", id="code in a comment"),
    ],
)
def test_leaves_alone(name: str, text: str) -> None:
    assert check_words.findings(name, text) == []


def test_finds_a_long_line() -> None:
    assert check_words.findings("a.md", "ab. " * 29 + "\n" + "ab. " * 31) == [
        (2, "a line of 124 columns, at most 120")
    ]


def test_a_file_may_have_what_the_baseline_allows_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / check_words.BASELINE).write_text("# a comment\n1 a.md\n")
    (tmp_path / "a.md").write_text(LONG)
    assert check_words.check(tmp_path) == []
    (tmp_path / "a.md").write_text(f"Short.\n{LONG}\n{LONG}")
    (tmp_path / "b.md").write_text(LONG)
    told = check_words.check(tmp_path)
    assert [line.split(" ")[0] for line in told] == ["a.md:2:", "a.md:3:", "b.md:1:"]
    assert "a a a" in told[0]
    assert "(2 in this file, 1 allowed)" in told[0]


def test_the_baseline_only_falls(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / check_words.BASELINE).write_text("2 falls.md\n1 gone.md\n1 grows.md\n")
    (tmp_path / "falls.md").write_text(LONG)
    (tmp_path / "grows.md").write_text(f"{LONG} {LONG}")
    (tmp_path / "new.md").write_text(LONG)
    assert check_words.lower(tmp_path) == 2
    assert baseline.read(tmp_path / check_words.BASELINE) == {"falls.md": 1, "grows.md": 1}
