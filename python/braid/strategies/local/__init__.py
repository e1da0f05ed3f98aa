# SPDX-License-Identifier: Apache-2.0
"""Local steps: workers train alone for some steps, and then move a common centre by the mean of how they moved."""
