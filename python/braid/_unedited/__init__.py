# SPDX-License-Identifier: Apache-2.0
"""Strategies for scripts that nobody edits: BRAID_STRATEGY and `braid run --strategy`."""
