# SPDX-License-Identifier: Apache-2.0
"""Arrays that ``braid.Parameters`` uses live as long as a server's death may make somebody read them."""

import gc
import weakref

import numpy as np
import pytest
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

ELEMENTS = 1000


def drop_at_once(rank: Rank, rule: str, numbers: dict) -> list[tuple[bool, bool]]:
    """Drop arrays as soon as their request is done; return whether the newest values live, and those before."""
    import braid

    seen = []
    with braid.Parameters(
        f"file://{rank.folder}/parameters", elements=ELEMENTS, rank=rank.rank, size=rank.size, rule=rule
    ) as parameters:
        parameters.start(np.zeros(ELEMENTS, np.float32))
        before = None
        for _ in range(3):
            update, out = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)
            # Elastic workers have no values of the servers. Another server begins with what a worker pushed.
            newest = weakref.ref(update if rule == "elastic" else out)
            parameters.push_pull(update, out, **numbers).wait()
            del update, out
            parameters.snapshot()  # the service has dropped the values before by now, so Python may
            gc.collect()
            seen.append((newest() is not None, before is not None and before() is not None))
            before = newest
    return seen


@pytest.mark.parametrize(("rule", "numbers"), [("sgd", {"rate": 0.1}), ("elastic", {"alpha": 0.5})])
def test_the_newest_values_live_and_older_ones_go(rule: str, numbers: dict) -> None:
    (seen,) = run_ranks(drop_at_once, 1, rule, numbers, join=False)
    assert seen == [(True, False)] * 3
