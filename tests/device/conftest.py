# SPDX-License-Identifier: Apache-2.0
"""Builds the simulated device before its tests. Rank processes alone load it, because it changes torch."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "multiprocess"))  # ranks.py


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(HERE in item.path.parents for item in session.items) and not session.config.option.collectonly:
        from ranks import prepare_ranks

        prepare_ranks()


@pytest.fixture(scope="session", autouse=True)
def simulated_device() -> None:
    """Compile the device, unless the cache has it."""
    import simulated

    simulated.build()
