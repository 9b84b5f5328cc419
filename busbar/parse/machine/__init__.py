# SPDX-License-Identifier: MIT
"""Parse the output of machine tools: text in, typed rows out; ``ValueError`` if malformed."""
