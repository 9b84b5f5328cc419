# SPDX-License-Identifier: MIT
"""A night: gate, sweep and checks of a partition, one after the other."""
