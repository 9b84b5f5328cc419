# SPDX-License-Identifier: MIT
"""``python -m busbar``."""

import sys

from busbar.cli import main

sys.exit(main())
