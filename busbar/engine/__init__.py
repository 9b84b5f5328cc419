# SPDX-License-Identifier: MIT
"""From what a job printed to a verdict: one path for every benchmark."""
