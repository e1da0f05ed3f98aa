# SPDX-License-Identifier: Apache-2.0
"""Clusters of unequal hosts, emulated on one Linux machine: see `braid lab --help` and docs/lab.md."""

from braid.lab.job import Job, environments
from braid.lab.lab import Host, Lab
from braid.lab.namespaces import unavailable
from braid.lab.spec import HostSpec, LabError, parse_hosts, parse_ranks_per_host, parse_rate
from braid.lab.this_machine import ThisMachine, environments_here, free_port

__all__ = [
    "Host",
    "HostSpec",
    "Job",
    "Lab",
    "LabError",
    "ThisMachine",
    "environments",
    "environments_here",
    "free_port",
    "parse_hosts",
    "parse_ranks_per_host",
    "parse_rate",
    "unavailable",
]
