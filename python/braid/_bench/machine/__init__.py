# SPDX-License-Identifier: Apache-2.0
"""What the machine is and what its memory can do."""
