# SPDX-License-Identifier: MIT
"""What was measured night after night, when it changed, and what else changed then."""
