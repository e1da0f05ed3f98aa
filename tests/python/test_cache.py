# SPDX-License-Identifier: Apache-2.0
"""Which compiled code is believed, and what happens where it cannot be kept. The compiler is a stand-in here."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from braid import _trust
from braid._gpu import kernels, nvrtc
from braid._torch.adapter import (
    AdapterError,
    Compiler,
    PackageFiles,
    TorchInstall,
    adapter_place,
    build_adapter,
    cache,
    find_adapter,
)
from braid._torch.adapter import build as adapter_build
from braid._torch.adapter.cache import cache_dir
from braid._torch.adapter.sealed import content_of, seal, why_not_believed
from waiting import eventually

pytestmark = pytest.mark.unit

STRANGER = 54321
CODE = b"code " * 1000
COMPILER = Compiler(("c++",), "c++ 1")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


class Place:
    """A cache, and a temporary directory to fall back to."""

    def __init__(self, root: Path) -> None:
        self.cache, self.temporary = root / "cache", root / "temporary"
        self.builds = 0
        (root / "sources").mkdir()
        (root / "sources" / "a.cc").touch()
        (root / "libbraid.so").touch()
        self.torch = TorchInstall("2.13.0", root / "torch", True)
        self.package = PackageFiles(root / "sources", root / "include", root / "libbraid.so", root / "prebuilt")

    def find(self, compiler: Compiler | None = COMPILER) -> Path | None:
        return find_adapter(self.torch, self.package, compiler)

    def build(self, compiler: Compiler | None = COMPILER) -> Path:
        return build_adapter(self.torch, self.package, compiler)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    made.temporary.mkdir()

    def compile_it(torch: object, package: object, compiler: object, work: Path, log: Path) -> Path:
        made.builds += 1
        target = work / "_c10d.so"
        target.write_bytes(CODE)
        target.chmod(0o777)  # as a linker does under an open umask
        return target

    monkeypatch.setenv("BRAID_CACHE_DIR", str(made.cache))
    monkeypatch.setattr(adapter_build, "_compile", compile_it)
    monkeypatch.setattr(tempfile, "tempdir", str(made.temporary))
    monkeypatch.setattr(cache, "_told", set())
    monkeypatch.setattr(cache, "_last_resort", [])
    monkeypatch.setattr(_trust, "_is_private_group", lambda gid, uid: False)
    return made


def test_who_waits_for_another_build_says_so(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    entry = cache.CacheEntry(cache_dir(), place.torch, place.package, COMPILER)
    with ThreadPoolExecutor() as pool:
        with entry.locked():
            assert capsys.readouterr().err == ""
            waiting = pool.submit(place.build)
            said = eventually(lambda: capsys.readouterr().err, "the line", 20)
            assert said == "braid: another process builds the adapter; waiting\n"
            assert place.builds == 0
        assert waiting.result().read_bytes()
    assert "waiting" not in capsys.readouterr().err
    assert place.builds == 1


def test_what_is_built_is_private_and_believed(place: Place) -> None:
    umask = os.umask(0)
    try:
        path = place.build()
    finally:
        os.umask(umask)
    assert path.is_relative_to(place.cache)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (place.cache, path.parent, path)]
    assert modes == [0o700, 0o700, 0o700]
    assert content_of(path) == CODE
    assert place.find() == place.find(None) == path


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_cache_that_others_may_write_to_is_not_used(
    place: Place, mode: int, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = place.build()
    place.cache.chmod(mode)
    assert place.find() is None
    assert place.find(None) is None
    own = place.build()
    assert own.is_relative_to(place.temporary / f"braid-{os.getuid()}")
    assert own != planted
    said = (
        f"braid: code is not kept in {place.cache}, but in {place.temporary}/braid-{os.getuid()}: others may "
        f"write to the folder {place.cache} (mode {mode:04o}): chmod go-w {place.cache}\n"
    )
    assert capfd.readouterr().err.count(said) == 1
    shutil.rmtree(own.parent)
    with pytest.raises(AdapterError, match=r"no C\+\+ compiler"):
        place.build(None)


def test_nor_one_on_whose_way_others_may_swap_a_folder(place: Place) -> None:
    place.build()
    place.cache.parent.chmod(0o777)
    with pytest.raises(AdapterError, match=r"no folder to keep code in .* chmod go-w .*set BRAID_CACHE_DIR"):
        place.find()
    place.cache.parent.chmod(0o700)
    assert place.find() is not None


@needs_root
def test_nor_a_strangers(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    path = place.build()
    os.chown(path, STRANGER, -1)
    assert place.find() is None
    assert f"a compiled adapter is not used: the file {path} belongs to user {STRANGER}" in capfd.readouterr().err
    with pytest.raises(AdapterError, match=rf"\(the file .* belongs to user {STRANGER}, not to root\), and there"):
        place.build(None)
    assert place.build() == path  # built anew, in its place
    assert path.stat().st_uid == os.geteuid()
    os.chown(path.parent, STRANGER, -1)
    assert place.find() is None


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "unsealed", "link", "pipe", "writable"])
def test_a_damaged_adapter_is_not_loaded_but_built_anew(place: Place, damage: str) -> None:
    path = place.build()
    sealed = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(sealed[: len(sealed) // 2])
        case "empty":
            path.write_bytes(b"")
        case "flipped":
            path.write_bytes(sealed[:10] + bytes([sealed[10] ^ 1]) + sealed[11:])
        case "unsealed":
            path.write_bytes(CODE)
        case "link":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to("elsewhere")
        case "pipe":
            path.unlink()
            os.mkfifo(path, 0o600)
        case "writable":
            path.chmod(0o766)
    assert why_not_believed(path) != ""
    assert place.find() is None
    assert place.find(None) is None
    assert place.build() == path
    assert place.builds == 2
    assert path.read_bytes() == sealed
    assert place.find() == path


def test_without_a_compiler_the_advice_is_safe(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(AdapterError) as raised:
        place.build(None)
    said = str(raised.value)
    assert f"shares the folder {place.cache}, where only you may write" in said
    assert f"`braid build --into {place.package.prebuilt}`" in said


# ---- where nothing can be written


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """Make the cache a file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place.cache.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", place.cache], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place.cache
    subprocess.run(["umount", place.cache], check=True)


