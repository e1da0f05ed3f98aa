# SPDX-License-Identifier: Apache-2.0
"""How many workers should take part in a training, and by which strategy: a prediction for each candidate."""
