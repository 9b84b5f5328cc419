#!/bin/sh
# SPDX-License-Identifier: MIT
# provenance.sh: prints what a node is made of as lines NAME=VALUE, from /proc, /sys and the environment. It starts no program of the
# GPU or the network, so that it takes hundredths of a second. What is not there has no line. sysfs and procfs are /sys and /proc
# unless a test sets them. busbar removes secrets before it stores the lines (busbar/history/record.py).
sysfs=${sysfs:-/sys}
procfs=${procfs:-/proc}
first() {
    [ -r "$2" ] && read -r line <"$2" && [ -n "$line" ] && printf '%s=%s\n' "$1" "$line"
}
first kernel "$procfs/sys/kernel/osrelease"
if [ -r "$procfs/driver/nvidia/version" ]; then
    # NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Wed ...
    read -r line <"$procfs/driver/nvidia/version"
    for word in $line; do
        case $word in [0-9]*.[0-9]*) printf 'driver=%s\n' "$word" && break ;; esac
    done
fi
first driver "$sysfs/module/amdgpu/version"
for gpu in "$procfs"/driver/nvidia/gpus/*/information; do
    [ -r "$gpu" ] || continue
    while IFS= read -r line; do
        case $line in
        "GPU UUID:"*) # its first part tells GPUs apart
            uuid=${line##*[[:space:]]}
            [ -z "$BUSBAR_SERIALS" ] || printf 'serial.gpu=%s\n' "${uuid%%-????-*}"
            ;;
        "GPU Firmware:"* | "Video BIOS:"*) printf 'firmware.gpu=%s\n' "${line##*[[:space:]]}" ;;
        esac
    done <"$gpu"
done
for module in mlx5_core bnxt_re irdma efa cxi_core ib_core; do
    first "nic.driver.$module" "$sysfs/module/$module/version"
done
for nic in "$sysfs"/class/infiniband/*; do
    first "firmware.nic" "$nic/fw_ver"
    [ -z "$BUSBAR_SERIALS" ] || first "serial.nic" "$nic/node_guid"
    for port in "$nic"/ports/*; do # a link that lost lanes says so: 200 Gb/sec (2X NDR)
        first "link.${nic##*/}:${port##*/}" "$port/rate"
    done
done
for nic in "$sysfs"/class/cxi/*; do
    first "firmware.nic" "$nic/device/properties/cassini_version"
done
first rocm "${ROCM_PATH:-/opt/rocm}/.info/version"
cuda=${CUDA_HOME:-/usr/local/cuda}/version.json
if [ -r "$cuda" ]; then
    while IFS= read -r line; do
        case $line in *'"version"'*) line=${line##*: \"} && printf 'cuda=%s\n' "${line%%\"*}" && break ;; esac
    done <"$cuda"
fi
first firmware.host "$sysfs/class/dmi/id/bios_version"
env | while IFS= read -r line; do
    case $line in
    NCCL_* | RCCL_* | UCX_* | UCC_* | FI_* | OMPI_MCA_* | PMIX_MCA_* | PRTE_MCA_* | MPICH_* | HSA_* | CUDA_DEVICE_* | CUDA_MODULE_* | LD_PRELOAD=* | LD_AUDIT=*)
        printf 'env.%s\n' "$line"
        ;;
    esac
done
