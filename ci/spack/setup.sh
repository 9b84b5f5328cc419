#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Creates .spack/: Spack and its recipes at their pinned commits, the solver from the Python package index, and
# .spack/env.sh to source. Uses SPACK_ROOT, else a `spack` on PATH, if its series is right. Skips completed steps.
# SPACK_VERSION=1.1|1.2 selects the series; without it, Spack of the machine may be of either, and the pinned one is 1.1.
# GIT_MIRROR=URL has the repositories of https://github.com below it, as URL/spack/spack.git.
# PREFIX=DIR is the install tree, with modules in DIR/lmod and DIR/tcl; BUILDCACHE=URL is a binary cache, signed unless it is a
# registry (oci://, oci+http://), MIRROR=URL a mirror of sources. REGISTRY_USER and REGISTRY_TOKEN are the credentials for the
# registry; only their names are stored.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=/dev/null # assignments only
. ci/spack/pins.env
home=$PWD/.spack
python=${PYTHON:-python3}
repos=site/_families/spack/common/repos.yaml

die() {
    printf 'spack: %s\n' "$1" >&2
    exit 1
}

say() {
    printf 'spack: %s\n' "$1" >&2
}

field() { # NAME: prints a value of the builtin recipes in repos.yaml
    sed -nE "s/^ *$1: ([^ ]+).*/\\1/p" "$repos"
}

clone() { # URL COMMIT DIR
    [[ -d $3/.git && $(git -C "$3" rev-parse HEAD) == "$2" ]] && return
    say "fetching $1 at ${2:0:8}"
    rm -rf "$3.part"
    mkdir -p "$(dirname "$3")"
    git init --quiet "$3.part"
    git -C "$3.part" remote add origin "$1"
    # Some mirrors refuse to serve a single commit; then fetch the whole history.
    git -C "$3.part" fetch --quiet --depth 1 origin "$2" 2>"$home/fetch.log" ||
        git -C "$3.part" fetch --quiet origin 2>"$home/fetch.log" ||
        die "could not reach $1 ($(head -n 1 "$home/fetch.log")); set HTTPS_PROXY, or GIT_MIRROR to a mirror of github.com"
    git -C "$3.part" -c advice.detachedHead=false checkout --quiet "$2" 2>"$home/fetch.log" ||
        die "$1 has no commit $2 ($(head -n 1 "$home/fetch.log"))"
    rm -rf "$3"
    mv "$3.part" "$3"
}

version() { # ROOT: prints the version of a Spack, without starting it
    sed -nE 's/^__version__ = "([^"]+)".*/\1/p' "$1/lib/spack/spack/__init__.py"
}

case ${SPACK_VERSION:-} in
'') series=("$SPACK_SERIES" "$SPACK_NEXT_SERIES") commit=$SPACK_COMMIT ;;
"$SPACK_SERIES") series=("$SPACK_SERIES") commit=$SPACK_COMMIT ;;
"$SPACK_NEXT_SERIES") series=("$SPACK_NEXT_SERIES") commit=$SPACK_NEXT_COMMIT ;;
*) die "SPACK_VERSION=$SPACK_VERSION is not supported; set $SPACK_SERIES or $SPACK_NEXT_SERIES" ;;
esac
required="Spack $(IFS=/ && printf '%s' "${series[*]}") is required"

accepted() { # ROOT: whether a Spack is of a required series
    [[ " ${series[*]} " == *" $(version "$1" | cut -d. -f1,2) "* ]]
}

