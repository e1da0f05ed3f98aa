# SPDX-License-Identifier: Apache-2.0
"""Which gradients are compressed, and how; braid.hooks has what a training script calls."""

from braid.compression.policy import CompressionPolicy
from braid.compression.rule import Rule

__all__ = ["CompressionPolicy", "Rule"]
