# SPDX-License-Identifier: MIT
"""The client of Slurm: nodes, jobs, host lists, options and topology."""
