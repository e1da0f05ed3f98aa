# SPDX-License-Identifier: Apache-2.0
"""What torch sees of braid: its backend, the adapter between the two, and the ways to it."""
