# SPDX-License-Identifier: MIT
"""The benchmarks: each package has all that is known of one (see CONTRIBUTING.md)."""

from busbar.engine.tool import Tool, discover

TOOLS: dict[str, Tool] = discover(__path__)
