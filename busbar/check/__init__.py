# SPDX-License-Identifier: MIT
"""The main job: run the checks, judge what they read, collect the verdicts."""
