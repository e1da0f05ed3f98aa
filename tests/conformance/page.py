# SPDX-License-Identifier: Apache-2.0
"""Writes docs/conformance.md: the measured cells of braid beside Gloo, and the numbers of the suite's lists.

    python tests/conformance/page.py            # measures again and writes
    python tests/conformance/page.py braid      # measures braid alone and keeps Gloo's half

The page is its own record: `read` gives back the verdicts that `render` was given.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import lists
import torch
from cells import DTYPES, REDUCING, REDUCTIONS, SUMMING
from contestants import CONTESTANTS, WORLD_SIZES
from measure import BACKENDS, CRASHES, HANGS, REFUSED, RIGHT, WRONG, Key, all_keys, measure, verdicts_of
from moving_cells import MOVING
from special_cells import SPECIAL

PATH = Path(__file__).parents[2] / "docs" / "conformance.md"
VERDICTS = (RIGHT, REFUSED, WRONG, HANGS, CRASHES)
# Dtypes that share a name on the page. It stands for all of them; a part of them is listed one by one.
FAMILIES = {
    "floats": ["f64", "f32", "f16", "bf16"],
    "float8": ["e4m3", "e5m2"],
    "integers": ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"],
    "complex": ["c64", "c128"],
}
Verdicts = Mapping[str, Mapping[Key, str]]  # by backend, by cell


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def _suite() -> list[str]:
    rows = []
    for name, contestant in CONTESTANTS.items():
        counts = [lists.counts(lists.read(contestant, world_size)) for world_size in WORLD_SIZES]
        rows.append(
            [
                name,
                *("/".join(str(each[verdict]) for verdict in ("passed", "failed", "skipped")) for each in counts),
            ]
        )
    reasons = lists.known_failures()
    known = [
        f"- {why}: " + ", ".join(f"`{test}`" for test in reasons if reasons[test] == why)
        for why in dict.fromkeys(reasons.values())
    ]
    return [
        *_table(["passed/failed/skipped", *(f"{size} ranks" for size in WORLD_SIZES)], rows),
        *(["", "Braid's failures, and why:", "", *known] if known else []),
    ]


def _operations() -> list[tuple[str, str, str]]:
    """Return every row of cells: the start of its keys, reduction ("" if none), operation."""
    return [
        *((f"reduce/{op}/{reduction}", reduction, op) for op in REDUCING for reduction in REDUCTIONS),
        *((f"sum/{op}", "SUM", op) for op in SUMMING),
        *((f"move/{op}", "", op) for op in MOVING),
    ]


def _cells(verdicts: Verdicts) -> list[str]:
    """Return a table that tells which dtypes are not right; operations with the same verdicts share a row."""
    columns = [
        (backend, verdict)
        for backend in BACKENDS
        for verdict in VERDICTS[1:]
        if any(verdict == each for key, each in verdicts[backend].items() if not key.startswith("special/"))
    ]
    rows: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for prefix, reduction, op in _operations():
        cells = tuple(
            _short([dtype for dtype in DTYPES if verdicts[backend][f"{prefix}/{dtype}"] == verdict])
            for backend, verdict in columns
        )
        rows.setdefault(cells, []).append((reduction, op))
    return _table(
        ["", *(f"{backend} {verdict}" for backend, verdict in columns)],
        [[_label(operations), *cells] for cells, operations in rows.items()],
    )


def _label(operations: Sequence[tuple[str, str]]) -> str:
    """Return operations as "MIN, MAX of all_reduce, reduce; broadcast"."""
    by_op: dict[str, list[str]] = {}
    for reduction, op in operations:
        by_op.setdefault(op, []).append(reduction)
    by_reductions: dict[str, list[str]] = {}
    for op, reductions in by_op.items():
        by_reductions.setdefault(", ".join(reductions), []).append(op)
    return "; ".join(
        f"{reductions} of {', '.join(ops)}" if reductions else ", ".join(ops)
        for reductions, ops in by_reductions.items()
    )


def _of_label(label: str) -> set[tuple[str, str]]:
    """Return the operations of a `_label`."""
    found = set()
    for part in label.split("; "):
        reductions, _, ops = part.rpartition(" of ")
        found |= {(reduction, op) for reduction in reductions.split(", ") for op in ops.split(", ")}
    return found


def _short(dtypes: Sequence[str]) -> str:
    """Return dtypes with the names of whole families; "all" for all of them."""
    if len(dtypes) == len(DTYPES):
        return "all"
    whole = {name: family for name, family in FAMILIES.items() if {*family} <= {*dtypes}}
    names = {dtype: name for name, family in whole.items() for dtype in family}
    return " ".join(dict.fromkeys(names.get(dtype, dtype) for dtype in dtypes))


def _of_short(text: str) -> set[str]:
    """Return the dtypes of a `_short`."""
    if text == "all":
        return {*DTYPES}
    return {dtype for name in text.split() for dtype in FAMILIES.get(name, [name])}


def _special(verdicts: Verdicts) -> list[str]:
    """Return the cases in which a backend is not right, and how many others there are."""
    cases: dict[str, list[str]] = {}
    for function in SPECIAL:
        key = f"special/{function.__name__}"
        result = ", ".join(f"{backend} {verdicts[backend][key]}" for backend in BACKENDS)
        cases.setdefault(result, []).append(_bullet(function.__doc__))
    alike = len(cases.pop(", ".join(f"{backend} {RIGHT}" for backend in BACKENDS), []))
    told = [line for result, told in cases.items() for line in ("", f"**{result}**", "", *told)]
    others = f"In {alike} [other cases](../tests/conformance/special_cells.py) all are right."
    return [*told, "", others]


def _bullet(doc: str | None) -> str:
    """Return the first line of a case's docstring as a point of a list."""
    return f"- {(doc or '').splitlines()[0].rstrip('.')}."


