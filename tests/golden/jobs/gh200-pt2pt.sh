#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:10:0
#SBATCH --partition=gpu
#SBATCH --exclusive
#SBATCH --no-requeue
export NCCL_NET='AWS Libfabric'
export NCCL_NET_GDR_LEVEL=PHB
export NCCL_CROSS_NIC=1
export FI_CXI_DEFAULT_CQ_SIZE=131072
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RX_MATCH_MODE=software
export FI_MR_CACHE_MONITOR=userfaultfd
export MPICH_GPU_SUPPORT_ENABLED=1
trap 'exit 143' TERM
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ CUDA_VISIBLE_DEVICES=0 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 4194304:4194304 D D'
export CUDA_VISIBLE_DEVICES=0
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 4194304:4194304 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
