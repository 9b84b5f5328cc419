# SPDX-License-Identifier: MIT
"""``python -I -m busbar.gate``: the gate with the standard library alone."""

import sys

from busbar.gate.command import main

sys.exit(main())
