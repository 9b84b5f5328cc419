#!/bin/sh
# SPDX-License-Identifier: MIT
# rendezvous.sh PROGRAM...: tells torch.distributed.run, by variables that it reads in place of its options --rdzv-..., where the
# processes of several nodes meet: on the first node of the file of hosts.
read -r first _ <hosts
export PET_RDZV_BACKEND=c10d
export PET_RDZV_ENDPOINT="$first:$((20000 + ${SLURM_JOB_ID:-9511} % 20000))"
export PET_RDZV_ID="busbar-${SLURM_JOB_ID:-0}"
exec "$@"
