# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import check_imports
import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent.parent


def problems(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = folder / "python" / "braid" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check_imports.check(folder)


@pytest.mark.parametrize(
    "line",
    [
        "from braid import b",
        "from braid.b import name",
        "import braid.b",
        "def f():\n    from braid.b import name",
    ],
)
def test_a_circle_is_told(line: str, tmp_path: Path) -> None:
    files = {"a.py": line, "b.py": "from braid import c", "c.py": "from braid.a import name"}
    told = "import each other in a circle: braid.a -> braid.b -> braid.c -> braid.a"
    assert problems(tmp_path, files) == [told]


def test_a_package_may_import_its_modules_and_they_each_other(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from braid.p.a import name",
        "p/a.py": "from braid.p import b",
        "p/b.py": "import os",
        "c.py": "from braid.p import name",
    }
    assert problems(tmp_path, files) == []


def test_rooms_stay_apart(tmp_path: Path) -> None:
    files = {"_array/a.py": "import os\nfrom braid._torch.b import name", "_torch/b.py": ""}
    assert problems(tmp_path, files) == ["python/braid/_array/a.py:2: braid._array may not import braid._torch"]


def test_braid_itself_has_none() -> None:
    assert check_imports.check(ROOT) == []
