# SPDX-License-Identifier: Apache-2.0
"""What predictions assume about learning. Nobody knows it before a training, so it is said beside each advice."""

import math
from dataclasses import dataclass

MOST_STEPS = 500  # alone; Douillard et al. 2023 found no large loss up to there


_MEASURED = "measured once, with one small network: bench/strategies/time_to_accuracy"
SOURCES = {
    "stale_loss": f"asynchronous server, 4 workers: 1.41 times the samples; {_MEASURED}. That the mean staleness "
    "counts, not the largest: Koloskova et al. 2022, Mishchenko et al. 2022",
    "drift_loss": f"LocalSGD, period 10: 1.16 times the samples; {_MEASURED}. For gossip and elastic averaging no "
    "number was measured: they lose what LocalSGD loses that drifts as far, as Kong et al. 2021 suggest",
}


@dataclass(frozen=True)
class Assumptions:
    """How much less a sample teaches when workers do not meet in each step.

    Attributes:
        stale_loss: per update that comes between a pull and its push.
        drift_loss: per step of the drift after the first one; see drift.py.
    """

    stale_loss: float = 0.14
    drift_loss: float = 0.018

    def loss(self, staleness: float, alone: float) -> float:
        """Return by which part more samples are needed; 0 is as many as with a plain all-reduce."""
        return self.stale_loss * staleness + self.drift_loss * (alone - 1)

    def period(self, compute_s: float, exchange_s: float) -> int:
        """Return after how many steps alone an exchange is worth most, at least 1.

        A step of period H takes ``compute_s + exchange_s / H``, and a sample is worth
        ``1 / (1 + drift_loss * (H - 1))`` of one. Their product is best where H is the root of
        ``exchange_s * (1 - drift_loss) / (compute_s * drift_loss)``.

        Example:
            >>> Assumptions(drift_loss=0.02).period(compute_s=0.01, exchange_s=0.02)
            10
        """
        if not compute_s * self.drift_loss:
            return MOST_STEPS
        best = math.sqrt(exchange_s * max(0.0, 1 - self.drift_loss) / (compute_s * self.drift_loss))
        return max(1, min(MOST_STEPS, round(best)))

    def sources(self) -> dict[str, str]:
        """Return for each number where it is from: SOURCES, or "given"."""
        usual = Assumptions()
        return {
            name: source if getattr(self, name) == getattr(usual, name) else "given"
            for name, source in SOURCES.items()
        }

    def times(self, factor: float) -> "Assumptions":
        """Return them with losses that are so many times larger."""
        return Assumptions(factor * self.stale_loss, factor * self.drift_loss)
