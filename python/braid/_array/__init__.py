# SPDX-License-Identifier: Apache-2.0
"""``braid.Communicator``: collectives and messages on NumPy arrays, without torch."""
