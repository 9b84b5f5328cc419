# SPDX-License-Identifier: MIT
"""Read and check Spack manifests and locks without Spack."""
