# SPDX-License-Identifier: MIT
"""Write `modules.yaml`, which sets the environment of a site's fabric in every module file."""

from __future__ import annotations

from pathlib import Path

import yaml

from busbar import site as sites
from busbar.spack.check import stack
from busbar.spack.manifest import Manifest

_HEAD = """\
# SPDX-License-Identifier: MIT
# Written by `busbar spack modules --write` from site/{site}/site.yaml and its family; do not edit.
"""


def path(manifest: Manifest) -> Path:
    """Return the path of the file for a manifest."""
    return manifest.path.with_name("modules.yaml")


def _site(manifest: Manifest) -> sites.Site:
    """Load the site of a manifest; the manifest of a lane is in a subdirectory of the site."""
    directory = manifest.path.parent
    return sites.load(directory if (directory / "site.yaml").exists() else directory.parent)


def text(manifest: Manifest) -> str:
    """Return the content of the file for a manifest: the variables of its site, stack and lane.

    Raises ``BusbarError`` if the site cannot be loaded.
    """
    site = _site(manifest)
    lane = next((scope.name for scope in manifest.scopes if scope.parent.name == "lanes"), None)
    variables = sites.environment(site, stack=stack(manifest), lane=lane)
    every = {"all": {"environment": {"set": dict(sorted(variables.items()))}}}
    scope = {"modules": {"default": {"lmod": every, "tcl": every}} if variables else {}}

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _data: object) -> bool:
            return True

    return _HEAD.format(site=site.name) + yaml.dump(scope, Dumper=Plain, sort_keys=False)
