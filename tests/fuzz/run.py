# SPDX-License-Identifier: Apache-2.0
"""Builds the fuzzers and runs each for a while, several at a time; one line for each, and what failed."""

import argparse
import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from parts import dealt  # noqa: E402

HERE = ROOT / "tests" / "fuzz"
BUILD = ROOT / "build" / "fuzz"

# Longest input in bytes: about what a target can make use of.
LONGEST = {
    "peer_texts": 1024,
    "calls": 1024,
    "codec": 6000,
    "greeting": 512,
    "links": 1024,
    "mailbox": 512,
    "rendezvous": 4096,
    "schedule": 2048,
    "topology": 1024,
}
# An input that takes longer is a find; sanitizers and a busy machine make all of them slow.
SLOWEST_S = 20
MOST_MEMORY_MB = 2048


@dataclasses.dataclass
class Fuzzer:
    """One target: its name, and the command that libFuzzer's options are appended to."""

    name: str
    command: list[str]


@dataclasses.dataclass
class Outcome:
    """What a run came to."""

    name: str
    executions: int
    seconds: float
    inputs: str
    features: str
    failure: str = ""

    def line(self) -> str:
        """Return it in one line."""
        work = f"{self.executions} executions in {self.seconds:.0f} s"
        corpus = f"{self.inputs} inputs, {self.features} features"
        return f"{self.name:10} {work}, {corpus}: {self.failure or 'nothing found'}"


def loud(text: str) -> None:
    """Say what nobody should overlook."""
    print(f"*** {text} ***", file=sys.stderr, flush=True)


def get_clang() -> str:
    """Return a clang++ with libFuzzer, or an empty string after saying why there is none."""
    script = [ROOT / "tools" / "get_clang.sh", ROOT / ".venv" / "opt" / "clang"]
    found = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def build(compiler: str, names: Sequence[str]) -> list[Fuzzer]:
    """Build the fuzzers of these targets."""
    configure = ["cmake", "--preset", "fuzz", f"-DCMAKE_CXX_COMPILER={compiler}"]
    subprocess.run(configure, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    fuzzers = [f"{name}_fuzz" for name in names]
    subprocess.run(["cmake", "--build", BUILD, "--target", *fuzzers], cwd=ROOT, check=True)
    return [Fuzzer(name, [str(BUILD / "tests" / "fuzz" / f"{name}_fuzz")]) for name in names]


def get_python_fuzzers(wanted: Sequence[str]) -> list[Fuzzer]:
    """Return those of Python code, which atheris runs, where it can be had."""
    script = HERE / "rendezvous_fuzz.py"
    if "rendezvous" not in wanted or not script.exists():
        return []
    if subprocess.run([sys.executable, "-c", "import atheris"], stderr=subprocess.DEVNULL, check=False).returncode:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "atheris"]
        done = subprocess.run(install, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            loud(f"THE PYTHON FUZZER WAS SKIPPED: atheris could not be installed: {reason}")
            return []
    return [Fuzzer("rendezvous", [sys.executable, str(script)])]


def last(pattern: str, text: str, otherwise: str) -> str:
    """Return what the pattern's group matched last."""
    found = re.findall(pattern, text)
    return found[-1] if found else otherwise


def run(fuzzer: Fuzzer, seconds: int) -> Outcome:
    """Run one fuzzer from the committed corpus; what it adds is kept in the build folder."""
    kept, finds = BUILD / "corpus" / fuzzer.name, BUILD / "finds"
    for folder in (kept, finds):
        folder.mkdir(parents=True, exist_ok=True)
    log_path = BUILD / f"{fuzzer.name}.log"
    options = [
        *(str(folder) for folder in (kept, HERE / "corpus" / fuzzer.name) if folder.exists()),
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST.get(fuzzer.name, 4096)}",
        f"-timeout={SLOWEST_S}",
        f"-rss_limit_mb={MOST_MEMORY_MB}",
        f"-artifact_prefix={finds}/{fuzzer.name}-",
        "-print_final_stats=1",
    ]
    if (dictionary := HERE / "dictionaries" / f"{fuzzer.name}.txt").exists():
        options.append(f"-dict={dictionary}")
    begun = time.monotonic()
    with log_path.open("w") as log:
        status = subprocess.run(
            [*fuzzer.command, *options], cwd=BUILD, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode
    spent = time.monotonic() - begun
    text = log_path.read_text(errors="replace")
    outcome = Outcome(
        fuzzer.name,
        int(last(r"stat::number_of_executed_units:\s*(\d+)", text, last(r"(?m)^#(\d+)\s", text, "0"))),
        spent,
        last(r"corp: (\d+)/", text, "0"),
        last(r" ft: (\d+)", text, "0"),
    )
    if status != 0:
        artifact = last(r"Test unit written to (\S+)", text, "")
        what = f"the input is {artifact}" if artifact else f"ended with status {status}"
        outcome.failure = f"FAILED, {what}, see {log_path}"
    elif outcome.executions == 0:
        outcome.failure = f"FAILED, nothing was run, see {log_path}"
    print(outcome.line(), flush=True)
    return outcome


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(sorted(LONGEST))
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {names}; all if none")
    parser.add_argument("--part", metavar="K/N", help="only part K of N of the targets")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    options = parser.parse_args(arguments)
    if unknown := set(options.targets) - set(LONGEST):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 0 when nothing was found."""
    options = parse(arguments)
    wanted = options.targets or dealt(sorted(LONGEST), options.part or "1/1")
    missing = 0
    fuzzers = get_python_fuzzers(wanted)
    native = [name for name in wanted if name != "rendezvous"]
    if native:
        if compiler := get_clang():
            fuzzers = build(compiler, native) + fuzzers
        else:
            loud("THE FUZZERS WERE SKIPPED: there is no clang with libFuzzer, see above")
            missing = int(os.environ.get("CI") == "true")
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda fuzzer: run(fuzzer, options.seconds), fuzzers))
    failed = [outcome for outcome in outcomes if outcome.failure]
    print(f"fuzz: {len(outcomes) - len(failed)} targets held, {len(failed)} failed", flush=True)
    return int(bool(failed)) or missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
