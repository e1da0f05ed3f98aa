# SPDX-License-Identifier: Apache-2.0
"""What communication costs on a cluster, by the cost model that chooses braid's algorithms."""

import re
from collections.abc import Sequence
from functools import cache

from braid import _core

_WITHIN = re.compile(r"^within alpha_s=\S+ beta_s_per_byte=(\S+)", re.MULTILINE)
_BETWEEN = re.compile(r"^between alpha_s=(\S+) beta_s_per_byte=(\S+)", re.MULTILINE)
_CARD = re.compile(r"card (\d+) up_s_per_byte=(\S+) down_s_per_byte=(\S+)")


class Network:
    """A cluster, given by a topology's text form as ``Communicator.topology()`` returns it."""

    def __init__(self, text: str) -> None:
        """Read the text.

        Raises:
            ValueError: it is not the text form of a topology.
        """
        _core.Tuner(text)  # says why a text is none
        self._text = text
        first, *self._lines = text.splitlines()
        self.hosts = [int(host) for host in first.removeprefix("topology hosts=").split(",")]
        within, between = _WITHIN.search(text), _BETWEEN.search(text)
        assert within
        assert between
        self.copy_s_per_byte = float(within[1])  # in the memory of a host
        self.latency_s, usual = float(between[1]), float(between[2])
        cards = {int(card[1]): (float(card[2]), float(card[3])) for card in map(_CARD.match, self._lines) if card}
        self._cards = {host: cards.get(host, (usual, usual)) for host in self.hosts}
        self._all_reduce_s = cache(self._predict)

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(len(self.hosts))

    def up_s_per_byte(self, rank: int) -> float:
        """Return the seconds that this rank's host takes to send a byte to other hosts."""
        return self._cards[self.hosts[rank]][0]

    def down_s_per_byte(self, rank: int) -> float:
        """Return the seconds that this rank's host takes to receive a byte from other hosts."""
        return self._cards[self.hosts[rank]][1]

    def are_on_one_host(self, ranks: Sequence[int]) -> bool:
        """Return whether no byte has to leave a host."""
        return len({self.hosts[rank] for rank in ranks}) <= 1

    def all_reduce_s(self, ranks: Sequence[int], size: int, codec: str = "") -> float:
        """Return the seconds of an all_reduce of float32 in a group of these ranks.

        Args:
            ranks: in rising order.
            size: bytes of the vector.
            codec: the compression between hosts. On one host nothing is compressed.
        """
        if len(ranks) == 1:
            return 0.0
        return self._all_reduce_s(tuple(ranks), size, "" if self.are_on_one_host(ranks) else codec)

    def _predict(self, ranks: tuple[int, ...], size: int, codec: str) -> float:
        kept = {self.hosts[rank] for rank in ranks}
        lines = ["topology hosts=" + ",".join(str(self.hosts[rank]) for rank in ranks)]
        for line in self._lines:
            card = _CARD.match(line)
            if not card or int(card[1]) in kept:
                lines.append(line)
        tuner = _core.Tuner("\n".join(lines) + "\n")
        return float(tuner.explain("all_reduce", "float32", "avg", 0, size, codec)["predicted_s"])
