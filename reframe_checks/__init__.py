# SPDX-License-Identifier: MIT
"""ReFrame checks of Busbar: one module a question."""
