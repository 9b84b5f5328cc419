#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs gpu_aware between two NVIDIA GPUs with libraries that spoil messages, and memory with one that spoils copies, and
# fails if a run with wrong data ends well. What tests/wire does on host memory.
#
#   OUT=dir MPIRUN=.../mpirun [UCX_LIB=.../libucx/lib] [CUDA_HOME=/usr/local/cuda] [CUDA_LIB=dir of libcudart] [GPU_COLLECTIVES=1] \
#       [GPUS=2] tests/gpu/wire_faults.sh
#
# With GPUS=1 both ranks share the GPU. GPU_COLLECTIVES=1 is for an MPI whose collectives take GPU buffers.
# mpic++ and mpicc are taken from the directory of MPIRUN. $OUT/NAME.log has the output of each run, its exit status in the
# last line; $OUT/summary.tsv one line for each: name, exit status, seconds, faults, wrong bytes in readings and checks, result.
# Results: right (no fault, none seen), caught (payload that a reading or a check found wrong), control (ranks stopped at a
# control message, which proves nothing about payload), and what fails this script: MISSED, NO-FAULT, FALSE-ALARM, NO-PAYLOAD.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${OUT:?set OUT to an empty directory}"
mpirun=${MPIRUN:-$(command -v mpirun)}
bin=$(dirname "$mpirun")
cuda=${CUDA_HOME:-/usr/local/cuda}
cuda_lib=${CUDA_LIB:-$cuda/lib64}
work=$(mktemp -d)
mkdir -p "$OUT"
export LD_LIBRARY_PATH="${UCX_LIB:+$UCX_LIB:}$cuda_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

cudart=$(find -L "$cuda_lib" -maxdepth 1 -name 'libcudart.so*' | head -n 1)
cxx=(-O2 -std=c++17 -pthread -DGPU_CUDA "-I$cuda/include")
"$bin/mpic++" "${cxx[@]}" "$root/reframe_checks/src/gpu_aware.cpp" "$cudart" -ldl -o "$work/gpu_aware" || exit 2
c++ "${cxx[@]}" "$root/reframe_checks/src/memory.cpp" "$cudart" -ldl -o "$work/memory" || exit 2
"$bin/mpicc" -shared -fPIC -O2 "$root/tests/wire/faulty_mpi.c" -ldl -o "$work/faulty_mpi.so" || exit 2
cc -shared -fPIC -O2 "$root/tests/wire/faulty_copy.c" -ldl -o "$work/faulty_copy.so" || exit 2

gpus=${GPUS:-2} share=() kinds=(to_gpu from_gpu local peer)
[[ $gpus != 1 ]] || share=(--share-devices) kinds=(to_gpu from_gpu local)
missed=0

