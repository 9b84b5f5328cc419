#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints what is in the image, and how to use it.
set -eu
cat /opt/busbar/fingerprint.json
cat <<'TEXT'

programs:        ls /opt/busbar/bin
test:            /opt/busbar/smoke.sh
licences, SBOM:  /opt/busbar/licenses, /opt/busbar/sbom (packages of the base: dpkg -l)
documentation:   docs/containers.md of Busbar
TEXT
