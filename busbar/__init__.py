# SPDX-License-Identifier: MIT
"""Busbar: pins a GPU communication stack, delivers it, and proves what it moves."""
