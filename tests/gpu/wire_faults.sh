#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs gpu_aware, memory and torch_collectives on NVIDIA GPUs with libraries that spoil messages, copies and the results of
# NCCL, prints a table, and fails if a run with wrong data ends well. What tests/wire does on host memory.
#
#   OUT=dir MPIRUN=.../mpirun [UCX_LIB=.../libucx/lib] [CUDA_HOME=/usr/local/cuda] [CUDA_LIB=dir of libcudart] [GPU_COLLECTIVES=1] \
#       [GPUS=2] [PYTHON=python3] [JOBS=4] [LIMIT=225] tests/gpu/wire_faults.sh
#
# With GPUS=1 both ranks of MPI share the GPU, and NCCL is left out. GPU_COLLECTIVES=1 is for an MPI whose collectives take
# GPU buffers. mpic++ and mpicc are taken from the directory of MPIRUN; PYTHON has PyTorch. JOBS runs go on at the same
# time; after LIMIT seconds none begins. $OUT/logs.tar has the output of each run, its exit status in the last line;
# $OUT/summary.tsv one line for each: program, fault, variant, exit status, seconds, faults, wrong bytes, result.
# Results: right (no fault, none seen), caught (payload that a reading or a check found wrong, a clock that is not the
# kernel's, or memory that is not of the GPU), control (ranks stopped at a control message, which proves nothing about payload), and what fails this script:
# MISSED, NO-FAULT, FALSE-ALARM, NO-PAYLOAD, NOT-RUN.
# shellcheck disable=SC2329 # start calls the functions
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${OUT:?set OUT to an empty directory}"
mpirun=${MPIRUN:-$(command -v mpirun)}
bin=$(dirname "$mpirun")
cuda=${CUDA_HOME:-/usr/local/cuda}
cuda_lib=${CUDA_LIB:-$cuda/lib64}
python=${PYTHON:-python3}
gpus=${GPUS:-2} jobs=${JOBS:-4} limit=${LIMIT:-225}
work=$(mktemp -d)
mkdir -p "$OUT" "$work/logs"
: >"$OUT/summary.tsv"
torch_libraries=${LD_LIBRARY_PATH:-}  # PyTorch brings its own CUDA
export LD_LIBRARY_PATH="${UCX_LIB:+$UCX_LIB:}$cuda_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

cudart=$(find -L "$cuda_lib" -maxdepth 1 -name 'libcudart.so*' | head -n 1)
cxx=(-O2 -std=c++17 -pthread -DGPU_CUDA "-I$cuda/include")
"$bin/mpic++" "${cxx[@]}" "$root/reframe_checks/src/gpu_aware.cpp" "$cudart" -ldl -o "$work/gpu_aware" &
c++ "${cxx[@]}" "$root/reframe_checks/src/memory.cpp" "$cudart" -ldl -o "$work/memory" &
"$bin/mpicc" -shared -fPIC -O2 "$root/tests/wire/faulty_mpi.c" -ldl -o "$work/faulty_mpi.so" &
for library in faulty_copy faulty_nccl; do
    cc -shared -fPIC -O2 "$root/tests/wire/$library.c" -ldl -o "$work/$library.so" &
done
wait
for built in gpu_aware memory faulty_mpi.so faulty_copy.so faulty_nccl.so; do
    [[ -e $work/$built ]] || exit 2
done

share=() kinds=(to_gpu from_gpu local peer) memories=(managed pinned elsewhere)
[[ $gpus != 1 ]] || share=(--share-devices) kinds=(to_gpu from_gpu local) memories=(managed pinned)

sum() { awk '{ sum += $1 } END { print sum + 0 }'; }

