#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Accepts a node with 2 or more NVIDIA GPUs by a contract of ten clauses, and refuses it with NCCL_NTHREADS=64 in the environment.
#
#   OUT=dir [WHEELS=dir] [PYTHON=python3] tests/gpu/certify.sh
#
# PYTHON has PyTorch, and NumPy. WHEELS has the wheels of requirements.lock (without NumPy) for a machine without a network; without
# it PYTHON has them, as that of .venv. Without nvidia-smi the contract is for the host: it has fewer clauses, and no fault.
# Prints one line for each step: name, result, seconds, what was found; exits 1 if one is not as it should be. The records come back
# in $OUT/NAME.tar.gz. Takes about 5 minutes, never more than 9. Changes no setting of a GPU.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${OUT:?set OUT to an empty directory}"
python=${PYTHON:-python3}
work=$(mktemp -d)
mkdir -p "$OUT"
table=$OUT/certify.tsv
: >"$table"
export PYTHONPATH=$root
wrong=0

# row NAME WANTED FOUND SECONDS TEXT: WANTED is a pattern.
row() {
    local result=right
    # shellcheck disable=SC2053 # it is a pattern
    [[ $3 == $2 ]] || { result=WRONG wrong=$((wrong + 1)); }
    printf '%-28s %-6s %4s s  %s: %s\n' "$1" "$result" "$4" "$3" "$5" | tee -a "$table"
}

# step NAME LIMIT_S COMMAND...: the exit status in status, the seconds in took, the output in $OUT/NAME.out and .err.
step() {
    local name=$1 limit=$2 begin=$SECONDS
    shift 2
    status=0
    timeout -k 5 "$limit" "$@" >"$OUT/$name.out" 2>"$OUT/$name.err" </dev/null || status=$?
    took=$((SECONDS - begin))
}

# certify NAME STATUS LIMIT_S CLAUSES VARIABLE=VALUE...: the row also says how many clauses are met.
certify() {
    local name=$1 wanted=$2 limit=$3 clauses=$4
    shift 4
    step "$name" "$limit" env "$@" "${busbar[@]}" certify run --contract "$work/contract.yaml" --output "$work/$name"
    row "$name" "$wanted" "$status" "$took" "$(grep -c '^  met:' "$OUT/$name.out") of $clauses met; $(head -n 1 "$OUT/$name.out" | cut -c1-300)"
    ((took <= 240)) || row "$name in 4 minutes" yes no "$took" "too slow"
    grep -h '"seconds"' "$work/$name"/runs/*/run.json | tr -dc '0-9.\n' | paste -sd ' ' | sed "s/^/    seconds of its runs: /" | tee -a "$table"
    tar -C "$work" -czf "$OUT/$name.tar.gz" --exclude=stage "$name"
}

# verified NAME STATUS DIRECTORY
verified() {
    step "$1" 25 "${busbar[@]}" certify verify "$3"
    row "$1" "$2" "$status" "$took" "$(head -n 1 "$OUT/$1.out" | cut -c1-200)"
}

export BUSBAR_TORCH_PYTHON=$python
if [[ -n ${WHEELS:-} ]]; then
    # An environment of its own, in which MPI and UCX are found; what it lacks comes from PYTHON.
    step venv 20 "$python" -m venv --without-pip "$work/venv"
    step install 60 "$python" -m pip --python "$work/venv/bin/python" install -q --no-index --no-deps --no-compile "$WHEELS"/*.whl
    row install 0 "$status" "$took" "$(tail -n 1 "$OUT/install.err")"
    "$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))' >"$(echo "$work"/venv/lib/python3.*/site-packages)/machine.pth"
    python=$work/venv/bin/python
fi
busbar=("$python" -P -m busbar)

site=local
if command -v nvidia-smi >/dev/null; then
    step detect 40 "${busbar[@]}" site detect --output "$work/accepted"
    row detect 0 "$status" "$took" "$(nvidia-smi --query-gpu=name --format=csv,noheader | paste -sd ,)"
    site=$work/accepted
    cp "$work/accepted/site.yaml" "$OUT/"
fi
cat >"$work/contract.yaml" <<CONTRACT
site: $site
clauses:
  - require: gate
  - require: same
    facts: {kernel: "", lock_hash: "", mpi: ""}
  - {require: check, check: memory}
  - {require: check, check: gpu_aware}
CONTRACT
clauses=5
if [[ $site == local ]]; then
    echo '  - require: pairs' >>"$work/contract.yaml"
else
    clauses=10
    echo '  - {require: pairs, bytes: 16 MiB, at_least: 25 % of limit}' >>"$work/contract.yaml"
    for operation in all_reduce all_gather reduce_scatter broadcast sendrecv; do
        echo "  - {require: check, check: framework, operation: $operation, bytes: 1 GiB, at_least: [200 GB/s, 25 % of limit]}"
    done >>"$work/contract.yaml"
fi
cp "$work/contract.yaml" "$OUT/"

step plan 20 "${busbar[@]}" certify run --contract "$work/contract.yaml" --plan
row plan 0 "$status" "$took" "$(tail -n 1 "$OUT/plan.out")"
certify healthy 0 241 "$clauses"
verified healthy-verified 3 "$work/healthy"
log=$(find "$work/healthy/runs" -name rfm_job.out -size +0 | head -n 1)
if [[ -n $log ]]; then
    cp "$log" "$work/log"
    printf ' ' >>"$log"
    verified tampered 1 "$work/healthy"
    cp "$work/log" "$log"
fi
if [[ $site != local ]]; then
    certify few-threads 1 $((505 - SECONDS)) "$clauses" NCCL_NTHREADS=64
    cause=$(grep -o -m 1 'nccl-few-threads' "$OUT/few-threads.out" | head -n 1)
    row few-threads-cause nccl-few-threads "$cause" 0 "$(grep -m 1 '^  not met: framework' "$OUT/few-threads.out" | cut -c1-200)"
    verified few-threads-verified 3 "$work/few-threads"
fi
printf '%s s in all, %s not as it should be\n' "$SECONDS" "$wrong" | tee -a "$table"
exit $((wrong != 0))
