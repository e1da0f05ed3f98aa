# SPDX-License-Identifier: Apache-2.0
"""``python -m braid``, where the script ``braid`` is not on PATH."""

import sys

from braid.cli import main

sys.exit(main())
