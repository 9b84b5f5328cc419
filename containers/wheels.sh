#!/bin/sh
# SPDX-License-Identifier: MIT
# wheels.sh STACK PREFIX: installs the stack from the unpacked wheels of the context (ci/images/context.sh verifies their hashes),
# and compiles gpu_aware with it.
set -eu
stack=$1 prefix=$2
sh containers/apt.sh g++

cp -a wheels/. "$prefix/"
packages=$prefix/lib/python3/site-packages
# libucx finds its bundled libraries by a relative path.
mv "$packages/libucx" "$packages"/*.libs "$prefix/"
flags="-ldl"
if [ "$stack" = cuda ]; then
    cuda=$packages/nvidia/cuda_runtime
    mv "$cuda/lib/"libcudart.so.* "$prefix/lib/"
    flags="-DGPU_CUDA -I$cuda/include -I$packages/nvidia/cuda_nvcc/include -L$prefix/lib -l:$(basename "$prefix"/lib/libcudart.so.*) -ldl"
fi
# shellcheck disable=SC2086 # several flags
LD_LIBRARY_PATH=$prefix/libucx/lib "$prefix/bin/mpic++" -O3 -std=c++17 reframe_checks/src/gpu_aware.cpp $flags -o "$prefix/bin/gpu_aware"

# Only its headers were used, and the image does not contain them.
rm -rf "$packages"/nvidia_cuda_nvcc_*.dist-info
for record in "$packages"/*.dist-info; do
    basename "$record" .dist-info | sed 's/-/ /'
done >"$prefix/packages.txt"
for record in "$packages"/*.dist-info; do
    texts=$prefix/licenses/$(basename "$record" .dist-info) # a wheel can have several
    mkdir -p "$texts"
    find "$record" -iname '*licen*' -type f -exec cp {} "$texts/" \;
done
rm -rf "$packages" "$prefix/libucx/share" "$prefix/libucx/bin/io_demo"
# A wheel has no links: it contains each library under three names, of which the first is for linking only.
for library in "$prefix"/libucx/lib/*.so.?.?.? "$prefix"/libucx/lib/ucx/*.so.?.?.?; do
    rm "${library%.?.?.?}"
    ln -sf "$(basename "$library")" "${library%.?.?}"
done
