# SPDX-License-Identifier: Apache-2.0
"""The processes of each contestant: how they come to be, what they are asked, how they end."""
