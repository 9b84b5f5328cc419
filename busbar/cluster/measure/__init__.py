# SPDX-License-Identifier: MIT
"""Measure the pairs of a sweep on the nodes of a job of Slurm."""
