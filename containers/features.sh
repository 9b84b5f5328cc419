#!/bin/sh
# SPDX-License-Identifier: MIT
# features.sh STACK DELIVERY PREFIX: prints the features of the image, detected from its files, as quoted words with commas.
set -eu
stack=$1 delivery=$2 prefix=$3
list="\"$stack\", \"$delivery\""
has() { # FEATURE PATTERN: adds the feature if a file matches
    if [ -n "$(find "$prefix" -name "$2" -print -quit)" ]; then list="$list, \"$1\""; fi
}
has gpu_aware gpu_aware
has osu osu_bw
has xccl all_reduce_perf
has ucx 'libucp.so.0'
has efa 'libefa-fi.so'
has nccl-net 'libnccl-net*.so'
printf '%s' "$list"
