#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs jobs of PyTorch and NCCL on 2 or more GPUs, each with one fault, and what `busbar job` says of each.
#
#   OUT=dir tests/gpu/job_faults.sh [NAME...]
#
# Writes what the collector printed ($OUT/NAME.json) and the table ($OUT/table.txt). Without the packages that Busbar needs, nothing
# is judged: python3 -m tests.gpu.job_faults --judge DIR does it later, on any machine.
set -u -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
: "${OUT:?set OUT to an empty directory}"
python=${PYTHON:-python3}
export NCCL_NVLS_ENABLE=0
{
    nvidia-smi --query-gpu=index,name,driver_version,pci.bus_id --format=csv
    nvidia-smi topo -m
    "$python" -c 'import sys, torch; print(sys.version, torch.__version__, torch.cuda.nccl.version(), torch.cuda.device_count())'
} >"$OUT/machine.txt" 2>&1
timeout -k 10 235 "$python" -m tests.gpu.job_faults "$OUT" "$@"
cat "$OUT/table.txt"
