# SPDX-License-Identifier: Apache-2.0
"""The name that torch knows braid by."""

BACKEND_NAME = "braid"
