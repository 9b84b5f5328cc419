# SPDX-License-Identifier: MIT
"""The gate: whether a node may take jobs, in seconds, without ReFrame, MPI or a compiler."""
