#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks that every library resolves within the image and, for the host stack, that two ranks exchange data correctly.
set -eu
here=/opt/busbar
if ldd $here/bin/gpu_aware | grep 'not found'; then
    echo "smoke: a library of gpu_aware is missing" >&2
    exit 1
fi
ldd $here/bin/gpu_aware | grep -q "libmpi.*=> $here/" || {
    echo "smoke: gpu_aware would not use the MPI of the image" >&2
    exit 1
}
if grep -q '"stack": "host"' $here/fingerprint.json; then
    # The %test of a build runs as root in its own namespace.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun --oversubscribe -n 2 gpu_aware --ranks=2 --buffers=HH --check=4099
fi
cat $here/fingerprint.json
