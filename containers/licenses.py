# SPDX-License-Identifier: MIT
"""Print the installed packages of the active Spack environment with their licences."""

import sys

import spack.environment

for spec in sorted(spack.environment.active_environment().all_specs(), key=lambda s: s.name):
    if spec.installed:
        licences = [text for when, text in spec.package.licenses.items() if spec.satisfies(when)]
        licence = " ".join(licences) or "unknown to Spack"
        sys.stdout.write(f"{spec.name} {spec.version} {licence}\n")
