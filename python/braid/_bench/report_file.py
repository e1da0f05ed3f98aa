# SPDX-License-Identifier: Apache-2.0
"""Reports in files: JSON with a schema number, and with the kind of report that it is."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

SCHEMA = 1

Report = TypeVar("Report")


class ReportError(Exception):
    """A file is not a report that this version can read."""


def write_report(path: Path, kind: str, report: Any) -> None:
    """Write a dataclass as JSON. OSError where the file cannot be written."""
    path.write_text(json.dumps({"schema": SCHEMA, "kind": kind, **dataclasses.asdict(report)}, indent=1) + "\n")


def read_report(path: Path, kind: str, make: Callable[[dict[str, Any]], Report]) -> Report:
    """Read what write_report() wrote.

    Args:
        path: the file.
        kind: what it must be.
        make: turns the fields back into the dataclass.

    Raises:
        ReportError: with a line that says what is wrong.
    """
    try:
        data = json.loads(path.read_text())
        if data.pop("schema") != SCHEMA:
            raise ReportError(f"{path} was written by another version of braid bench")
        if (found := data.pop("kind")) != kind:
            raise ReportError(f"{path} is a report of another kind: {found}, not {kind}")
        return make(data)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} is not a report of braid bench") from error