def test_a_full_disk_while_building_is_said_with_what_to_do(place: Place, small_disk: Path) -> None:
    (small_disk / "hog").write_bytes(bytes(60 << 10))
    said = rf"cannot be built in {small_disk} \(No space left on device\): set BRAID_CACHE_DIR to a folder that"
    with pytest.raises(AdapterError, match=said):
        place.build()
    (small_disk / "hog").unlink()
    assert place.find() is None
    assert [path.name for path in small_disk.iterdir() if path.name.startswith(".building")] == []
    assert place.build().is_relative_to(small_disk)


def test_a_full_disk_hides_no_compile_error(place: Place, small_disk: Path) -> None:
    failed = subprocess.CompletedProcess(["c++"], 1, "a.cc:1: error: what was wrong\n" + "x" * (1 << 20))
    with pytest.raises(AdapterError, match=r"cannot be kept in .*\.log: No space left .*\n  .*what was wrong"):
        adapter_build._raise_on_failure([failed], small_disk / "a.log")


def test_a_compiler_that_finds_the_disk_full_is_given_another_folder(tmp_path: Path) -> None:
    output = "fatal error: error writing to /tmp/ccXY.s: No space left on device\n"
    with pytest.raises(AdapterError, match=r"No space left on device\n  set BRAID_CACHE_DIR to .* or TMPDIR"):
        adapter_build._raise_on_failure([subprocess.CompletedProcess(["c++"], 1, output)], tmp_path / "a.log")


@pytest.mark.parametrize("error", [OSError(28, os.strerror(28)), OSError(30, os.strerror(30)), OSError(13, "no")])
def test_whatever_cannot_be_written_is_an_adapter_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for owner, name in ((adapter_build, "_compile"), (Path, "replace"), (Path, "chmod")):
        usual = getattr(owner, name)
        monkeypatch.setattr(owner, name, fail)
        with pytest.raises(AdapterError, match=re.escape(str(error.strerror))):
            place.build()
        monkeypatch.setattr(owner, name, usual)
    assert place.build() == adapter_place(place.torch, place.package, COMPILER)


def test_where_nothing_can_be_written_it_is_an_adapter_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "why_not_cache", lambda folder: f"{folder} is no good")
    with pytest.raises(AdapterError, match=r"to keep code in \(.*cache is no good; .* is no good\): set BRAID_"):
        cache_dir()


def test_a_process_has_one_folder_of_last_resort(place: Place) -> None:
    place.cache.mkdir()
    place.cache.chmod(0o777)
    (place.temporary / f"braid-{os.getuid()}").mkdir()
    (place.temporary / f"braid-{os.getuid()}").chmod(0o777)
    assert cache_dir() == cache_dir()
    assert place.build().is_relative_to(cache_dir())
    assert place.find() is not None


# ---- kernels for GPUs


def test_damaged_kernels_are_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def compile_text(*_: object) -> bytes:
        made.append(1)
        return CODE

    monkeypatch.setattr(nvrtc, "library", lambda: SimpleNamespace())
    monkeypatch.setattr(nvrtc, "version", lambda nvrtc: (13, 0))
    monkeypatch.setattr(nvrtc, "compile_text", compile_text)
    path = kernels.compiled((9, 0), folder=tmp_path)
    assert kernels.compiled((9, 0), folder=tmp_path) == path
    assert (len(made), content_of(path), list(tmp_path.iterdir())) == (1, CODE, [path])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="it is damaged"):
        content_of(path)
    assert kernels.compiled((9, 0), folder=tmp_path) == path
    assert (len(made), content_of(path)) == (2, CODE)
    path.chmod(0o666)
    kernels.compiled((9, 0), folder=tmp_path)
    assert len(made) == 3

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    path.unlink()
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(nvrtc.NvrtcError, match=r"No space left on device.*set BRAID_CACHE_DIR"):
        kernels.compiled((9, 0), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_seal_leaves_a_library_loadable(tmp_path: Path) -> None:
    from braid import _core

    library = tmp_path / "copy.so"
    library.write_bytes(seal(Path(_core.__file__).read_bytes()))
    assert content_of(library) == Path(_core.__file__).read_bytes()
    code = f"import ctypes; ctypes.CDLL({str(library)!r})"
    preload = {"LD_LIBRARY_PATH": str(Path(_core.__file__).parent / "lib")}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **preload})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_told_with_the_folder_in_use(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.cache.mkdir(mode=0o500)
    assert cache.cache_dir() == place.temporary / f"braid-{os.getuid()}"
    assert cache.cache_dir() == place.temporary / f"braid-{os.getuid()}"
    assert capsys.readouterr().err.count("is not kept in") == 1


def test_a_cache_that_is_a_file_is_told_with_the_folder_in_use(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.cache.touch()
    in_use = place.temporary / f"braid-{os.getuid()}"
    assert cache.cache_dir() == cache.cache_dir() == in_use
    line = (
        f"braid: code is not kept in {place.cache}, but in {in_use}: {place.cache} cannot be written (File exists)"
    )
    assert capsys.readouterr().err.splitlines() == [line]
