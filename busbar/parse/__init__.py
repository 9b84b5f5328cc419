# SPDX-License-Identifier: MIT
"""Parsers: text or JSON in, typed frozen rows out; they import nothing else of the project."""
