# SPDX-License-Identifier: Apache-2.0
"""Checks that arrows between the folders of csrc point down, that a few things stay in their place, and names."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Folder -> what it does, and the folders above it that it may include, besides itself and base. This table is the
# law; PAGE lists the folders. A row allows nothing that its folder does not need: a new arrow is added here,
# where a reviewer sees it.
LAYERS: dict[str, tuple[str, str]] = {
    "base": (
        "Status, dtypes, clock, environment, log, SHA-256, limits for input from outside, a store's interface",
        "",
    ),
    "schedule": ("[schedules](schedule.md): builder, text form, order of messages", ""),
    "topology": ("hosts, links, NICs", ""),
    "memory": ("shared segments, pools", ""),
    "reduce": ("reduction of k sources in one pass, conversion of floats", ""),
    "codec": ("lossy [codecs](codecs.md)", ""),
    "low_rank": ("PowerSGD's products of matrices: equal bits on all CPUs", "reduce"),
    "rules": ("update rules of parameters: SGD, Adam, elastic and others", ""),
    "bucket": ("many tensors as one vector", "codec reduce"),
    "cuda": ("codecs, buckets and copies [on GPUs](cuda.md)", "codec"),
    "planner": ("draws schedules of all [algorithms](algorithms.md)", "schedule"),
    "verify": ("proves schedules, or says why not", "schedule"),
    "cost": (
        "time of a schedule; shares for unequal NICs; size of chunks",
        "schedule topology",
    ),
    "tuner": (
        "prices candidates, keeps the reason of its choice",
        "planner verify cost schedule topology codec",
    ),
    "transport": (
        "mailbox, [wires](transport.md) and their channels, reactor, death watch",
        "memory schedule",
    ),
    "executor": (
        "runs one node's part of a VerifiedSchedule",
        "schedule verify transport reduce codec memory",
    ),
    "options": ("settings of a group, stated links", "topology"),
    "links": (
        "[links](links.md) and processors: measured, remembered, watched",
        "options tuner cost executor transport reduce codec schedule topology",
    ),
    "engine": (
        "what the groups of a process share",
        "options links transport memory",
    ),
    "rendezvous": (
        "how a group's ranks find each other, and get wires",
        "options links engine transport memory schedule topology",
    ),
    "communicator": (
        "the interface of a group: operations, works, statistics",
        "engine options tuner codec schedule",
    ),
    "aggregator": (
        "[aggregators](aggregators.md), and all_reduces through them",
        "communicator rendezvous links options transport memory schedule",
    ),
    "group": (
        "a group: order, messages, choice of algorithm, replans, failure",
        "aggregator communicator rendezvous engine links executor tuner transport codec schedule",
    ),
    "parameters": (
        "the [parameter service](parameters.md)",
        "rules codec memory communicator rendezvous engine options transport",
    ),
    "interpreter": ("signals of Python, for waits", "communicator options"),
    "c10d": ("torch.distributed adapter: it alone sees torch", "interpreter communicator cuda"),
    "python": (
        "module `_core`, without torch",
        "parameters aggregator interpreter communicator links options executor cost verify planner cuda bucket "
        "rules low_rank codec schedule",
    ),
}
ALLOWED = {folder: set(others.split()) for folder, (_, others) in LAYERS.items()}
PAGE = "docs/overview.md"

# What, where it may be (prefixes of paths below csrc), and what to do instead.
PLACES: list[tuple[str, tuple[str, ...], str]] = [
    (r'#\s*include\s*[<"](torch|ATen|c10|caffe2)/', ("c10d/",), "torch is seen in c10d/ alone"),
    (r'#\s*include\s*[<"]pybind11/', ("python/", "c10d/"), "pybind11 is seen in python/ and c10d/ alone"),
    (r'#\s*include\s*[<"]mpi\.h', ("transport/mpi/",), "mpi.h is seen in transport/mpi/ alone"),
    (r'#\s*include\s*[<"](cuda|nccl)\w*\.h', ("cuda/",), "CUDA headers are seen in cuda/ alone"),
    (
        # Also torch's own folders for one vendor: c10/cuda, ATen/hip, torch/csrc/xpu.
        r'#\s*include\s*[<"]((c10|ATen|torch/csrc)/(cuda|cudnn|hip|miopen|xpu|mps|mtia)/|(hip|rccl|sycl|level_zero|acl|'
        r"oneapi|Metal)[\w/.]*)|\bProcessGroup(NCCL|XCCL)\b",
        (),
        "the adapter has no vendor's header: use torch's interfaces for any device (c10d/device.h)",
    ),
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


def listed() -> str:
    """Return the folders as PAGE lists them."""
    return "\n".join(f"- `{folder}`: {what}" for folder, (what, _) in LAYERS.items())


def check_page(page: Path) -> list[str]:
    """Return one line if a page does not list the folders as they are."""
    if f"\n\n{listed()}\n\n" in page.read_text():
        return []
    return [f"{PAGE}: the list of folders is old: put there what `python tools/check_layers.py --list` prints"]


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
    if "--list" in sys.argv[1:]:
        print(listed())
        sys.exit()
    house = Path(__file__).resolve().parent.parent
    problems = check(house) + check_idle(house) + check_page(house / PAGE)
    print("\n".join(problems) if problems else "check_layers: every arrow points down")
    sys.exit(bool(problems))
