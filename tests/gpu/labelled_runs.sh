#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Records labelled runs on a node with 4 NVIDIA GPUs: what was done to a run is its name.
#
#   OUT=dir MPIRUN=.../mpirun UCX_LIB=.../libucx/lib [UCX_NEW_LIB=...] GPU_AWARE=.../gpu_aware tests/gpu/labelled_runs.sh
#
# MPIRUN and GPU_AWARE (the CUDA build) are of one Open MPI 5; UCX_LIB is UCX 1.14 with CUDA, UCX_NEW_LIB a
# later one. Without GPU_AWARE, or without PyTorch, the other half is recorded. Writes $OUT/labelled.tar.gz.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${OUT:?set OUT to an empty directory}"
python=${PYTHON:-python3}
mpirun=${MPIRUN:-mpirun}
cuda_lib=${CUDA_LIB:-/usr/local/cuda/lib64}
logs=$(mktemp -d)
common=(--allow-run-as-root --oversubscribe)
quick=(--sizes "4M,16M,256M" --latency-sizes 8 --check 64K)

# record NAME LIMIT_S COMMAND...: the command in the first line, its output, its exit status in the last.
record() {
    local name=$1 limit=$2 status=0
    shift 2
    local log=$logs/$name.log begin=$SECONDS
    printf '$ %s\n' "$*" >"$log"
    timeout -k 5 "$limit" "$@" >>"$log" 2>&1 </dev/null || status=$?
    printf 'exit_status=%s\n' "$status" >>"$log"
    printf '%s: exit %s, %s s\n' "$name" "$status" $((SECONDS - begin))
}

# gpu_aware NAME LIMIT_S RANKS UCX_LIBRARIES [mpirun options --] [program options]
gpu_aware() {
    local name=$1 limit=$2 ranks=$3 ucx=$4
    shift 4
    local options=()
    while (($#)) && [[ $1 != -- ]]; do options+=("$1"); shift; done
    (($#)) && shift
    record "gpu_aware_$name" "$limit" "$mpirun" "${common[@]}" -n "$ranks" "${options[@]}" \
        -x "LD_LIBRARY_PATH=$ucx:$cuda_lib" -x UCX_LOG_LEVEL=info "$GPU_AWARE" --ranks "$ranks" "$@"
}

if [[ -x ${GPU_AWARE:-} ]]; then
    old=${UCX_LIB:?set UCX_LIB to the lib directory of UCX 1.14 with CUDA}
    any=(-x OMPI_MCA_opal_common_ucx_tls=any -x OMPI_MCA_opal_common_ucx_devices=any)
    ucx=(--mca pml ucx)
    gpu_aware healthy 30 4 "$old" "${ucx[@]}" -- "${quick[@]}"
    gpu_aware two_gpus_healthy 20 2 "$old" "${ucx[@]}" -x CUDA_VISIBLE_DEVICES=1,3 -- "${quick[@]}"
    gpu_aware no_cuda_ipc 40 4 "$old" "${ucx[@]}" "${any[@]}" -x UCX_TLS=sm,self,cuda_copy -- --sizes 16M --seconds 0.01
    gpu_aware no_cuda_ipc_refused 20 4 "$old" "${ucx[@]}" -x UCX_TLS=sm,self,cuda_copy -- "${quick[@]}"
    gpu_aware tcp_only 40 4 "$old" "${ucx[@]}" "${any[@]}" -x UCX_TLS=tcp,self,cuda_copy -- --sizes 4M --seconds 0.01
    gpu_aware rndv_inf 40 4 "$old" "${ucx[@]}" -x UCX_RNDV_THRESH=inf -- --sizes 16M --seconds 0.01
    gpu_aware default_pml 20 4 "$old" -- "${quick[@]}"
    gpu_aware pml_ob1 20 4 "$old" --mca pml ob1 -- "${quick[@]}"
    gpu_aware same_gpu 20 4 "$old" "${ucx[@]}" -x CUDA_VISIBLE_DEVICES=0 -- "${quick[@]}" --share-devices
    gpu_aware too_few_gpus 20 4 "$old" "${ucx[@]}" -x CUDA_VISIBLE_DEVICES=0,1 -- "${quick[@]}"
    gpu_aware host_to_device 40 4 "$old" "${ucx[@]}" -- --sizes 16M --buffers HD --seconds 0.01
    gpu_aware collectives 20 4 "$old" "${ucx[@]}" -- --check 1M --collectives allreduce
    gpu_aware corrupt 20 4 "$old" "${ucx[@]}" -- "${quick[@]}" --inject corrupt:1
    gpu_aware die 20 4 "$old" "${ucx[@]}" -- "${quick[@]}" --inject die:2
    gpu_aware hang 10 4 "$old" "${ucx[@]}" -- "${quick[@]}" --inject hang:2
    gpu_aware one_core 40 4 "$old" "${ucx[@]}" --cpu-set 0 --bind-to core:overload-allowed -- --sizes 16M --seconds 0.01
    gpu_aware bundled_ucx 20 4 /nonexistent "${ucx[@]}" -- "${quick[@]}"
    if [[ -d ${UCX_NEW_LIB:-} ]]; then
        gpu_aware new_ucx_healthy 30 4 "$UCX_NEW_LIB" "${ucx[@]}" -- "${quick[@]}"
        # libucp of one version and libucs, libuct of another, as a careless LD_LIBRARY_PATH makes it.
        mixed=$(mktemp -d)
        ln -s "$UCX_NEW_LIB"/libuc[st]* "$UCX_NEW_LIB"/ucx "$mixed"/
        ln -s "$old"/libuc[pm]* "$mixed"/
        gpu_aware mixed_ucx 20 4 "$mixed" "${ucx[@]}" -- "${quick[@]}"
    fi
    record singletons 20 "$mpirun" "${common[@]}" -n 2 env -u PMIX_NAMESPACE -u PMIX_RANK -u PMIX_SERVER_URI2 \
        -u PMIX_SERVER_URI21 -u PMIX_SERVER_URI3 -u PMIX_SERVER_URI4 -u PMIX_SERVER_URI41 \
        LD_LIBRARY_PATH="$old:$cuda_lib" "$GPU_AWARE" --ranks 2 "${quick[@]}"
    mv "$logs/singletons.log" "$logs/gpu_aware_singletons.log"
fi

if "$python" -c 'import torch'; then
    timeout -k 10 280 "$python" "$here/labelled_torch.py" "$logs"
fi

nvidia-smi -q -i 0 | grep -E 'Driver Version|CUDA Version|Product Name' >"$logs/machine.txt"
mkdir -p "$OUT"
tar -C "$logs" -czf "$OUT/labelled.tar.gz" .
find "$logs" -name '*.log' | wc -l
