# SPDX-License-Identifier: MIT
"""The one place that decides verdicts."""
