# SPDX-License-Identifier: MIT
"""What a machine is made of, as its own tools report it."""
