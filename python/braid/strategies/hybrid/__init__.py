# SPDX-License-Identifier: Apache-2.0
"""Hybrid training: groups of workers step together, parameter servers join the groups."""
