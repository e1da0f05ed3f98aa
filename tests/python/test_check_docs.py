# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import check_docs
import pytest

pytestmark = pytest.mark.unit


def problems(root: Path, text: str) -> list[str]:
    (root / "csrc" / "base").mkdir(parents=True)
    (root / "csrc" / "base" / "env.h").touch()
    (root / "tests" / "cpp").mkdir(parents=True)
    (root / "tests" / "cpp" / "env_test.cc").write_text("TEST(Env, Reads) {}\n")
    (root / "docs").mkdir()
    (root / "docs" / "errors.md").write_text("# Errors as values, of course\n")
    (root / "README.md").write_text(text)
    return check_docs.check(root)


@pytest.mark.parametrize(
    "text",
    [
        "see [errors](docs/error.md)",
        "see [errors](docs/errors.md#nowhere)",
        "see [above](#nowhere)",
        "see `csrc/base/environment.h`",
        "see `csrc/base/*.cu`",
        "see `env_test.cc::Missing`",
        "see `env_test.cc::ReadsOther`",
        "see `test_env.py::test_reads`",
    ],
)
def test_what_leads_nowhere_is_found(tmp_path: Path, text: str) -> None:
    assert len(problems(tmp_path, f"# Title\n\n{text}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        'see [errors](docs/errors.md "title") and [one](docs/errors.md#errors-as-values-of-course)',
        "see [the title](#title), `csrc/base/env.h`, `csrc/base/`, `csrc/*/env.h`, `env_test.cc::Reads`",
        "see [elsewhere](https://example.org/nothing), `a[0](x)`, `tests` and `a/b`",
        "```\n[not a link](nowhere) `csrc/nothing`\n```",
    ],
)
def test_what_is_right_passes(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, f"# Title\n\n{text}\n") == []


def test_skips_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "README.md").write_text("[x](nowhere)")
    assert check_docs.check(tmp_path) == []
