# SPDX-License-Identifier: MIT
"""What holds a running job up, from what its nodes show for some seconds."""
