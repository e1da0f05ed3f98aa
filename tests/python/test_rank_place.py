# SPDX-License-Identifier: Apache-2.0
"""Ranks of labs, braid compare and braid bench find in their environment what torchrun sets."""

import pytest
from braid.lab.rank_place import RankPlace
from braid.lab.this_machine import environments_here

pytestmark = pytest.mark.unit


def test_a_rank_finds_its_place_and_that_a_launcher_started_it(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert RankPlace(rank=5, ranks=8, local=1, local_ranks=4, host=2).variables("10.0.0.1", 29500) == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "braid",  # by which frameworks know a launcher
        "OMP_NUM_THREADS": "3",
    }


def test_each_rank_of_this_machine_finds_them() -> None:
    ranks = [variables for _, variables in environments_here(2, "127.0.0.1", 29500, nodes=2, node=1)]
    assert [variables["RANK"] for variables in ranks] == ["2", "3"]
    assert {variables["GROUP_RANK"] for variables in ranks} == {"1"}
    assert {variables["TORCHELASTIC_RUN_ID"] for variables in ranks} == {"braid"}
