# SPDX-License-Identifier: Apache-2.0
"""Files of code in the cache: they are complete, and nobody else may change them.

The SHA-256 of a file is at its end, where the dynamic linker does not look. It is part of the file, so that one
rename puts both in place. It detects files that were cut off or damaged. It does not stop whoever may write to the
file, because they may write the checksum, too. So owner and mode are checked as well.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from braid._trust import why_not, why_not_folder

_MARK = b"\nbraid sha256 "
_SEAL_BYTES = len(_MARK) + hashlib.sha256().digest_size * 2 + 1
_FOR_US_ALONE = 0o700


def seal(content: bytes) -> bytes:
    """Return the content with its checksum appended."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def seal_file(path: Path) -> None:
    """Append the checksum to a finished file, and give access to its owner alone.

    Raises OSError.
    """
    content = path.read_bytes()
    with path.open("ab") as file:
        file.write(seal(content)[len(content) :])
        file.flush()
        os.fsync(file.fileno())  # else an empty file could be in its place after a crash
    path.chmod(_FOR_US_ALONE)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a sealed file, and move it to its place in one step: other processes may do the same.

    Raises OSError.
    """
    number, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with open(number, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(seal(content))
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def content_of(path: Path) -> bytes:
    """Return the content of a sealed file.

    Raises:
        ValueError: it is not trusted; the message says why.
        OSError: it cannot be read.
    """
    if why := why_not_folder(path.parent):
        raise ValueError(why)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if why := why_not(path, os.fstat(file.fileno())):
            raise ValueError(why)
        sealed = file.read()
    content = sealed[:-_SEAL_BYTES]
    if len(sealed) < _SEAL_BYTES or seal(content) != sealed:
        raise ValueError(f"the file {path} does not have the checksum that it was written with: it is damaged")
    return content


def why_not_believed(path: Path) -> str:
    """Return why the code in a sealed file is not trusted; "" if it is trusted, or if there is no such file."""
    if not os.path.lexists(path):
        return ""
    try:
        content_of(path)
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"the file {path} cannot be read ({error.strerror})"
    return ""