# record NAME WANTED OPERATION COMMAND...: WANTED is "right", "caught" or "control"; only lines with OPERATION, a regular
# expression, count as caught.
record() {
    local name=$1 wanted=$2 operation=$3 status=0 begin=$SECONDS log=$OUT/$1.log
    shift 3
    printf '$ %s\n' "$*" >"$log"
    timeout -k 5 90 "$@" >>"$log" 2>&1 </dev/null || status=$?
    printf 'exit_status=%s\n' "$status" >>"$log"
    local faults wrong result=caught
    faults=$(sed -n 's/.*faulty_[a-z]*: \([0-9]*\) faults.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
    wrong=$(grep -E '"event": "(reading|check)"' "$log" | grep -E -- "$operation" | sed -n 's/.*"wrong": \([0-9]*\).*/\1/p' |
        awk '{ sum += $1 } END { print sum + 0 }')
    if [[ $wanted == right ]]; then
        result=right
        [[ $status == 0 ]] && grep -q '"event": "end", "wrong": 0' "$log" || result=FALSE-ALARM
    elif [[ $status == 0 ]]; then
        result=MISSED
        [[ $faults != 0 ]] || result=NO-FAULT
    elif grep -q 'a control message' "$log"; then
        result=control
        [[ $wanted == control ]] || result=NO-PAYLOAD
    elif [[ $wrong == 0 ]]; then
        result=NO-PAYLOAD
    fi
    [[ $result == "$wanted" ]] || missed=$((missed + 1))
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$status" $((SECONDS - begin)) "$faults" "$wrong" "$result" | tee -a "$OUT/summary.tsv"
}

# pair NAME WANTED BUFFERS [VARIABLE=VALUE...] -- OPTIONS...
pair() {
    local name=$1 wanted=$2 buffers=$3 variables=()
    shift 3
    while [[ $1 != -- ]]; do variables+=("$1"); shift; done
    shift
    local forwarded=(-x LD_LIBRARY_PATH -x UCX_LOG_LEVEL=info -x OMPI_MCA_opal_common_ucx_tls=any -x OMPI_MCA_opal_common_ucx_devices=any)
    record "mpi-$name" "$wanted" . "$mpirun" --allow-run-as-root --oversubscribe --mca pml ucx -n 2 "${forwarded[@]}" \
        env "LD_PRELOAD=$work/faulty_mpi.so" "${variables[@]}" "$work/gpu_aware" --ranks=2 "${share[@]}" "--buffers=$buffers" "$@"
}

matrix=("--sizes=1M,16M" --latency-sizes=8)
pair healthy right DD -- --sizes=1M,4M,16M,64M,256M --latency-sizes=8
checks=("--check=1,8,257,4099,65543,1M")
pair healthy-kinds right DD,HD,DH,HH -- "${checks[@]}" --sizes=1M --latency-sizes=8
payload=FAULT_TAG=1  # tag_data of exchange.hpp
for fault in flip half drop repeat swap truncate past ahead early; do
    # A byte ahead of the timed messages is outside of the buffer: the process ends there.
    for every in 97 500; do
        [[ $fault != ahead ]] || continue
        pair "$fault-$every" caught DD $payload FAULT=$fault FAULT_EVERY=$every -- "${matrix[@]}"
    done
    pair "$fault-check" caught DD,HD,DH,HH $payload FAULT=$fault FAULT_EVERY=7 -- "${checks[@]}"
done
pair lost-check caught DD,HD,DH,HH $payload FAULT=lost FAULT_EVERY=7 -- "${checks[@]}"
pair record right DD $payload FAULT=record "FAULT_FILE=$work/messages" -- "${checks[@]}"
pair replay caught DD $payload FAULT=replay "FAULT_FILE=$work/messages" -- "${checks[@]}"
# An MPI that was built without CUDA sends GPU buffers by UCX, but its collectives cannot read them.
operations=${GPU_COLLECTIVES:+bcast,allgather,allgatherv,alltoall,alltoallv,allreduce,reduce,reduce_scatter_block,gather,scatter}
[[ -z $operations ]] || pair healthy-collectives right DD,HH -- "${checks[@]}" "--collectives=$operations,put,get"
for operation in ${operations//,/ }; do
    for fault in flip past; do
        pair "$operation-$fault" caught DD "FAULT_IN=MPI_${operation^}" FAULT=$fault FAULT_EVERY=5 -- --check=257,65543 "--collectives=$operation"
    done
done
pair flip-large caught DD $payload FAULT=flip FAULT_EVERY=97 FAULT_LEAST=16777216 -- "${matrix[@]}"
pair flip-rank0 caught DD $payload FAULT=flip FAULT_EVERY=97 FAULT_RANK=0 -- "${matrix[@]}"
pair flip-late caught DD $payload FAULT=flip FAULT_EVERY=200 FAULT_AFTER=2000 -- "${matrix[@]}"
pair flip-host-to-device caught HD $payload FAULT=flip FAULT_EVERY=97 -- "${matrix[@]}"
pair flip-device-to-host caught DH $payload FAULT=flip FAULT_EVERY=97 -- "${matrix[@]}"
for fault in flip half repeat truncate; do
    pair "$fault-control" control DD FAULT_TAG=2 FAULT=$fault FAULT_EVERY=50 -- "${matrix[@]}"
done

record memory-healthy right . "$work/memory" "$gpus" 256M
for kind in "${kinds[@]}"; do
    for every in 3 7; do
        record "memory-$kind-$every" caught "\"operation\": \"$kind" env "LD_PRELOAD=$work/faulty_copy.so" \
            "FAULT_COPY=$kind" "FAULT_EVERY=$every" "$work/memory" "$gpus" 256M
    done
done
record memory-host-3 caught '"operation": "(one_core|all_cores)"' env "LD_PRELOAD=$work/faulty_copy.so" FAULT_COPY=host FAULT_EVERY=3 "$work/memory" "$gpus" 256M
printf '%s runs, %s not as they should be\n' "$(wc -l <"$OUT/summary.tsv")" "$missed"
exit $((missed != 0))
