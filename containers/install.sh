#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh STACK SITE DELIVERY LANE COMMIT: the build stage of every image. Installs the stack into /opt/busbar by its delivery,
# with the program gpu_aware, a smoke test and the fingerprint. Reads BUILDCACHE and MIRROR from the environment.
set -eu
umask 022 # the default depends on the builder
stack=$1 site=$2 delivery=$3 lane=$4 commit=$5
cd /src
export DEBIAN_FRONTEND=noninteractive
prefix=/opt/busbar
mkdir -p $prefix

case $delivery in
wheels) sh containers/wheels.sh "$stack" $prefix ;;
spack) sh containers/spack.sh "$stack" $prefix ;;
*)
    echo "DELIVERY must be wheels or spack, got '$delivery'" >&2
    exit 1
    ;;
esac

# Keep only run-time files: remove compiler wrappers, headers, static libraries, Python, manuals, and then dangling links.
find $prefix -depth \( -name '*.a' -o -name '*.la' -o -name '*.py' -o -name __pycache__ -o -path '*/bin/mpic*' -o -path '*/bin/mpif*' \
    -o -path '*/bin/mpiCC' -o -path '*/bin/opal_wrapper' -o -path '*/lib*/cmake' -o -path '*/lib*/pkgconfig' -o -path '*/lib/python3*' \
    -o -path '*/share/man' -o -path '*/share/doc' -o -path '*/share/info' -o -name include \) -exec rm -rf {} +
find $prefix -xtype l -delete
find $prefix -type d -empty -delete

install -m 755 containers/smoke.sh containers/contents.sh $prefix/
[ ! -d sbom ] || cp -R sbom $prefix/sbom
install -D -m 644 LICENSE $prefix/licenses/busbar
# One line per package, NAME VERSION, from wheels.sh or spack.sh; dpkg lists the packages of the base.
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
