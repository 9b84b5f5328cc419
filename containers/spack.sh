#!/bin/sh
# SPDX-License-Identifier: MIT
# spack.sh STACK PREFIX: installs the lock of the environment in environment.txt with Spack: binaries from BUILDCACHE if set, else
# from sources (MIRROR first). The directory supply of the context can replace the git host (git), the Python package index
# (wheels), cache and mirror (buildcache, sources), and can contain keys of caches (keys) and sources of vendor packages (apt).
set -eu
stack=$1 prefix=$2
env=$(cat environment.txt)
find /lib /usr/lib -name '*.so*' -exec realpath {} + | sort -u >/tmp/base-libraries # the final stage has them too
sh containers/apt.sh bzip2 ca-certificates file g++ gcc gfortran git gnupg gzip make patch python3 python3-venv unzip xz-utils zstd
if [ -d supply/apt ]; then # for the CUDA or ROCm that is an external of the lock
    cp supply/apt/* /etc/apt/sources.list.d/
    # Both vendors have the release in the package name; the lock has it in a prefix: /usr/local/cuda-12.8, /opt/rocm-6.3.3.
    release=$(grep -oE '"/(usr/local/cuda|opt/rocm)-[0-9.]+' "$env/spack.lock" | grep -oE '[0-9.]+$' | sort -u)
    [ "$stack" != cuda ] || release=$(echo "$release" | tr . -)
    # shellcheck disable=SC2046 # a list of packages
    sh containers/apt.sh $(sed "s/RELEASE/$release/" "containers/$stack/gpu-packages.txt")
fi
# shellcheck disable=SC2046 # a list of packages
[ ! -e "$env/packages.txt" ] || sh containers/apt.sh $(cat "$env/packages.txt")
[ ! -d wheels ] || cp -a wheels/. "$prefix/"

if [ -d supply/git ]; then
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$PWD/supply/git/.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/
fi
if [ -d supply/wheels ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS="file://$PWD/supply/wheels"; fi
if [ -d supply/sources ]; then MIRROR=${MIRROR:-file://$PWD/supply/sources}; fi
if [ -d supply/buildcache ]; then BUILDCACHE=${BUILDCACHE:-file://$PWD/supply/buildcache}; fi
export PREFIX="$prefix/store" BUILDCACHE MIRROR
ci/spack/setup.sh
# shellcheck source=/dev/null # made by setup.sh
. .spack/env.sh
for key in supply/keys/*; do
    # Packages without a signature of a trusted key are built.
    [ ! -e "$key" ] || spack -e "$env" gpg trust "$key"
done
ENVIRONMENT=$env ci/spack/install.sh
spack -e "$env" gc -y
spack -e "$env" find --format '{name} {version}' >"$prefix/packages.txt"
mkdir -p "$prefix/licenses" "$prefix/external/lib"
spack -e "$env" python containers/licenses.py >"$prefix/licenses/spack.txt"

# The view contains links into the store; copy both, without build-only files and traces of this build.
cp -a "$env/.spack-env/view/." "$prefix/"
rm -rf "$prefix/store/.spack-db" "$prefix/store/lmod" "$prefix/store/tcl" "$prefix/.spack" # modules name the time
find "$prefix/store" -depth -type d -name .spack -exec rm -rf {} +
rm -f "$prefix"/store/*/gcc-runtime-*/lib/lib*san.so*
# External libraries of the stack (CUDA, ROCm, Debian's) that the final stage does not have.
find "$prefix/store" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null | # ldd fails on scripts
    awk -v own="$prefix/" '$2 == "=>" && $3 ~ "^/" && index($3, own) != 1 { print $3 }' | sort -u |
    while read -r library; do
        realpath "$library" | grep -qxFf /tmp/base-libraries || cp -L "$library" "$prefix/external/lib/"
    done
