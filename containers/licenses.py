# SPDX-License-Identifier: MIT
"""Print packages of Spack with their licences, as their recipes state them.

Runs in Spack's Python: of the environments in these directories, as their locks have them, or of
the active one, as it is installed.
"""

import sys

import spack.environment

environments = [spack.environment.Environment(directory) for directory in sys.argv[1:]]
lines = set()
for environment in environments or [spack.environment.active_environment()]:
    for spec in environment.all_specs():
        if environments or spec.installed:
            stated = [text for when, text in spec.package.licenses.items() if spec.satisfies(when)]
            licence = " ".join(stated) or "unknown to Spack"
            lines.add(f"{spec.name} {spec.version} {licence}\n")
sys.stdout.writelines(sorted(lines))
