# SPDX-License-Identifier: MIT
"""Tests of a whole cluster: find the slow node, and test a partition every night."""
