# SPDX-License-Identifier: Apache-2.0
"""A report for people: as text, as a table for other programs, as a picture, beside an older one."""
