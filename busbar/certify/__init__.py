# SPDX-License-Identifier: MIT
"""Acceptance: what a contract promises, measured, judged, and kept as a signed record."""
