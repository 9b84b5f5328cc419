#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Records runs on a node with 2 or more NVIDIA GPUs while something else uses it, and prints what the recorder saw:
# nothing, another process that copies between two GPUs, an idle process on a GPU, busy CPUs, a busy GPU.
#
#   OUT=dir [PERF=.../all_reduce_perf] [PYTHON=python3] tests/gpu/busy_runs.sh
#
# PYTHON has PyTorch. PERF is nccl-tests; without it PyTorch's collectives run. With busbar installed, every log is explained.
# Changes no setting of a GPU. Each case takes about 15 s.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${OUT:?set OUT to an empty directory}"
python=${PYTHON:-python3}
busy=$root/reframe_checks/src/busy.sh
if [[ -x ${PERF:-} ]]; then
    job=("$PERF" -b 16M -e 1G -f 4 -g 2 -n 200)
else
    job=("$python" -m torch.distributed.run --nproc_per_node 2 --standalone "$root/reframe_checks/src/torch_collectives.py"
        --ranks 2 --collectives "all_reduce,sendrecv" --sizes "16M,256M,1G")
fi
copying='
import torch
a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
b = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
while True:
    for _ in range(20): b.copy_(a)
    torch.cuda.synchronize("cuda:0")
'
computing='
import torch
a = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
while True:
    for _ in range(20): a @ a
    torch.cuda.synchronize()
'
holding='
import time, torch
a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
time.sleep(600)
'

raw() { # what nvidia-smi prints where the recorder asks
    nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=index,pci.bus_id,utilization.gpu,clocks.sm,clocks.max.sm,clocks_throttle_reasons.active
    nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=index,pci.bus_id,utilization.gpu,clocks.sm,clocks.max.sm,clocks_event_reasons.active
    nvidia-smi --format=csv,noheader,nounits --query-compute-apps=gpu_bus_id,pid,used_gpu_memory
    nvidia-smi nvlink -gt d | head -8
}

# run NAME LOAD...: the job beside a load, which is started before it and ended after it.
run() {
    local name=$1 directory=$OUT/$1 status=0 load=''
    shift
    mkdir -p "$directory"
    if (($#)); then
        setsid "$@" >"$directory/load.out" 2>&1 &
        load=$!
        sleep 8 # PyTorch takes a while to load
    fi
    (raw; time raw >/dev/null) >"$directory/nvidia-smi.txt" 2>&1
    (
        cd "$directory" || exit
        printf '$ %s\n' "${job[*]}"
        "$busy" timeout 60 "${job[@]}" 2>&1 || status=$?
        sleep 0.6 # for the last sample
        cat busy-record.* 2>/dev/null
        printf 'exit_status=%s\n' "$status"
    ) >"$directory/job.log"
    [[ -z $load ]] || kill -- "-$load"
    printf '=== %s\n' "$name"
    grep -h '"event": "busy"' "$directory/job.log" || echo "no record"
    grep -E '^ +1073741824|"bytes": 1073741824' "$directory/job.log" | head -4
    command -v busbar >/dev/null && busbar explain "$directory/job.log" | head -30
    cat "$directory/nvidia-smi.txt"
}

all_cpus() { for _ in $(seq "$(nproc)"); do awk 'BEGIN { while (1) ++x }' & done; wait; }
export -f all_cpus

run healthy
run copying "$python" -c "$copying"
run holding "$python" -c "$holding"
run computing "$python" -c "$computing"
run cpus bash -c all_cpus
run healthy_again
tar -C "$OUT" -czf "$OUT/busy.tar.gz" healthy copying holding computing cpus healthy_again
