# SPDX-License-Identifier: Apache-2.0
"""Rounds of all workers in the background, for strategies that meet every few steps."""
