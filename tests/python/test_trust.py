# SPDX-License-Identifier: Apache-2.0
"""Which folders and files are believed, and that a folder to meet in is one of them."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import braid
import pytest
from braid import _trust
from braid._array.rendezvous.stores import FolderStore
from braid._trust import why_not, why_not_folder

pytestmark = pytest.mark.unit

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "parent" / "own"
    made.mkdir(parents=True)
    (tmp_path / "parent").chmod(0o755)
    made.chmod(0o700)
    return made


def no_private_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trust, "_is_private_group", lambda gid, uid: False)


def test_an_own_folder_is_believed_in_tmp_too(folder: Path) -> None:
    assert why_not_folder(folder) == ""
    folder.parent.chmod(0o1777)
    assert why_not_folder(folder) == ""


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_not(
    folder: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_private_group(monkeypatch)
    folder.chmod(mode)
    said = f"others may write to the folder {folder} (mode {mode:04o}): chmod go-w {folder}"
    assert why_not(folder, folder.stat()) == why_not_folder(folder) == said


def test_nor_one_that_others_may_swap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_private_group(monkeypatch)
    folder.parent.chmod(0o775)
    said = f"others may write to the folder {folder.parent} on the way (mode 0775): chmod go-w {folder.parent}"
    assert why_not_folder(folder) == said
    link = folder.parent.parent / "link"
    link.symlink_to(Path("parent") / "own")
    assert why_not_folder(link) == said
    folder.parent.chmod(0o755)
    assert why_not_folder(link) == ""


@needs_root
def test_nor_a_strangers(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    assert why_not_folder(link) == f"the link {link} belongs to user {STRANGER}"
    file = folder / "file"
    file.touch(0o600)
    os.chown(file, STRANGER, -1)
    assert why_not(file, file.stat()) == f"the file {file} belongs to user {STRANGER}, not to root"
    os.chown(folder, STRANGER, -1)
    assert why_not_folder(folder / "..").startswith(f"the folder {folder} on the way belongs to user {STRANGER}")
    assert why_not_folder(folder) == f"the folder {folder} belongs to user {STRANGER}, not to root"
    assert why_not(folder, folder.stat()) == f"the folder {folder} belongs to user {STRANGER}, not to root"


@needs_root
def test_roots_folders_in_a_user_namespace_look_like_nobodys(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seen from inside, as root's own number means nothing there.
    os.chown(folder.parent, 65534, -1)
    assert "on the way belongs to nobody" in why_not_folder(folder)
    monkeypatch.setattr(_trust, "_unmapped_uid", lambda: 65534)
    assert "on the way belongs to nobody" in why_not_folder(folder)  # for we may write there
    monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)
    assert why_not_folder(folder) == ""
    os.chown(folder, 65534, -1)
    assert why_not_folder(folder) != ""


def test_what_is_missing_or_no_file_is_said(folder: Path) -> None:
    assert (
        why_not_folder(folder / "missing")
        == f"{folder / 'missing'} cannot be looked at (No such file or directory)"
    )
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    assert why_not(pipe, pipe.stat()) == f"{pipe} is neither a folder nor a plain file"
    loop = folder / "loop"
    loop.symlink_to(loop)
    assert "Too many levels of symbolic links" in why_not_folder(loop)


def test_a_private_group_counts_as_its_user(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.chmod(0o770)
    user = SimpleNamespace(pw_name="ann", pw_gid=folder.stat().st_gid)
    monkeypatch.setattr(_trust.pwd, "getpwuid", lambda uid: user)

    def group(name: str, members: list[str]) -> bool:
        monkeypatch.setattr(_trust.grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=name, gr_mem=members))
        return why_not(folder, folder.stat()) == ""

    assert group("ann", [])
    assert group("ann", ["ann"])
    assert not group("ann", ["ann", "bob"])
    assert not group("project", [])
    user.pw_gid += 1
    assert not group("ann", [])
    # An access list may name anybody.
    user.pw_gid -= 1
    monkeypatch.setattr(_trust, "_has_access_list", lambda path: True)
    assert not group("ann", [])


# ---- a folder to meet in


def test_a_folder_to_meet_in_is_made_private(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path / "deep" / "meet"))
    assert stat.S_IMODE((tmp_path / "deep" / "meet").stat().st_mode) == 0o700
    store.set("a key/with : marks", b"value")
    assert store.get("a key/with : marks", 1) == b"value"
    with pytest.raises(TimeoutError, match="there is no"):
        store.get("other", 0.01)
    assert len(list((tmp_path / "deep" / "meet").iterdir())) == 1


def test_ranks_do_not_meet_where_others_may_write(folder: Path) -> None:
    store = FolderStore(str(folder))
    folder.chmod(0o777)
    for use in (
        lambda: FolderStore(str(folder)),
        lambda: store.set("key", b"value"),
        lambda: store.get("key", 0),
    ):
        with pytest.raises(
            braid.CommunicatorError, match=rf"others may write to the folder .* chmod go-w {folder}.*give a folder"
        ):
            use()
    with pytest.raises(braid.CommunicatorError, match=r"ranks cannot meet in the folder /tmp: others may write"):
        FolderStore("/tmp")


@needs_root
def test_nor_in_a_strangers_folder_nor_by_a_strangers_file(folder: Path) -> None:
    store = FolderStore(str(folder))
    store.set("key", b"value")
    os.chown(folder / "key", STRANGER, -1)
    with pytest.raises(braid.CommunicatorError, match=f"belongs to user {STRANGER}"):
        store.get("key", 0)
    os.chown(folder, STRANGER, -1)
    with pytest.raises(braid.CommunicatorError, match=f"belongs to user {STRANGER}"):
        store.get("key", 0)


def test_a_key_is_neither_a_link_nor_a_pipe_nor_endless(folder: Path) -> None:
    store = FolderStore(str(folder))
    (folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(braid.CommunicatorError, match="Too many levels of symbolic links"):
        store.get("link", 0)
    os.mkfifo(folder / "pipe")
    with pytest.raises(braid.CommunicatorError, match="neither a folder nor a plain file"):
        store.get("pipe", 0)
    with (folder / "endless").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "endless").chmod(0o600)
    with pytest.raises(braid.CommunicatorError, match="more than the 1048576 bytes"):
        store.get("endless", 0)
