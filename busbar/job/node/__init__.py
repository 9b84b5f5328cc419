# SPDX-License-Identifier: MIT
"""What is sent to each node of a job: the standard library of Python 3.8 only."""
