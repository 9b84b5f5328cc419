# SPDX-License-Identifier: MIT
"""One record for each node, from all that looked at it."""
