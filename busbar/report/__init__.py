# SPDX-License-Identifier: MIT
"""Show the results of a run: on the terminal and as one HTML file."""
