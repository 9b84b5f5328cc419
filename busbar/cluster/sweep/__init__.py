# SPDX-License-Identifier: MIT
"""Find the slow node of a fleet: plan pairs of nodes, and judge what they measured."""
