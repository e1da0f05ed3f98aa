# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import check_layers
import pytest

pytestmark = pytest.mark.unit


def problems(tmp_path: Path, file: str, text: str) -> list[str]:
    path = tmp_path / "csrc" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return check_layers.check(tmp_path)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("schedule/a.cc", '#include "planner/ring.h"'),
        ("executor/a.cc", '#include "tuner/tuner.h"'),
        ("tuner/a.h", '#include "executor/executor.h"'),
        ("base/a.cc", '#include "schedule/schedule.h"'),
        ("communicator/a.cc", '#include "c10d/work.h"'),
        ("schedule/a.cc", '#include "schedule.h"'),
        ("communicator/a.cc", "#include <torch/torch.h>"),
        ("executor/a.cc", "#include <pybind11/pybind11.h>"),
        ("transport/shm/a.cc", "#include <mpi.h>"),
        ("transport/a.cc", "#include <cuda_runtime.h>"),
        ("c10d/a.cc", "#include <cuda.h>"),
        ("c10d/a.cc", "#include <c10/cuda/CUDAStream.h>"),
        ("c10d/a.cc", "#include <ATen/hip/HIPEvent.h>"),
        ("c10d/a.cc", "#include <torch/csrc/xpu/Stream.h>"),
        ("c10d/a.cc", "#include <hip/hip_runtime.h>"),
        ("c10d/a.cc", "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>"),
        ("transport/a.cc", 'auto x = std::getenv("BRAID");'),
        ("base/log.cc", 'printf("hello");'),
        ("base/log.cc", 'std::cerr << "hello";'),
        ("base/a.cc", "if (bad) std::abort();"),
        ("base/a.cc", "  abort();"),
        ("base/a.cc", "  exit(1);"),
        ("base/a.cc", "  ::_exit(0);"),
        ("misc/a.cc", ""),
    ],
)
def test_each_rule_is_enforced(tmp_path: Path, file: str, line: str) -> None:
    found = problems(tmp_path, file, f"// first\n{line}\n")
    assert len(found) == 1
    assert found[0].startswith(f"csrc/{file}:2: " if "misc" not in file else "csrc/misc: ")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "planner/a.cc",
            '#include "planner/ring.h"\n#include "schedule/builder.h"\n#include "base/status.h"\n',
        ),
        (
            "c10d/a.cc",
            '#include <torch/csrc/distributed/c10d/Backend.hpp>\n#include "communicator/communicator.h"\n',
        ),
        ("base/env.cc", "const char* x = std::getenv(name);\n"),
        ("transport/mpi/a.cc", "#include <mpi.h>\n"),
        ("base/a.cc", '// never call abort(); or printf("x")\nauto x = "printf(1)";\nsnprintf(b, 1, "x");\n'),
        ("communicator/a.h", "void abort();\nvoid exit_group(int code);\ngroup.abort();\n"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, file: str, text: str) -> None:
    assert problems(tmp_path, file, text) == []


def test_each_row_names_rows_above_it() -> None:
    above: set[str] = set()
    for folder, others in check_layers.ALLOWED.items():
        assert others <= above, folder
        above.add(folder)


def test_the_page_lists_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        check_layers, "LAYERS", {"base": ("clocks", ""), "a": ("[x](x.md)", ""), "b": ("y", "a base")}
    )
    rows = check_layers.listed().splitlines()
    assert rows == ["- `base`: clocks", "- `a`: [x](x.md)", "- `b`: y"]
    page = tmp_path / "overview.md"
    page.write_text("\n".join(["# House", "", *rows, "", "More.", ""]))
    assert check_layers.check_page(page) == []
    for wrong in (rows[:-1], [*rows, "- `c`: z"], [*reversed(rows)]):
        page.write_text("\n".join(["# House", "", *wrong, "", "More.", ""]))
        told = "the list of folders is old: put there what `python tools/check_layers.py --list` prints"
        assert check_layers.check_page(page) == [f"docs/overview.md: {told}"]


def test_the_command_prints_the_list() -> None:
    tool = Path(check_layers.__file__)
    done = subprocess.run([sys.executable, tool, "--list"], capture_output=True, text=True, check=True)
    assert done.stdout == check_layers.listed() + "\n"
    assert check_layers.check_page(tool.parent.parent / check_layers.PAGE) == []


def test_what_no_file_needs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_layers, "ALLOWED", {"codec": set(), "reduce": set(), "bucket": {"codec", "reduce"}})
    assert problems(tmp_path, "bucket/deep/a.h", '#include "codec/codec.h"\n#include <reduce/reduce.h>\n') == []
    told = "csrc/bucket includes nothing of reduce: remove reduce from its row in tools/check_layers.py"
    assert check_layers.check_idle(tmp_path) == [told]
    (tmp_path / "csrc" / "bucket" / "a.cc").write_text('#include "reduce/reduce.h"\n')
    assert check_layers.check_idle(tmp_path) == []


def test_two_types_of_one_name_are_told(tmp_path: Path) -> None:
    text = "namespace braid {\nstruct Link {\n};\n}  // namespace braid\n"
    hidden = "namespace braid {\nnamespace {\nstruct Link {\n};\n}  // namespace\n}  // namespace braid\n"
    other = "namespace braid::shm {\nclass Link final : public Base {\n};\n}  // namespace braid::shm\n"
    files = {"topology/a.h": text, "transport/b.h": other, "transport/c.cc": hidden}
    for file, content in files.items():
        path = tmp_path / "csrc" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert check_layers.check(tmp_path) == []
    assert problems(tmp_path / "again", "base/a.h", text + text) == [
        "braid::Link is two types: csrc/base/a.h and csrc/base/a.h"
    ]


def test_a_test_that_is_not_built_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "cpp" / "base"
    folder.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text("braid_cpp_test(base SOURCES built_test.cc)\n")
    (folder / "built_test.cc").touch()
    (folder / "left_out_test.cc").touch()
    told = "tests/cpp/base/left_out_test.cc is not in the CMakeLists.txt beside it"
    assert check_layers.check(tmp_path) == [told]
