# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging: workers train alone, and a centre pulls at them."""
