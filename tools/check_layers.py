# SPDX-License-Identifier: Apache-2.0
"""Checks that arrows between the folders of csrc point down, that a few things stay in their place, and names."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Folder -> the folders it may include, besides itself and base. This table is the law; docs/ explains it. A row
# allows nothing that its folder does not need: a new arrow is added here, where a reviewer sees it.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "schedule": set(),
    "topology": set(),
    "memory": set(),
    "reduce": set(),
    "codec": set(),
    "low_rank": {"reduce"},
    "bucket": {"codec", "reduce"},
    "cuda": {"codec"},
    "planner": {"schedule"},
    "verify": {"schedule"},
    "cost": {"schedule", "topology"},
    "tuner": {"planner", "verify", "cost", "schedule", "topology", "codec"},
    "transport": {"memory", "schedule", "codec"},
    "executor": {"schedule", "verify", "transport", "reduce", "codec", "memory"},
    "options": {"topology"},
    "links": {"options", "tuner", "transport", "reduce", "codec", "schedule", "topology"},
    "engine": {"options", "links", "transport", "memory"},
    "rendezvous": {"options", "engine", "transport", "memory", "schedule", "topology"},
    "communicator": {
        *("rendezvous", "engine", "links", "options"),
        *("executor", "tuner", "transport", "memory", "codec", "schedule"),
    },
    "aggregator": {"communicator", "options"},
    "interpreter": {"communicator", "options"},
    "c10d": {"interpreter", "communicator"},
    "python": {
        *(
            "aggregator",
            "interpreter",
            "communicator",
            "links",
            "options",
            "executor",
            "cost",
            "verify",
            "planner",
        ),
        *("cuda", "bucket", "low_rank", "codec", "schedule"),
    },
}

# What, where it may be (prefixes of paths below csrc), and what to do instead.
PLACES: list[tuple[str, tuple[str, ...], str]] = [
    (r'#\s*include\s*[<"](torch|ATen|c10|caffe2)/', ("c10d/",), "torch is seen in c10d/ alone"),
    (r'#\s*include\s*[<"]pybind11/', ("python/", "c10d/"), "pybind11 is seen in python/ and c10d/ alone"),
    (r'#\s*include\s*[<"]mpi\.h', ("transport/mpi/",), "mpi.h is seen in transport/mpi/ alone"),
    (r'#\s*include\s*[<"](cuda|nccl)\w*\.h', ("cuda/",), "CUDA headers are seen in cuda/ alone"),
    (
        r"\b(secure_)?getenv\s*\(|\benviron\b",
        ("base/env.cc",),
        "the environment is read in base/env.cc alone",
    ),
    (
        r"\bstd::(cout|cerr|clog|print|println)\b|(?<![\w.>])(v?f?printf|f?puts|perror)\s*\(",
        (),
        "nothing in csrc prints: log() or return a Status",
    ),
    (
        # A member function may well be called abort(), so only the plain statement counts.
        r"(\bstd|(?<!\w))::(abort|_?exit|_Exit|quick_exit|terminate)\s*\(|(?<![\w.>:])_?exit\s*\(\s*[\dE]"
        r"|^\s*abort\s*\(\s*\)\s*;",
        (),
        "nothing in csrc ends the process: return a Status",
    ),
]

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
_COMMENT = re.compile(r"//.*$|/\*.*?\*/")
_NAMESPACE = re.compile(r"^namespace ?([\w:]*) ?\{$")  # without a name: nobody else sees it
_TYPE = re.compile(r"^(?:struct|class|enum class|union) (\w+)(?: final)?(?: :[^;]*)? ?\{")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def check_file(path: Path, csrc: Path) -> list[str]:
    """Return one line for every rule that a source file breaks."""
    relative = path.relative_to(csrc).as_posix()
    folder = relative.partition("/")[0]
    if folder not in ALLOWED:
        return [f"csrc/{folder}: a new folder needs a row in tools/check_layers.py"]
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"csrc/{relative}:{number}"
        if include := _INCLUDE.match(line):
            other = include[1].partition("/")[0]
            if "/" not in include[1]:
                found.append(f'{where}: write "<folder>/{include[1]}"')
            elif other in ALLOWED and other not in {folder, "base", *ALLOWED[folder]}:
                found.append(f"{where}: {folder} may not include {other}")
        code = _COMMENT.sub("", line)
        code = code if code.lstrip().startswith("#") else _STRING.sub('""', code)
        found += [
            f"{where}: {advice}"
            for pattern, places, advice in PLACES
            if re.search(pattern, code) and not relative.startswith(places or ("\0",))
        ]
    return found


def _types(path: Path) -> Iterator[str]:
    """Yield the types that a file defines in a namespace that others can see, as ``braid::shm::Link``."""
    spaces: list[str] = []
    for line in path.read_text().splitlines():
        if space := _NAMESPACE.match(line):
            spaces.append(space[1])
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        elif (name := _TYPE.match(line)) and all(spaces):
            yield "::".join([*spaces, name[1]])


def check_names(files: list[Path], csrc: Path) -> list[str]:
    """Return one line for every name that two types have: the linker would take one of them for both."""
    places: dict[str, list[str]] = {}
    for path in files:
        for name in _types(path):
            places.setdefault(name, []).append(f"csrc/{path.relative_to(csrc).as_posix()}")
    return [f"{name} is two types: {' and '.join(where)}" for name, where in places.items() if len(where) > 1]


def check_tests(root: Path) -> list[str]:
    """Return one line for every C++ test that no CMakeLists.txt names, and that is never run."""
    return [
        f"{path.relative_to(root)} is not in the CMakeLists.txt beside it"
        for path in sorted((root / "tests" / "cpp").glob("*/*_test.cc"))
        if path.name not in (path.parent / "CMakeLists.txt").read_text()
    ]


def _sources(csrc: Path) -> list[Path]:
    return sorted(path for kind in ("*.h", "*.cc", "*.cu", "*.cuh") for path in csrc.rglob(kind))


def check_idle(root: Path) -> list[str]:
    """Return one line for every folder that a row of the table allows and that no file includes."""
    csrc = root / "csrc"
    used: dict[str, set[str]] = {}
    for path in _sources(csrc):
        includes = (_INCLUDE.match(line) for line in path.read_text().splitlines())
        found = used.setdefault(path.relative_to(csrc).parts[0], set())
        found |= {include[1].partition("/")[0] for include in includes if include}
    return [
        f"csrc/{folder} includes nothing of {other}: remove {other} from its row in tools/check_layers.py"
        for folder, others in ALLOWED.items()
        for other in sorted(others - used.get(folder, set()))
    ]


def check(root: Path) -> list[str]:
    """Return one line for every broken rule below ``root``/csrc, and for every test that is not built."""
    csrc = root / "csrc"
    files = _sources(csrc)
    return (
        [problem for path in files for problem in check_file(path, csrc)]
        + check_names(files, csrc)
        + check_tests(root)
    )


if __name__ == "__main__":
    house = Path(__file__).resolve().parent.parent
    problems = check(house) + check_idle(house)
    print("\n".join(problems) if problems else "check_layers: every arrow points down")
    sys.exit(bool(problems))
