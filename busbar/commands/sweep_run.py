# SPDX-License-Identifier: MIT
"""``busbar sweep run``: measure the pairs of a plan on the nodes of a job of Slurm."""
