#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh STACK SITE DELIVERY LANE COMMIT: the build stage of every image. Puts the stack into /opt/busbar by its delivery,
# with the program gpu_aware, a smoke test and the fingerprint. Takes BUILDCACHE, MIRROR and GPU_APT from the environment.
set -eu
stack=$1 site=$2 delivery=$3 lane=$4 commit=$5
cd /src
export DEBIAN_FRONTEND=noninteractive
prefix=/opt/busbar
mkdir -p $prefix

case $delivery in
wheels) sh containers/wheels.sh "$stack" $prefix ;;
spack) sh containers/spack.sh "$stack" "$site" "$lane" $prefix ;;
*)
    echo "DELIVERY is wheels or spack, not '$delivery'" >&2
    exit 1
    ;;
esac

install -m 755 containers/smoke.sh $prefix/smoke.sh
# One line for each package, as NAME VERSION; wheels.sh and spack.sh list the stack, dpkg lists the base.
sort -o $prefix/packages.txt $prefix/packages.txt
features=$(sh containers/features.sh "$stack" "$delivery" $prefix)
packages=$(awk '{ printf "%s    \"%s\": \"%s\"", (NR > 1 ? ",\n" : ""), $1, $2 }' $prefix/packages.txt)
cat >$prefix/fingerprint.json <<JSON
{
  "stack": "$stack",
  "lane": "$lane",
  "delivery": "$delivery",
  "family_of": "$site",
  "commit": "$commit",
  "lock": "$(cat lock.sha256)",
  "features": [$features],
  "packages": {
$packages
  }
}
JSON
