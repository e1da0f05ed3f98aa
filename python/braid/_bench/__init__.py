# SPDX-License-Identifier: Apache-2.0
"""What ``braid bench`` is made of: ranks of each contestant, rounds of all of them in turn, and a report."""
