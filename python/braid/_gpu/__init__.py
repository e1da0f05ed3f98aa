# SPDX-License-Identifier: Apache-2.0
"""Kernels for memory on a GPU, and the compiler that makes them."""
