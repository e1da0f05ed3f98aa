# SPDX-License-Identifier: Apache-2.0
"""Gradients of real models, through DistributedDataParallel."""
