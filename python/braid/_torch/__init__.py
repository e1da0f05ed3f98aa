# SPDX-License-Identifier: Apache-2.0
"""braid for torch: the backend, the adapter that is compiled for one torch, and the takeover of other backends."""
