#!/bin/sh
# SPDX-License-Identifier: MIT
# Says which rank this is, where it runs and which GPUs it sees, then becomes the program: benchmarks do not say it.
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-${FLUX_TASK_RANK:-${PALS_RANKID:-0}}}}}}
ranks=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${SLURM_NTASKS:-${FLUX_JOB_SIZE:-1}}}}
local=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-${FLUX_TASK_LOCAL_ID:-${PMI_LOCAL_RANK:-${PALS_LOCAL_RANKID:-$rank}}}}}}
# Slurm sets CUDA's beside ROCR's on any GPU, and HIP takes its own before CUDA's.
visible=${HIP_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}}
host=$(uname -n)
cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
printf '{"placed": {"rank": %s, "ranks": %s, "node_rank": %s, "host": "%s", "pid": %s, "cpus": "%s", "visible": "%s"}}\n' \
    "$rank" "$ranks" "$local" "${host%%.*}" "$$" "$cpus" "$visible"
exec "$@"
