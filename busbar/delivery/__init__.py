# SPDX-License-Identifier: MIT
"""How a stack reaches a job: environments, images, and ReFrame's configuration."""