# record PROGRAM FAULT VARIANT WANTED OPERATIONS COMMAND...: WANTED is right, caught or control. OPERATIONS are regular
# expressions, separated by blanks: lines with each must have wrong bytes, and only those count.
record() {
    local program=$1 fault=$2 variant=$3 wanted=$4 operations=$5 status=0 begin=$SECONDS log=$work/logs/$1-$2-$3.log
    shift 5
    local faults=0 wrong=0 result=caught operation clock
    if ((SECONDS >= limit)); then
        status=- result=NOT-RUN
    else
        printf '$ %s\n' "$*" >"$log"
        timeout -k 2 $((limit + 12 - SECONDS < 60 ? limit + 12 - SECONDS : 60)) "$@" >>"$log" 2>&1 </dev/null || status=$?
        printf 'exit_status=%s\n' "$status" >>"$log"
        faults=$(sed -n 's/.*faulty_[a-z]*: \([0-9]*\) faults.*/\1/p' "$log" | sum)
        clock=$(sed -n 's/.*"clock_ratio": \([0-9.]*\).*/\1/p' "$log" | awk '$1 < 0.99 || $1 > 1.01 { n++ } END { print n + 0 }')
        for operation in $operations; do
            wrong=$(grep -E '"event": "(reading|check)"' "$log" | grep -E -- "$operation" | sed -n 's/.*"wrong": \([0-9]*\).*/\1/p' | sum)
            [[ $wrong != 0 ]] || break
        done
        if [[ $wanted == right ]]; then
            result=right
            [[ $status == 0 && $clock == 0 ]] && grep -q '"event": "end", "wrong": 0' "$log" || result=FALSE-ALARM
        elif [[ $fault == clock || $fault == events ]]; then
            [[ $clock != 0 ]] || result=MISSED
        elif [[ $status == 0 ]]; then
            result=MISSED
            [[ $faults != 0 ]] || result=NO-FAULT
        elif grep -q 'a control message' "$log"; then
            result=control
            [[ $wanted == control ]] || result=NO-PAYLOAD
        elif [[ $wrong == 0 ]] && ! grep -q 'does not lie there' "$log"; then
            result=NO-PAYLOAD
        fi
    fi
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$program" "$fault" "$variant" "$status" $((SECONDS - begin)) "$faults" "$wrong" "$result" >>"$OUT/summary.tsv"
}

# start COMMAND...: in the background, as soon as fewer than $jobs run.
start() {
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
    "$@" &
}

# pair FAULT VARIANT WANTED BUFFERS [VARIABLE=VALUE...] -- OPTIONS...
pair() {
    local fault=$1 variant=$2 wanted=$3 buffers=$4 variables=()
    shift 4
    [[ $fault == none ]] || variables=("FAULT=$fault")
    while [[ $1 != -- ]]; do variables+=("$1"); shift; done
    shift
    local forwarded=(-x LD_LIBRARY_PATH -x UCX_LOG_LEVEL=info -x OMPI_MCA_opal_common_ucx_tls=any -x OMPI_MCA_opal_common_ucx_devices=any)
    record gpu_aware "$fault" "$variant" "$wanted" . "$mpirun" --allow-run-as-root --oversubscribe --bind-to none --mca pml ucx -n 2 \
        "${forwarded[@]}" env "LD_PRELOAD=$work/faulty_mpi.so" "${variables[@]}" "$work/gpu_aware" --ranks=2 "${share[@]}" "--buffers=$buffers" "$@"
}

# ranks PORT [VARIABLE=VALUE...]: two ranks of torch_collectives.
ranks() {
    local status=0 rank port=$1
    shift
    for rank in 0 1; do
        env "LD_PRELOAD=$work/faulty_nccl.so" "RANK=$rank" "LOCAL_RANK=$rank" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port" "$@" \
            "$python" "$root/reframe_checks/src/torch_collectives.py" --ranks 2 --sizes 64K,16M --warmup 1 --iterations 4 \
            --collectives all_reduce,all_gather,reduce_scatter,alltoall,broadcast,sendrecv &
    done
    wait -n || status=$?
    wait -n || status=$?
    return "$status"
}
export -f ranks
export work root python

# collectives PORT FAULT VARIANT WANTED OPERATIONS [VARIABLE=VALUE...]
collectives() {
    local port=$1 fault=$2 variant=$3 wanted=$4 operations=$5 variables=()
    shift 5
    [[ $fault == none ]] || variables=("FAULT=$fault")
    LD_LIBRARY_PATH=$torch_libraries record framework "$fault" "$variant" "$wanted" "$operations" bash -c 'ranks "$@"' _ "$port" "${variables[@]}" "$@"
}

# copies FAULT KIND EVERY OPERATION
copies() {
    record memory "$1" "$2-$3" caught "\"operation\": \"$4" env "LD_PRELOAD=$work/faulty_copy.so" "FAULT=$1" "FAULT_COPY=$2" "FAULT_EVERY=$3" \
        "$work/memory" "$gpus" 256M
}

# What an earlier run has sent arrives.
replayed() {
    pair record dd right DD "$payload" "FAULT_FILE=$work/messages" -- "${checks[@]}"
    pair replay dd caught DD "$payload" "FAULT_FILE=$work/messages" -- "${checks[@]}"
}

matrix=("--sizes=1M,16M" --latency-sizes=8)
checks=("--check=1,8,257,4099,65543,1M")
payload=FAULT_TAG=13  # tag_data and tag_other of exchange.hpp

