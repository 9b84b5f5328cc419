# SPDX-License-Identifier: MIT
"""Detect the hardware of a machine from the output of its own tools."""
