# SPDX-License-Identifier: MIT
"""Acceptance tests: measure and judge the clauses of a contract, and keep a signed record."""
