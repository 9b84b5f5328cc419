# SPDX-License-Identifier: MIT
"""What tools print about a machine: text in, typed rows out, ``ValueError`` on surprise."""
