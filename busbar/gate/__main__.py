# SPDX-License-Identifier: MIT
"""``python -I -m busbar.gate``: the gate with only the standard library."""

import sys

from busbar.gate.command import main

sys.exit(main())
