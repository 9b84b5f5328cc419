# SPDX-License-Identifier: MIT
"""How a run is shown: on the terminal and as one HTML file."""
