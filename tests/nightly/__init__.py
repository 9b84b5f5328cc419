# SPDX-License-Identifier: MIT
"""What measures a sweep, as far as no cluster is needed; the rest is in tests/lab."""
