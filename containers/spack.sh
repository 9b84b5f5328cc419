#!/bin/sh
# SPDX-License-Identifier: MIT
# spack.sh STACK SITE LANE PREFIX: installs the site's lock with Spack: from BUILDCACHE where it is set, else from sources
# (MIRROR first). GPU_APT, lines of an apt source of the vendor, brings the CUDA or ROCm that the lock names as external.
set -eu
stack=$1 site=$2 lane=$3 prefix=$4
apt-get update -qq
apt-get install -y -qq --no-install-recommends bzip2 ca-certificates file g++ gcc gfortran git gzip make patch python3 python3-venv unzip xz-utils zstd >/dev/null
if [ -n "${GPU_APT:-}" ]; then
    printf '%s\n' "$GPU_APT" >/etc/apt/sources.list.d/gpu.list
    apt-get update -qq
    # shellcheck disable=SC2046 # a list of packages
    apt-get install -y -qq --no-install-recommends $(cat "containers/$stack/gpu-packages.txt") >/dev/null
fi
export PREFIX="$prefix/store" BUILDCACHE MIRROR
ci/spack/setup.sh
ci/spack/install.sh "$site" "$lane"
# shellcheck source=/dev/null # made by setup.sh
. .spack/env.sh
env=site/$site
[ "$lane" = ucx-1.14 ] || [ "$lane" = cray-mpich ] || env=$env/$lane
spack -e "$env" gc -y
spack -e "$env" find --format '{name} {version}' >"$prefix/packages.txt"
# The view holds links into the store; both travel.
cp -a "$env/.spack-env/view/." "$prefix/"
# Libraries that the stack takes from outside (CUDA, ROCm, the compiler's) are not in the last stage, whose C library it keeps.
mkdir -p "$prefix/external/lib"
find "$prefix/store" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null | # scripts are no ELF files
    awk -v own="$prefix/" '$2 == "=>" && $3 ~ "^/" && index($3, own) != 1 { print $3 }' | sort -u |
    while read -r library; do
        dpkg -S "$(realpath "$library")" 2>/dev/null | grep -q '^libc6:' || cp -L "$library" "$prefix/external/lib/" # no package owns it: copied
    done
