# SPDX-License-Identifier: Apache-2.0
"""The operations that can be measured. Size and bus bandwidth mean what nccl-tests mean, where it has them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Collective:
    """One operation, as it is measured."""

    name: str
    summary: str
    size: str  # of which memory the size is
    bus_formula: str  # bus bandwidth over algorithm bandwidth; nothing where no bytes are moved
    blocks_in: bool = False  # the input has one block for each rank
    blocks_out: bool = False
    rooted: bool = False  # rank 0 is the root; some ranks could run ahead, so calls begin at set times
    reduces: bool = False
    in_place: bool = False  # what users do, unless told otherwise
    both_ways: bool = False  # can be measured in place and out of place
    message: bool = False  # between two ranks: there is no algorithm to choose
    calls: str = ""  # how calls follow each other, where it is not as for the others

    def bus_factor(self, ranks: int) -> float:
        """Return what algorithm bandwidth is multiplied with."""
        others = (ranks - 1) / ranks if ranks > 1 else 1.0
        return {"2(n-1)/n": 2 * others if ranks > 1 else 1.0, "(n-1)/n": others}.get(self.bus_formula, 1.0)


_ALL = (
    Collective(
        "all_reduce",
        "Combine all ranks' vectors, on all ranks.",
        "the tensor of one rank; its result is as large",
        "2(n-1)/n",
        reduces=True,
        in_place=True,
        both_ways=True,
    ),
    Collective(
        "all_gather",
        "Collect all ranks' blocks, on all ranks.",
        "the gathered output, which every rank gets; a rank gives one n-th of it",
        "(n-1)/n",
        blocks_out=True,
        both_ways=True,
    ),
    Collective(
        "reduce_scatter",
        "Combine all ranks' vectors, one block of the result to each.",
        "the input of one rank, of which it gets one n-th back, reduced",
        "(n-1)/n",
        blocks_in=True,
        reduces=True,
    ),
    Collective(
        "all_to_all",
        "Send a different block from each rank to each.",
        "the input of one rank, and its output too: one block for, and one from, each rank, itself included",
        "(n-1)/n",
        blocks_in=True,
        blocks_out=True,
    ),
    Collective(
        "broadcast",
        "Copy rank 0's vector to all.",
        "the tensor that the root has and all others get",
        "1",
        rooted=True,
        in_place=True,
    ),
    Collective(
        "reduce",
        "Combine all ranks' vectors, on rank 0.",
        "the tensor of one rank; the root's result is as large",
        "1",
        rooted=True,
        reduces=True,
        in_place=True,
        both_ways=True,
    ),
    Collective(
        "gather",
        "Collect all ranks' blocks, on rank 0.",
        "the root's whole output; a rank gives one n-th of it",
        "(n-1)/n",
        blocks_out=True,
        rooted=True,
    ),
    Collective(
        "scatter",
        "Send a block of rank 0's vector to each.",
        "the root's whole input; a rank gets one n-th of it",
        "(n-1)/n",
        blocks_in=True,
        rooted=True,
    ),
    Collective(
        "barrier",
        "Wait until all ranks have come.",
        "nothing: no data are moved, so there are no sizes and no rates",
        "",
    ),
    Collective(
        "send_recv",
        "Send to the next rank and receive from the one before, at once.",
        "the message that each rank sends to the next one; one as large comes from the one before",
        "1",
        message=True,
    ),
    Collective(
        "ping_pong",
        "Send from rank 0 to rank 1 and back; half the time of it.",
        "the message, which goes from rank 0 to rank 1 and back",
        "1",
        message=True,
        calls="The time is half of that for the round trip between ranks 0 and 1; calls run back to back.",
    ),
)

COLLECTIVES = {collective.name: collective for collective in _ALL}
