# SPDX-License-Identifier: Apache-2.0
"""What tests share: a tiny adapter to compile, with a compiler that counts; workers of a strategy as threads."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fake_cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent))  # tests import the modules beside them
sys.path.append(str(Path(__file__).parent.parent / "multiprocess"))  # ports.py

# Two files, so that there is something to compile in parallel. The versions show whose headers were used.
TINY_MODULE = """
#include <pybind11/detail/common.h>
#include <torch/headeronly/version.h>
#include "base/dtype.h"
int answer();
static PyObject* tell(PyObject*, PyObject*) {
  return Py_BuildValue("iiis", answer(), PYBIND11_VERSION_HEX, TORCH_VERSION_MINOR,
                       std::string(braid::name_of(braid::DType::kFloat32)).c_str());
}
static PyMethodDef methods[] = {{"tell", tell, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_c10d", "", -1, methods};
PyMODINIT_FUNC PyInit__c10d();
PyMODINIT_FUNC PyInit__c10d() { return PyModule_Create(&module); }
"""
TINY_ANSWER = "int answer() { return 42; }\n"


@dataclass
class TinyAdapter:
    """A small stand-in for csrc/c10d, against the real torch and the real core."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def arguments(self) -> tuple[object, object]:
        """Return torch and package, as the functions of braid._torch.adapter take them."""
        import torch
        from braid._torch.adapter import PackageFiles, TorchInstall

        install = TorchInstall(str(torch.__version__), Path(torch.__file__).parent, True)
        package = replace(PackageFiles.installed(), sources=self.root / "sources", prebuilt=self.root / "prebuilt")
        return install, package

    def start(self) -> subprocess.Popen[str]:
        """Start a process that finds or builds the adapter, prints its path, and loads it."""
        install, package = self.arguments()
        code = f"""
            import importlib.util
            from pathlib import Path, PosixPath
            from braid._torch.adapter import Compiler, PackageFiles, TorchInstall, build_adapter, find_adapter
            torch, package, compiler = {install!r}, {package!r}, Compiler.find()
            path = find_adapter(torch, package, compiler) or build_adapter(torch, package, compiler)
            spec = importlib.util.spec_from_file_location("_c10d", path)
            print(path, *importlib.util.module_from_spec(spec).tell())
        """
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def builds(self) -> int:
        """Return how often the counting compiler was asked to link so far."""
        return len((self.root / "linked").read_text().split())


@pytest.fixture
def tiny_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyAdapter:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "module.cc").write_text(TINY_MODULE)
    (tmp_path / "sources" / "answer.cc").write_text(TINY_ANSWER)
    (tmp_path / "linked").touch()
    compiler = tmp_path / "counting-c++"
    compiler.write_text(
        textwrap.dedent(f"""\
            #!/bin/bash
            cd {tmp_path}
            while [ -e hang ] && [ "$1" != --version ]; do touch hanging; sleep 0.1; done
            case " $* " in *" -shared "*) echo . >> linked;; esac
            exec g++ "$@"
        """)
    )
    compiler.chmod(0o755)
    tiny = TinyAdapter(tmp_path, {"CXX": str(compiler), "BRAID_CACHE_DIR": str(tmp_path / "cache")})
    for name, value in tiny.environment.items():
        monkeypatch.setenv(name, value)
    return tiny


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> "Cluster":
    from fake_cluster import Cluster

    return Cluster(monkeypatch)
