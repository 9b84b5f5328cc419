# SPDX-License-Identifier: MIT
"""Run the checks, judge their readings, and collect the verdicts."""
