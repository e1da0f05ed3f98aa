# SPDX-License-Identifier: Apache-2.0
"""Gossip: workers average their parameters in pairs, in the background."""
