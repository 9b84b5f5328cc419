# SPDX-License-Identifier: MIT
"""What one job printed, gathered in bounded memory."""