if [[ $gpus != 1 ]]; then
    port=$((20000 + $$ % 20000))
    all='"all_reduce" "all_gather" "reduce_scatter" "alltoall" "broadcast" "sendrecv"'
    start collectives $((port++)) none all right .
    for fault in flip half drop repeat blocks past ahead; do
        start collectives $((port++)) $fault all caught "$all"
    done
    # NCCL lets the stream of a message wait for those of all others of its group.
    start collectives $((port++)) lost results caught "${all% *}"
    start collectives $((port++)) flip rank1 caught "$all" FAULT_RANK=1
    start collectives $((port++)) root broadcast caught '"broadcast"'
    for fault in type op; do
        start collectives $((port++)) $fault sums caught '"all_reduce" "reduce_scatter"'
    done
    for fault in clock events; do
        start collectives $((port++)) $fault all caught .
    done
fi

start record memory none all right . "$work/memory" "$gpus" 256M
start pair none matrix right DD -- --sizes=1M,4M,16M,64M,256M --latency-sizes=8
start pair none kinds right DD,HD,DH,HH -- "${checks[@]}" --sizes=1M --latency-sizes=8
for fault in flip half drop repeat swap shift source truncate past ahead early lost late comm tag from count restart; do
    start pair $fault check caught DD,HD,DH,HH $payload FAULT_EVERY=7 -- "${checks[@]}"
done
for fault in flip half drop repeat swap truncate past early late comm restart; do
    # A byte ahead of the timed messages is outside of the buffer: the process ends there.
    start pair $fault timed caught DD $payload FAULT_EVERY=97 -- "${matrix[@]}"
done
start replayed
start pair clock timed caught DD -- "${matrix[@]}"
# An MPI that was built without CUDA sends GPU buffers by UCX, but its collectives cannot read them.
operations=${GPU_COLLECTIVES:+bcast,allgather,allgatherv,alltoall,alltoallv,allreduce,reduce,reduce_scatter_block,gather,scatter}
[[ -z $operations ]] || start pair none collectives right DD,HH -- "${checks[@]}" "--collectives=$operations,put,get"
for operation in ${operations//,/ }; do
    for fault in flip past; do
        start pair $fault "$operation" caught DD "FAULT_IN=MPI_${operation^}" FAULT_EVERY=5 -- --check=257,65543 "--collectives=$operation"
    done
done

for kind in "${kinds[@]}"; do
    start copies flip "$kind" 7 "$kind"
    start copies past "$kind" 7 "$kind"
done
start copies ahead local 7 local
start copies flip host 3 one_core
for fault in "${memories[@]}"; do
    start record memory "$fault" all caught . env "LD_PRELOAD=$work/faulty_copy.so" "FAULT=$fault" "$work/memory" "$gpus" 256M
done
start record memory clock all caught . env "LD_PRELOAD=$work/faulty_nccl.so" FAULT=clock "$work/memory" "$gpus" 256M

start pair flip large caught DD $payload FAULT_EVERY=97 FAULT_LEAST=16777216 -- "${matrix[@]}"
start pair flip rank0 caught DD $payload FAULT_EVERY=97 FAULT_RANK=0 -- "${matrix[@]}"
start pair flip late caught DD $payload FAULT_EVERY=200 FAULT_AFTER=2000 -- "${matrix[@]}"
start pair flip host-to-device caught HD $payload FAULT_EVERY=97 -- "${matrix[@]}"
start pair flip device-to-host caught DH $payload FAULT_EVERY=97 -- "${matrix[@]}"
for fault in flip half; do
    start pair $fault rare caught DD $payload FAULT_EVERY=500 -- "${matrix[@]}"
done
for fault in flip half repeat truncate; do
    start pair $fault control control DD FAULT_TAG=2 FAULT_EVERY=50 -- "${matrix[@]}"
done
wait

tar -C "$work" -cf "$OUT/logs.tar" logs
awk -F '\t' '
    { fault[$2]; total[$2, $1]++; programs[$1]; good[$2, $1] += $8 ~ /^(right|caught|control)$/ }
    END {
        printf "%-10s%14s%14s%14s\n", "fault", "gpu_aware", "memory", "framework"
        split("gpu_aware memory framework", name, " ")
        for (each in fault) {
            row = sprintf("%-10s", each)
            for (i = 1; i <= 3; i++) row = row sprintf("%14s", total[each, name[i]] ? good[each, name[i]] " of " total[each, name[i]] : "-")
            print row | "sort"
        }
    }' "$OUT/summary.tsv"
missed=$(grep -vcE $'\t(right|caught|control)$' "$OUT/summary.tsv")
grep -vE $'\t(right|caught|control)$' "$OUT/summary.tsv"
printf '%s runs in %s s, %s not as they should be\n' "$(wc -l <"$OUT/summary.tsv")" "$SECONDS" "$missed"
exit $((missed != 0))
