# SPDX-License-Identifier: MIT
"""Busbar: pins a GPU communication stack, delivers it, and proves what it moves."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("busbar")