def render(verdicts: Verdicts) -> str:
    """Return the page."""
    lines = [
        "# Conformance",
        "",
        "Which operations and dtypes work on braid, beside Gloo, on CPU tensors with torch "
        f"{torch.__version__.split('+')[0]}.",
        "Written by `make conformance-update`; do not edit.",
        "",
        "## PyTorch's own tests",
        "",
        "`torch.testing._internal.distributed.distributed_test`, unmodified; braid by `BRAID_TAKEOVER`. Its tests",
        "of `all_to_all` on CPU tensors are for MPI alone. [Reasons of skips](../tests/conformance/expected).",
        "",
        *_suite(),
        "",
        "## Operations and dtypes",
        "",
        "Three ranks, compared with the exact result. All dtypes that a row does not name are right. Some are",
        "refused with reason: bits of floating-point numbers, the order of complex ones.",
        "",
        "; ".join(f"{name}: {' '.join(family)}" for name, family in FAMILIES.items()) + ".",
        "",
        *_cells(verdicts),
        "",
        "## Special cases",
        *_special(verdicts),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def read(page: str) -> dict[str, dict[Key, str]]:
    """Return the verdicts of a page, by backend and cell."""
    verdicts: dict[str, dict[Key, str]] = {
        backend: {f"special/{function.__name__}": RIGHT for function in SPECIAL} for backend in BACKENDS
    }
    starts = {(reduction, op): prefix for prefix, reduction, op in _operations()}
    specials = {_bullet(function.__doc__): f"special/{function.__name__}" for function in SPECIAL}
    section, heads, result = "", [""], ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif section == "Operations and dtypes" and line.startswith("| "):
            label, *cells = (cell.strip() for cell in line[1:-1].split("|"))
            if not label:
                heads = cells
                continue
            for prefix in (starts[operation] for operation in _of_label(label)):
                for backend in BACKENDS:
                    verdicts[backend] |= {f"{prefix}/{dtype}": RIGHT for dtype in DTYPES}
                for head, cell in zip(heads, cells, strict=True):
                    backend, verdict = head.split()
                    verdicts[backend] |= {f"{prefix}/{dtype}": verdict for dtype in _of_short(cell)}
        elif section == "Special cases" and line.startswith("**"):
            result = line.strip("*")
        elif section == "Special cases" and line in specials:
            for backend, verdict in (each.split() for each in result.split(", ")):
                verdicts[backend][specials[line]] = verdict
    return verdicts


def main() -> None:
    verdicts = read(PATH.read_text()) if PATH.exists() else {}
    for backend in sys.argv[1:] or BACKENDS:
        verdicts[backend] = verdicts_of(measure(backend, all_keys(), tell=True))
    PATH.write_text(render(verdicts))


if __name__ == "__main__":
    main()
