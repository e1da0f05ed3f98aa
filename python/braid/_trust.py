# SPDX-License-Identifier: Apache-2.0
"""Decides which folders and files are trusted: those that only this user and root can change.

A folder is trusted if it belongs to this user or to root, and neither its group nor others may write there. A
user's private group counts as the user. It has the user's name and no other member.

If code is loaded from a folder, every folder on its path must be trusted, too: whoever may rename a folder may
swap everything below it. On the path a sticky folder like /tmp is allowed. All users may write there, but only
owners may rename.

Inside a user namespace the kernel shows root's folders as nobody's, because root has no number there. On the path
such a folder counts as root's if this process may not write there.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_MOST_LINKS = 40  # as in the kernel
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_UID_MAP = Path("/proc/self/uid_map")
_ALL_UIDS = ["0", "0", "4294967295"]


def why_not_folder(path: Path) -> str:
    """Return why code in this folder is not trusted, and what to do about it; "" if it is trusted."""
    try:
        *way, (last, last_info) = _walk(path)
        whys = [_why_not_on_the_way(place, info) for place, info in way if place != last]
        return next(filter(None, whys), "") or why_not(last, last_info)
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"


def why_not(path: Path | str, info: os.stat_result) -> str:
    """Return why a folder or file with this state is not trusted; "" if it is trusted."""
    kind = "folder" if stat.S_ISDIR(info.st_mode) else "file"
    if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
        return f"{path} is neither a folder nor a plain file"
    if info.st_uid not in (0, os.geteuid()):
        return f"the {kind} {path} belongs to {_name(info.st_uid)}, not to {_name(os.geteuid())}"
    if _others_may_write(path, info):
        return f"others may write to the {kind} {path} (mode {_mode(info)}): chmod go-w {path}"
    return ""


def _why_not_on_the_way(place: Path, info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return "" if _owner_counts(place, info) else f"the link {place} belongs to {_name(info.st_uid)}"
    if not stat.S_ISDIR(info.st_mode):
        return f"{place} is no folder"
    if not _owner_counts(place, info):
        return f"the folder {place} on the way belongs to {_name(info.st_uid)}, who could swap what is in it"
    if _others_may_write(place, info) and not info.st_mode & stat.S_ISVTX:
        return f"others may write to the folder {place} on the way (mode {_mode(info)}): chmod go-w {place}"
    return ""


def _walk(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Go from the root to the path. Yield each folder and link that the kernel would go through."""
    place = Path("/")
    yield place, place.lstat()
    left = list((path if path.is_absolute() else Path.cwd() / path).parts[1:])
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            place = place.parent
            continue
        here = place / part
        info = here.lstat()
        yield here, info
        if not stat.S_ISLNK(info.st_mode):
            place = here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = here.readlink()
        if target.is_absolute():
            place = Path("/")
        left[:0] = target.parts[1:] if target.is_absolute() else target.parts
    yield place, place.lstat()


def _owner_counts(place: Path, info: os.stat_result) -> bool:
    if info.st_uid in (0, os.geteuid()):
        return True
    return info.st_uid == _unmapped_uid() and not os.access(place, os.W_OK, effective_ids=True)


def _unmapped_uid() -> int | None:
    """Return the user id that root's files seem to have in a user namespace; None outside a user namespace."""
    try:
        if _UID_MAP.read_text().split() == _ALL_UIDS:
            return None
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return None


def _others_may_write(path: Path | str, info: os.stat_result) -> bool:
    if info.st_mode & stat.S_IWOTH:
        return True
    if not info.st_mode & stat.S_IWGRP:
        return False
    # With an access list the group's bits stand for everyone in the list.
    return _has_access_list(path) or not _is_private_group(info.st_gid, info.st_uid)


def _has_access_list(path: Path | str) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        return error.errno != errno.ENOTSUP


def _is_private_group(gid: int, uid: int) -> bool:
    with contextlib.suppress(KeyError):
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
        return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return False


def _name(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def _mode(info: os.stat_result) -> str:
    return f"{stat.S_IMODE(info.st_mode):04o}"
