# SPDX-License-Identifier: Apache-2.0
"""The adapter's build, on a tiny adapter: a real compiler, the real torch, the real core."""

import importlib.util
import os
import re
import signal
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from braid._torch.adapter import (
    AdapterError,
    Compiler,
    PackageFiles,
    TorchInstall,
    adapter_place,
    build_adapter,
    export_adapter,
    find_adapter,
    load,
)
from braid._torch.adapter import build as adapter_build
from braid._torch.adapter.cache import cache_dir
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.unit


def told_by(path: Path) -> tuple[Any, ...]:
    spec = importlib.util.spec_from_file_location("_c10d", path)
    assert spec is not None
    told: tuple[Any, ...] = importlib.util.module_from_spec(spec).tell()
    return told


def test_builds_with_torchs_headers_first_and_finds_it_again(tiny_adapter, capfd) -> None:
    torch, package = tiny_adapter.arguments()
    compiler = Compiler.find()
    assert find_adapter(torch, package, compiler) is None

    path = build_adapter(torch, package, compiler)
    assert re.fullmatch(
        r"braid: building the torch \d+\.\d+\.\d+ adapter \(about 40 s, once\) \.\.\.\n",
        capfd.readouterr().err,
    )
    assert find_adapter(torch, package, compiler) == path == adapter_place(torch, package, compiler)

    answer, pybind11, torch_minor, dtype = told_by(path)
    header = (torch.root / "include/pybind11/detail/common.h").read_text()
    numbers = [re.search(rf"#\s*define PYBIND11_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR")]
    major, minor = (int(number[1]) for number in numbers if number)
    assert (answer, pybind11 >> 16, torch_minor, dtype) == (42, major << 8 | minor, torch.minor[1], "float32")

    assert build_adapter(torch, package, compiler) == path
    assert tiny_adapter.builds() == 1
    build_adapter(torch, package, compiler, force=True)
    assert tiny_adapter.builds() == 2
    leftovers = [entry.name for entry in (tiny_adapter.root / "cache").iterdir() if entry.name.startswith(".")]
    assert leftovers == []


def test_processes_that_start_together_build_once(tiny_adapter) -> None:
    builders = [tiny_adapter.start() for _ in range(4)]
    outputs = [builder.communicate(timeout=limit(250)) for builder in builders]
    assert [builder.returncode for builder in builders] == [0] * 4, outputs
    assert len({out for out, _ in outputs}) == 1
    assert tiny_adapter.builds() == 1
    assert sum("building" in err for _, err in outputs) == 1


def test_a_killed_builder_leaves_nothing_in_the_way(tiny_adapter) -> None:
    (tiny_adapter.root / "hang").touch()
    victim = tiny_adapter.start()
    eventually(lambda: victim.poll() is not None or (tiny_adapter.root / "hanging").exists())
    assert victim.poll() is None
    cache = tiny_adapter.root / "cache"
    assert list(cache.glob(".building-*"))
    victim.send_signal(signal.SIGKILL)
    (tiny_adapter.root / "hang").unlink()
    victim.communicate(timeout=limit(200))

    successor = tiny_adapter.start()
    out, err = successor.communicate(timeout=limit(250))
    assert successor.returncode == 0, err
    assert "_c10d.so 42 " in out
    assert not list(cache.glob(".building-*"))


def test_without_a_compiler_says_what_to_do(tiny_adapter, monkeypatch) -> None:
    torch, package = tiny_adapter.arguments()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert Compiler.find() is None
    with pytest.raises(
        AdapterError, match=r"no C\+\+ compiler .* install g\+\+ 11 or newer, or run `braid build`"
    ):
        build_adapter(torch, package, None)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert Compiler.find() is None
    with pytest.raises(AdapterError, match=r"CXX=/nowhere/c\+\+ cannot be run"):
        build_adapter(torch, package, None)


def test_without_a_compiler_takes_what_another_machine_built(tiny_adapter) -> None:
    torch, package = tiny_adapter.arguments()
    assert find_adapter(torch, package, None) is None
    path = build_adapter(torch, package, Compiler.find())
    assert find_adapter(torch, package, None) == path


def test_a_compile_error_shows_its_first_lines_and_the_log(tiny_adapter) -> None:
    torch, package = tiny_adapter.arguments()
    (package.sources / "answer.cc").write_text("int answer() { return fourty_two; }\n")
    with pytest.raises(AdapterError, match="fourty_two") as raised:
        build_adapter(torch, package, Compiler.find())
    log = re.search(r"everything is in (.*?)\)", str(raised.value))
    assert log is not None
    assert "answer.cc" in Path(log[1]).read_text()
    assert find_adapter(torch, package, Compiler.find()) is None


@pytest.mark.long
@pytest.mark.timeout(900)
def test_names_of_the_real_files_do_not_clash(tmp_path) -> None:
    """They can be one unit. Otherwise each is compiled alone, which takes ten times as long."""
    torch, package, compiler = TorchInstall.current(), PackageFiles.installed(), Compiler.find()
    assert compiler is not None
    (unit,) = adapter_build._write_units(package.source_files(), 1, tmp_path)
    flags = [*adapter_build._compile_flags(torch, package), "-w", "-fsyntax-only"]
    done = adapter_build._run([*compiler.command, *flags, str(unit)])
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "error" in line)


