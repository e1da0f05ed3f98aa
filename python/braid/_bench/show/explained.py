# SPDX-License-Identifier: Apache-2.0
"""The sentences below the table of ``braid explain``: its columns, why a choice was made, what would gain."""

from typing import Any

from braid import _core
from braid._bench.show import units

LEGEND = (
    "algorithm: the algorithm that moves the data (docs/algorithms.md)",
    "segments: parts of the vector that are under way one behind the other, so that steps overlap",
    "chunk: the bytes that one step of one segment sends at once",
    "shares: the part of the vector that each rank or host sums; a slow card gets a small one",
)
_PLAIN = "ring"  # in equal parts, as other backends sum
_CODEC = "int8"  # whose gain is told as an example
_NOTHING = 1.05  # gains below 5 % are none: links vary more
_SUMS = ("sum", "avg")


def legend(answers: list[dict[str, Any]]) -> list[str]:
    """Return a line for each column, and for shares if an answer has them."""
    has_shares = any(answer["shares"] for answer in answers)
    return [line for line in LEGEND if has_shares or not line.startswith("shares")]


def why(size_bytes: int, answer: dict[str, Any]) -> str:
    """Return one sentence: why this algorithm was chosen for this size."""
    chosen, size = answer["algorithm"], units.size(size_bytes)
    if not answer["runners_up"]:
        return f"why {chosen} for {size}: no other algorithm is allowed or possible"
    second = min(answer["runners_up"], key=lambda one: float(one["predicted_s"]))
    ratio = second["predicted_s"] / answer["predicted_s"] if answer["predicted_s"] > 0 else 1.0
    if ratio < _NOTHING:
        reason = f"none is faster by prediction; {second['algorithm']} would take as long"
    else:
        reason = f"the next, {second['algorithm']}, would take {ratio:.2f} times as long by prediction"
    shares = "; hosts with slow cards sum smaller shares" if len(set(answer["shares"])) > 1 else ""
    return f"why {chosen} for {size}: {reason}{shares}"


def gains(
    topology: str, collective: str, dtype: str, op: str, size_bytes: int, answer: dict[str, Any]
) -> list[str]:
    """Return what this choice gains over a ring in equal parts, and what compression would gain.

    Args:
        topology: the cluster, as Communicator.topology() writes it.
        collective: its name; there are lines for all_reduce only.
        dtype: of the elements.
        op: of the reduction.
        size_bytes: of the vector.
        answer: what the tuner explained for it, without codec and with free choice.
    """
    hosts = len(set(topology.partition("\n")[0].removeprefix("topology hosts=").split(",")))
    if collective != "all_reduce" or not answer["runners_up"] or size_bytes == 0:
        return []
    size = units.size(size_bytes)
    if hosts == 1:
        return ["one host: ranks share memory, and there is nothing to compress"]
    ring = _core.Tuner(topology, _PLAIN).explain(collective, dtype, op, 0, size_bytes)
    factor = ring["predicted_s"] / answer["predicted_s"]
    if factor >= _NOTHING:
        lines = [f"gain for {size}: {factor:.2f} times as fast as a ring in equal parts"]
    elif hosts == 2:
        lines = [
            f"no gain for {size} with exact sums: of two hosts each must send the whole vector to the other, "
            "whatever the algorithm"
        ]
    else:
        lines = [f"no gain for {size} with exact sums: a ring in equal parts is as fast on these links"]
    try:
        coded = _core.Tuner(topology, "").explain(collective, dtype, op, 0, size_bytes, _CODEC)
    except ValueError:  # integers, or another operation than a sum
        return lines
    gain = answer["predicted_s"] / coded["predicted_s"]
    if gain >= _NOTHING and op in _SUMS:
        lines.append(
            f"with compression by {_CODEC}: {gain:.1f} times as fast as exact (braid run --compression auto)"
        )
    return lines
