# SPDX-License-Identifier: Apache-2.0
"""What ``--explain`` prints: what every column of a benchmark means, for the collective that is measured."""

import textwrap

from braid._bench.collectives import COLLECTIVES, Collective
from braid._bench.results import REFERENCE
from braid._bench.show import units

_WIDTH = 100
_INDENT = " " * 12


def explain(name: str, ranks: int) -> str:
    """Return the definitions of all columns, for the collective of that name and a number of ranks n."""
    collective = COLLECTIVES[name]
    lines = [f"{name}, n = {ranks} ranks", ""]
    for term, meaning in [*_amounts(collective), *_times(collective), *_rates(collective, ranks), *_checks()]:
        lines += textwrap.wrap(meaning, _WIDTH, initial_indent=f"{term:<12}", subsequent_indent=_INDENT)
    return "\n".join(lines)


def _amounts(collective: Collective) -> list[tuple[str, str]]:
    if not collective.bus_formula:
        return [("size", f"{collective.size}.")]
    size = f"Bytes of {collective.size}."
    if collective.blocks_in or collective.blocks_out:
        size += " It is rounded up to a multiple of n x bytes of an element, so that all blocks are equally long."
    return [("size", size), ("count", "Elements in that memory: size / bytes of an element.")]


def _times(collective: Collective) -> list[tuple[str, str]]:
    if collective.calls:
        calls = collective.calls
    elif collective.rooted:
        calls = (
            "Rank 0 is the root. Before each call there is a barrier, which is not timed: without one, ranks that "
            "need not wait for anybody would run ahead, and calls would overlap."
        )
    else:
        calls = "Calls run back to back."
    return [
        (
            "time",
            "Of one call: from the moment the last rank enters it to the moment the last rank returns from it, on "
            f"the machine's common clock. {calls}",
        ),
        (
            "p50 p95 min",
            "Percentiles and minimum of that time, in microseconds, over all timed calls of all rounds.",
        ),
        (
            f"x {REFERENCE}",
            f"Time of the contestant / time of {REFERENCE}: above 1, {REFERENCE} is the faster one. In each round "
            "all contestants run one after another, and the two medians of that round make one ratio, so that a "
            "machine that becomes slower for a while slows both. Shown is the median of these ratios and in "
            "brackets its 95 % interval, from order statistics: it assumes no distribution. If 1 lies inside, the "
            "two cannot be told apart.",
        ),
    ]


def _rates(collective: Collective, ranks: int) -> list[tuple[str, str]]:
    if not collective.bus_formula:
        return [("busbw", "None, nor algbw: a barrier is judged by its time.")]
    factor, formula = units.number(collective.bus_factor(ranks), 3), collective.bus_formula
    shown = f"{formula} = algbw x {factor}" if formula != "1" else formula
    return [
        ("algbw", "size / p50, in GB/s (10^9 bytes per second)."),
        (
            "busbw",
            f"algbw x {shown}. What a link between neighbours would have to carry if the ranks had one each; it "
            "can be compared across numbers of ranks.",
        ),
        (
            "limit",
            "The least time that the machine's memory allows: the bytes that must be read, added and written at "
            "least / the rates at which all ranks together were seen to copy and add before the run, in buffers "
            "as large as theirs, so that small ones lie in caches. '% of limit' is limit / p50.",
        ),
    ]


def _checks() -> list[tuple[str, str]]:
    return [
        (
            "#wrong",
            "Elements of the results that are not what they should be, over all ranks and checks. Anything but 0 "
            "makes the times of that row worthless.",
        ),
        ("algorithm", "What the contestant chose for this size, where it tells."),
        ("predicted", "The p50 that the contestant's own model of costs expects, where it has one."),
        (
            "~",
            "The case is noisy: the footer says why. Run it again on an idle machine, or for longer with --time.",
        ),
    ]