@pytest.mark.parametrize("jobs", [1, *(pytest.param(jobs, marks=pytest.mark.long) for jobs in (2, 3))])
def test_any_number_of_compilers_will_do_even_where_names_clash(tiny_adapter, monkeypatch, jobs: int) -> None:
    torch, package = tiny_adapter.arguments()
    (package.sources / "answer.cc").write_text(
        "static int clash() { return 42; }\nint answer() { return clash(); }\n"
    )
    (package.sources / "other.cc").write_text(
        "static int clash() { return 1; }\nint other() { return clash(); }\n"
    )
    monkeypatch.setattr(adapter_build, "_parallel_jobs", lambda sources: jobs)
    assert told_by(build_adapter(torch, package, Compiler.find()))[0] == 42


def test_a_link_error_is_one_too(tiny_adapter) -> None:
    torch, package = tiny_adapter.arguments()
    (package.sources / "twice.cc").write_text("int answer() { return 43; }\n")
    with pytest.raises(AdapterError, match="multiple definition"):
        build_adapter(torch, package, Compiler.find())


@pytest.mark.parametrize("changed", ["torch", "abi", "source", "header", "library", "compiler", "flags"])
def test_whatever_changes_makes_another_entry(tiny_adapter, changed: str) -> None:
    torch, package = tiny_adapter.arguments()
    include, library = tiny_adapter.root / "include", tiny_adapter.root / "libbraid.so"
    include.mkdir()
    (include / "a.h").write_text("// 1")
    library.write_bytes(b"1")
    package = replace(package, include=include, library=library)
    compiler = Compiler(("g++",), "g++ 12")
    before = adapter_place(torch, package, compiler)
    assert adapter_place(torch, package, Compiler(("g++",), "g++ 12")) == before

    match changed:
        case "torch":
            torch = replace(torch, version="2.13.99")
        case "abi":
            torch = replace(torch, cxx11_abi=not torch.cxx11_abi)
        case "source":
            (package.sources / "answer.cc").write_text("int answer() { return 43; }\n")
        case "header":
            (include / "a.h").write_text("// 2")
        case "library":
            library.write_bytes(b"2")
        case "compiler":
            compiler = Compiler(("g++",), "g++ 13")
        case "flags":
            compiler = Compiler(("g++", "-march=native"), "g++ 12")
    assert adapter_place(torch, package, compiler) != before


def test_a_ready_made_adapter_is_taken_first(tiny_adapter) -> None:
    torch, package = tiny_adapter.arguments()
    built = build_adapter(torch, package, Compiler.find())
    shipped = export_adapter(built, torch, package.prebuilt)
    assert shipped.relative_to(package.prebuilt).parts[0].startswith(f"torch2.{torch.minor[1]}-cpython-")
    assert find_adapter(torch, package, None) == shipped
    assert find_adapter(replace(torch, version="2.99.0"), package, None) is None


def test_a_cache_that_cannot_be_written_falls_back_to_a_private_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("BRAID_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    chosen = cache_dir()
    assert chosen == tmp_path / "tmp" / f"braid-{os.getuid()}"
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700

    chosen.chmod(0o777)  # anybody could put code there
    other = cache_dir()
    assert other != chosen
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_the_order_of_cache_folders(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("BRAID_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == tmp_path / "home" / ".cache" / "braid"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "braid"
    monkeypatch.setenv("BRAID_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


@pytest.mark.parametrize("version", ["1.13.1", "2.10.2+cpu", "unknown"])
def test_an_old_torch_is_refused_in_one_sentence(tmp_path, version: str) -> None:
    with pytest.raises(
        AdapterError, match=rf"^braid needs torch 2\.11 or newer, and this is torch {re.escape(version)}"
    ):
        TorchInstall(version, tmp_path, True).checked()


def test_a_torch_without_headers_is_refused(tmp_path) -> None:
    with pytest.raises(AdapterError, match="without its C\\+\\+ headers"):
        TorchInstall("2.13.0", tmp_path, True).checked()


def test_missing_sources_are_named(tmp_path) -> None:
    package = PackageFiles(tmp_path, tmp_path, tmp_path / "libbraid.so", tmp_path)
    with pytest.raises(AdapterError, match="sources are missing"):
        package.source_files()
    (tmp_path / "a.cc").touch()
    with pytest.raises(AdapterError, match=r"libbraid\.so.*reinstall"):
        package.digest()


def test_an_adapter_that_does_not_load_is_an_adapter_error(tmp_path, monkeypatch) -> None:
    broken = tmp_path / "_c10d.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(load, "ensure_adapter", lambda: broken)
    monkeypatch.delitem(sys.modules, "braid._c10d", raising=False)
    with pytest.raises(AdapterError, match=r"cannot be loaded, run `braid build --force`"):
        load.load_adapter()
