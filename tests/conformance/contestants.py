# SPDX-License-Identifier: Apache-2.0
"""Who runs PyTorch's suite: Gloo, and braid under the names that the suite knows."""

from dataclasses import dataclass

# The torch whose suite the lists are of: the Makefile's.
TORCH = "2.13.0"
# An odd one, an even one, and the smallest that the suite's tests of groups accept.
WORLD_SIZES = (3, 4, 8)


@dataclass(frozen=True)
class Contestant:
    """A backend, and the name under which the suite asks for it."""

    name: str
    backend: str
    takeover: bool

    def environment(self, world_size: int) -> dict[str, str]:
        """Return the variables that the suite, and the takeover, read while they are imported."""
        return {
            "BACKEND": self.backend,
            "WORLD_SIZE": str(world_size),
            "BRAID_TAKEOVER": self.backend if self.takeover else "",
            "BRAID_QUIET": "1",  # every test starts a job
            # The same tests everywhere, with as many threads as ranks: a GPU would enable others.
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",  # reasons of skips print sets
        }


GLOO = Contestant("gloo", "gloo", takeover=False)
# The suite runs all_to_all on CPU tensors for MPI alone, so braid plays that part too.
BRAID = (
    Contestant("braid-as-gloo", "gloo", takeover=True),
    Contestant("braid-as-mpi", "mpi", takeover=True),
)
CONTESTANTS = {contestant.name: contestant for contestant in (GLOO, *BRAID)}
