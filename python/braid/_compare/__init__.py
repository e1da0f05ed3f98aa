# SPDX-License-Identifier: Apache-2.0
"""``braid compare``: one training script on Gloo and on braid, in turns."""
