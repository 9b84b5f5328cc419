# SPDX-License-Identifier: MIT
"""The settings of a site's fabric for module files: a `modules.yaml` of Spack."""

from __future__ import annotations

import yaml

from busbar import site as sites

_HEAD = """\
# SPDX-License-Identifier: MIT
# Written by `busbar spack modules {site}`: what jobs of this site set for their fabric.
"""


def text(site: sites.Site, stack: str, lane: str) -> str:
    """Return a `modules.yaml` that sets the variables of a site in every module file."""
    variables = sites.environment(site, stack=stack, lane=lane)
    every = {"all": {"environment": {"set": dict(sorted(variables.items()))}}}
    scope = {"modules": {"default": {"lmod": every, "tcl": every}} if variables else {}}

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _data: object) -> bool:
            return True

    return _HEAD.format(site=site.name) + yaml.dump(scope, Dumper=Plain, sort_keys=False)
