# SPDX-License-Identifier: Apache-2.0
"""How far workers drift apart that do not average in each step, in one unit for all ways to average.

A step moves each worker by something that others do not share. Let its mean square be 1. With LocalSGD and a
period of H steps a worker's squared distance from the mean grows from 0 to H - 1, and then it is 0 again. Its
average is (H - 1) / 2. Any other way to average has some mean squared distance D, too. It is as far apart as
LocalSGD with a period of 2 D + 1 steps: the drift of that way, in steps alone.

Theory bounds this distance for local steps and for gossip alike: Koloskova et al., "A unified theory of
decentralized SGD with changing topology and local updates", ICML 2020. Kong et al., "Consensus control for
decentralized deep learning", ICML 2021, found that it decides how well a training goes.
"""

from collections.abc import Mapping

import numpy as np


def drift(period: float, kept: float) -> float:
    """Return the drift if an exchange every `period` steps keeps the part `kept` of the squared distance.

    After an exchange the squared distance is v = kept (v + period), so v = kept period / (1 - kept). Until the
    next one it grows by (period - 1) / 2 on average.

    Example:
        >>> drift(10, 0.0), drift(10, 0.5)  # a mean of all; half of the distance stays
        (10.0, 30.0)
    """
    return period * (1 + kept) / (1 - kept)


def drift_from_centre(period: float, alpha: float) -> float:
    """Return the drift if worker and centre approach each other by the part `alpha`, every `period` steps.

    All workers take ``alpha (x - centre)`` away. In the difference of two workers the centre cancels: the part
    ``1 - alpha`` of it stays.
    """
    return drift(period, (1 - alpha) ** 2)


def drift_in_pairs(count: int, rates: Mapping[tuple[int, int], float], steps_per_s: float, lag_s: float) -> float:
    """Return the drift if pairs average.

    A mean of the pair i, j takes ``(x_i - x_j)^2 / 2`` from the sum of squared distances (Boyd et al., "Randomized
    gossip algorithms", 2006). So the rates are the weights of a graph. The eigenvalues of half of its Laplacian
    say how fast distances of each shape shrink.

    Args:
        count: of workers; they are numbered from 0. The pairs connect them all.
        rates: exchanges per second of each pair.
        steps_per_s: of a worker, on average.
        lag_s: how long steps pass that a mean does not contain, because it was on its way.
    """
    if count < 2:
        return 1.0
    laplacian = np.zeros((count, count))
    for (one, other), rate in rates.items():
        for row, column, sign in ((one, one, 1), (other, other, 1), (one, other, -1), (other, one, -1)):
            laplacian[row, column] += sign * rate / 2
    shrink_per_s = np.linalg.eigvalsh(laplacian)[1:]  # the first is 0: exchanges do not change the mean
    round_s = (count // 2) / sum(rates.values())  # until there were as many exchanges as disjoint pairs
    period = max(1.0, steps_per_s * round_s)
    kept = np.clip(1 - round_s * shrink_per_s, 0.0, 1 - 1e-9)
    return float(np.mean([drift(period, each) for each in kept])) + 2 * lag_s * steps_per_s
