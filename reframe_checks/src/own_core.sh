#!/bin/sh
# SPDX-License-Identifier: MIT
# own_core.sh PROGRAM...: keeps this rank on one core of those that it may use, by its place on the node. srun binds only where
# Slurm's task plugin does, Hydra not at all; two ranks that meet on one core measure the kernel's time slices.
place=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}
core=$(lscpu -p=CPU,CORE | awk -F, -v place="$place" -v allowed="$(taskset -cp $$ | sed 's/.*: //')" '
    BEGIN {
        count = split(allowed, ranges, ",")
        for (i = 1; i <= count; ++i) {
            last = split(ranges[i], ends, "-")
            for (cpu = ends[1] + 0; cpu <= ends[last] + 0; ++cpu) may[cpu] = 1
        }
    }
    !/^#/ && ($1 + 0) in may && !seen[$2]++ { cores[found++] = $1 }
    END { if (found) print cores[place % found] }')
exec ${core:+taskset -c "$core"} "$@"
