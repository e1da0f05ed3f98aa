# SPDX-License-Identifier: Apache-2.0
"""Kernels for GPU memory, and the compiler that makes them."""