# Spack takes a relative path from the directory of the file, and a cache that it does not know for an empty one.
for name in BUILDCACHE MIRROR GIT_MIRROR; do
    [[ ${!name:-} =~ ^($|/|file:///.|(https?|s3|gs|oci|oci\+https?)://[^/]) && ! ${!name:-} =~ [[:space:]\'\"] ]] ||
        die "$name=${!name} is not a URL; for example file:///shared/cache or oci://registry.centre.example/busbar"
done
git_mirror=
if [[ -n ${GIT_MIRROR:-} ]]; then
    git_mirror="export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0='url.${GIT_MIRROR%/}/.insteadOf' GIT_CONFIG_VALUE_0=https://github.com/"
    eval "$git_mirror"
fi
if [[ -n ${PREFIX:-} ]]; then
    PREFIX=$(realpath -ms -- "$PREFIX")
    [[ ! $PREFIX =~ [^A-Za-z0-9/._+@-] ]] || die "PREFIX=$PREFIX: packages do not build with such characters in their prefix"
    [[ ! -e $PREFIX || (-d $PREFIX && -w $PREFIX) ]] || die "PREFIX=$PREFIX is not a directory that you can write"
fi
command -v git >/dev/null || die "no git found; install it (Debian, Ubuntu: apt install git)"
command -v "$python" >/dev/null || die "no $python found; install Python 3.11 or newer, or select one with PYTHON="
if [[ ${BUILDCACHE:-} == oci* && -n ${REGISTRY_USER:-} ]]; then
    # Spack would send them in clear text, and cannot upload: it adds them to an upload on TLS only.
    [[ $BUILDCACHE != oci+http:* ]] || die "REGISTRY_USER is set, but $BUILDCACHE has no TLS; use oci://, or unset it for a registry without a password"
    [[ -n ${REGISTRY_TOKEN:-} ]] || die "REGISTRY_USER is set, but REGISTRY_TOKEN is not; export both"
fi
mkdir -p "$home/scope"

# Ignore the variables that an earlier env.sh set.
[[ ${SPACK_ROOT:-} != "$home"/* ]] || unset SPACK_ROOT
[[ ${SPACK_USER_CACHE_PATH:-} != "$home"/* ]] || unset SPACK_USER_CACHE_PATH
[[ ${BUSBAR_SPACK_SCOPE:-} != "$home"/* ]] || unset BUSBAR_SPACK_SCOPE

# ---- Spack
root=
if [[ -n ${SPACK_ROOT:-} ]]; then
    [[ -x $SPACK_ROOT/bin/spack ]] || die "SPACK_ROOT=$SPACK_ROOT has no bin/spack; correct or unset it"
    accepted "$SPACK_ROOT" ||
        die "SPACK_ROOT=$SPACK_ROOT is Spack $(version "$SPACK_ROOT"), but $required; unset it to use the pinned one"
    root=$SPACK_ROOT
elif found=$(type -P spack) && [[ $found != "$home"/* ]]; then
    root=$(cd "$(dirname "$(readlink -f "$found")")/.." && pwd)
    accepted "$root" || {
        say "$found is Spack $(version "$root"), but $required; using the pinned one"
        root=
    }
fi
if [[ -z $root ]]; then
    root=$home/spack-${commit:0:8}
    clone "$SPACK_URL" "$commit" "$root"
fi

# ---- recipes, at their destination in repos.yaml; one cache per commit and series, as Spack's indices do not distinguish them
recipes=$(field commit)
cache=${SPACK_USER_CACHE_PATH:-$home/cache-${recipes:0:8}-$(version "$root" | cut -d. -f1,2)}
destination=$(field destination)
clone "$(field git)" "$recipes" "${destination/\$user_cache_path/$cache}"

# ---- the solver, which Spack would otherwise bootstrap
want=$(sha256sum <locks/spack.txt)
if [[ ! -e $home/venv/lock.sha256 || $(<"$home/venv/lock.sha256") != "$want" ]]; then
    "$python" -m venv --clear "$home/venv" || die "$python -m venv failed; install its venv module (Debian, Ubuntu: apt install python3-venv)"
    "$home/venv/bin/python" -m pip install --disable-pip-version-check --no-input --require-hashes -r locks/spack.txt >"$home/pip.log" 2>&1 ||
        die "pip could not install Spack's solver ($(grep -m1 '^ERROR' "$home/pip.log")); is a Python package index reachable? Set PIP_INDEX_URL or HTTPS_PROXY; the whole output is in $home/pip.log"
    printf '%s\n' "$want" >"$home/venv/lock.sha256"
fi

# ---- configuration of this machine, unless BUSBAR_SPACK_SCOPE is set
scope=${BUSBAR_SPACK_SCOPE:-$home/scope}
if [[ $scope == "$home/scope" ]]; then
    printf 'bootstrap:\n  sources:: []\n  trusted:: {}\n' >"$scope/bootstrap.yaml"
    if [[ -n ${PREFIX:-} ]]; then
        printf 'config:\n  install_tree:\n    root: %s\n' "$PREFIX" >"$scope/config.yaml"
        # A tree has its own modules; Spack does not overwrite those of another one.
        printf 'modules:\n  default:\n    roots: {lmod: %s/lmod, tcl: %s/tcl}\n' "$PREFIX" "$PREFIX" >"$scope/modules.yaml"
    fi
    if [[ -n ${BUILDCACHE:-}${MIRROR:-} ]]; then
        printf 'mirrors:\n' >"$scope/mirrors.yaml"
        signed=true
        [[ ${BUILDCACHE:-} != oci* ]] || signed=false # Spack cannot sign in a registry
        [[ -z ${BUILDCACHE:-} ]] || printf '  busbar:\n    url: %s\n    signed: %s\n    source: false\n' "$BUILDCACHE" $signed >>"$scope/mirrors.yaml"
        [[ $signed == true || -z ${REGISTRY_USER:-} ]] || printf '    access_pair: {id_variable: REGISTRY_USER, secret_variable: REGISTRY_TOKEN}\n' >>"$scope/mirrors.yaml"
        [[ -z ${MIRROR:-} ]] || printf '  sources:\n    url: %s\n    binary: false\n' "$MIRROR" >>"$scope/mirrors.yaml"
    fi
elif [[ -n ${PREFIX:-}${BUILDCACHE:-}${MIRROR:-} ]]; then
    die "PREFIX, BUILDCACHE and MIRROR have no effect with BUSBAR_SPACK_SCOPE=$scope; configure them there, or unset it"
fi

cat >"$home/env.sh" <<EOF
# Written by ci/spack/setup.sh; source it to use Spack and the recipes of this checkout.
export SPACK_ROOT='$root' SPACK_PYTHON='$home/venv/bin/python' SPACK_USER_CACHE_PATH='$cache' BUSBAR_SPACK_SCOPE='$scope'
export PATH="$root/bin:$home/venv/bin:\$PATH"
$git_mirror
EOF
