# SPDX-License-Identifier: Apache-2.0
"""Where a rank of a job runs, as environment variables tell it."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RankPlace:
    """One rank's place in a job.

    Attributes:
        rank: in the job.
        ranks: in the job.
        local: its number among the ranks of its host.
        local_ranks: on its host.
        host: the number of its host.
    """

    rank: int
    ranks: int
    local: int
    local_ranks: int
    host: int

    def variables(self, address: str, port: int) -> dict[str, str]:
        """Return what torchrun sets: the variables of env://, and the one by which frameworks know torchrun.

        Args:
            address: where rank 0 is reached.
            port: of the job's store there.
        """
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_RANK": str(self.local),
            "LOCAL_WORLD_SIZE": str(self.local_ranks),
            "GROUP_RANK": str(self.host),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "braid",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
