#!/bin/sh
# SPDX-License-Identifier: MIT
# busy.sh PROGRAM...: becomes the program. The first rank of each node first starts busy.awk, which records what else uses the node
# in busy-record.HOST.PID until the program ends; the job script prints that file. Without awk there is none. The recorder does not
# stay on the core of a rank that is bound to one. It also keeps what provenance.sh prints in provenance-record.HOST.
local=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-${PMI_RANK:-0}}}}
host=$(uname -n)
file=busy-record.${host%%.*}.$$
if [ "$local" = 0 ] && command -v awk >/dev/null && (: >"$file") 2>/dev/null; then
    cpus="taskset -c $(cat /sys/devices/system/cpu/online)"
    $cpus true 2>/dev/null || cpus=
    $cpus awk -v rank="$$" -v root="$PPID" -v host="${host%%.*}" -v file="$file" -f "${0%.sh}.awk" \
        </dev/null >/dev/null 2>&1 &
fi
# What the node is made of, once for all launches of a job, before anything is measured.
facts=provenance-record.${host%%.*}
if [ "$local" = 0 ] && [ ! -s "$facts" ]; then
    sh "${0%busy.sh}provenance.sh" >"$facts" 2>/dev/null
fi
exec "$@"
