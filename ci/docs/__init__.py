# SPDX-License-Identifier: MIT
"""What `make docs` runs."""
