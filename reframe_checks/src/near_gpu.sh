#!/bin/sh
# SPDX-License-Identifier: MIT
# near_gpu.sh DRIVER PROGRAM...: keeps this rank on the CPUs near its GPU. DRIVER is the directory of the GPUs' driver in /sys; its
# devices are in the order of their numbers. The rank stays where it is if its GPU has no number of its own: named by UUID, a part
# of an accelerator, or one of few that the job may use.
devices=$1
shift
place=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-${FLUX_TASK_LOCAL_ID:-${PMI_LOCAL_RANK:-${PALS_LOCAL_RANKID:-0}}}}}}
visible=${HIP_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}}
cpus=$(printf '%s\n' "$devices"/*:* | awk -v place="$place" -v visible="$visible" -v granted="${SLURM_JOB_GPUS:-}" '
    /[*]/ { next } # there is no device
    { device[NR - 1] = $0 }
    END {
        count = split(visible, numbers, ",")
        gpu = count ? numbers[1 + place % count] : place
        if (gpu !~ /^[0-9]+$/ || !(gpu in device) || (granted != "" && split(granted, all, ",") != NR)) exit
        mode = "SPX"
        getline mode <(device[gpu] "/current_compute_partition")
        if (mode == "SPX" && (getline cpus <(device[gpu] "/local_cpulist")) > 0) print cpus
    }')
[ -z "$cpus" ] || taskset -pc "$cpus" $$ >/dev/null 2>&1 # a cgroup may have none of them
exec "$@"
