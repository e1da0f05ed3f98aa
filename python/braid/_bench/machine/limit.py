# SPDX-License-Identifier: Apache-2.0
"""The least time that the memory of one host allows a collective: what a measured time may be compared with."""

from dataclasses import dataclass

from braid._bench.machine.bandwidth import Rates

# A shorter limit is none: calls, wake-ups and cache lines on their way take as long.
LEAST_US = 1.0


@dataclass(frozen=True)
class _Work:
    # All in bytes per byte of the case's size, of all ranks together.
    summed: float = 0.0  # read and written by reductions
    copied: float = 0.0  # payload of copies
    touched: float = 0.0  # memory of inputs and outputs


def limit_us(
    collective: str, nbytes: int, ranks: int, in_place: bool, rates: Rates, alone: Rates | None = None
) -> float | None:
    """Return the time in microseconds below which a collective on one host cannot come, as its memory is.

    The model: whatever the algorithm, every sum is formed once, by a pass that reads n operands and writes one
    result, and everything that must get from one place to another is copied at least once, straight from the one
    rank's memory into the other's. All ranks share the work evenly, waiting for nobody. S is the size, n the
    number of ranks; the memory read and written by sums, and the bytes copied, are

    ==============  ==========================  =======================  ====================
    collective      read and written by sums    copied                   copied, in place
    ==============  ==========================  =======================  ====================
    all_reduce      (n+1) S                     (n-1) S                  (n-1) S
    reduce_scatter  (n+1) S                     0                        0
    reduce          (n+1) S                     0                        0
    broadcast       0                           (n-1) S                  (n-1) S
    all_gather      0                           n S                      (n-1) S
    all_to_all      0                           n S                      (n-1) S
    gather          0                           S                        (n-1)/n S
    scatter         0                           S                        (n-1)/n S
    send_recv       0                           n S                      n S
    ==============  ==========================  =======================  ====================

    An addition moves 3 bytes per byte of payload, so with the rates A of additions and C of copies, of all ranks
    together, the limit is sums / 3A + copied / C; for all_reduce on two ranks, S/A + S/C. ping_pong, one message,
    is copied by one process while the other waits: S over its rate alone.

    The rates are those of buffers that together are as large as all inputs and outputs, so that what fits into
    caches runs at their speed: repeated calls find their data there. Data out of another core's cache comes
    slower, and the root of a gather may have to copy alone: then the limit is out of reach. It holds for
    algorithms made of such sums and copies; a pass that wrote each sum into all ranks' memory at once would need
    less.

    Args:
        collective: its name, as ``"all_reduce"``; or ``"send_recv"``, where every rank sends to one and receives
            from another, or ``"ping_pong"``.
        nbytes: S: the larger of a rank's input and output, on the rank that has most (as in nccl-tests).
        ranks: n.
        in_place: inputs are where the outputs go.
        rates: of all ranks at the same time.
        alone: of one process while the others wait, for ping_pong.

    Returns:
        None where memory bandwidth says nothing: a barrier, one rank, a limit under a microsecond, ping_pong
        without `alone`, rates of nothing.

    Raises:
        ValueError: there is no such collective.
    """
    work = _work(collective, ranks, in_place)
    size = work.touched * nbytes / ranks / 2  # each rank measured with two buffers
    if collective == "ping_pong":
        if alone is None:
            return None
        rates, size = alone, nbytes
    added, copied = rates.add_at(size), rates.copy_at(size)
    if ranks == 1 or not added or not copied:
        return None
    limit = (work.summed / 3 / added + work.copied / copied) * nbytes * 1e6
    return limit if limit >= LEAST_US else None


def _work(collective: str, n: int, in_place: bool) -> _Work:
    blocks = n * (1 if in_place else 1 + 1 / n)  # every rank's whole vector, and its block of it
    kept = 1 if in_place else 0  # a rank's own block is where it belongs already
    match collective:
        case "all_reduce":
            return _Work(summed=n + 1, copied=n - 1, touched=n if in_place else 2 * n)
        case "reduce_scatter":
            return _Work(summed=n + 1, touched=blocks)
        case "reduce":
            return _Work(summed=n + 1, touched=blocks)  # out of place, the root's result is as large as all blocks
        case "broadcast":
            return _Work(copied=n - 1, touched=n)
        case "all_gather":
            return _Work(copied=n - kept, touched=blocks)
        case "all_to_all":
            return _Work(copied=n - kept, touched=n if in_place else 2 * n)
        case "gather" | "scatter":
            return _Work(copied=(n - kept) / n, touched=2 - kept / n)
        case "send_recv":
            return _Work(copied=n, touched=2 * n)
        case "ping_pong":
            return _Work(copied=1)
        case "barrier":
            return _Work()
        case _:
            raise ValueError(f"there is no model of the memory that {collective!r} needs")
