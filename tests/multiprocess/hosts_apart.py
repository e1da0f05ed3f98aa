# SPDX-License-Identifier: Apache-2.0
"""Ranks that take themselves for hosts apart, joined by slow links, so that codecs have something to do."""

import os

from ranks import Rank

SLOW = '[between]\nrate = "100mbit"\nlatency = "100us"\n'


def join_apart(rank: Rank, per_host: int = 1, links: str = SLOW) -> None:
    path = rank.folder / f"links.{rank.rank}.toml"
    path.write_text(links)
    os.environ["BRAID_HOST"] = f"host-{rank.rank // per_host}"
    os.environ["BRAID_LINKS"] = str(path)
    rank.join()
