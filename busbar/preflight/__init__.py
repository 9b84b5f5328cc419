# SPDX-License-Identifier: MIT
"""Preflight: examine an image and a host before a job, without running anything."""
