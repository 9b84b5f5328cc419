# SPDX-License-Identifier: MIT
"""Spack's manifests and locks, read without Spack."""
