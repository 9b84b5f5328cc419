#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=2
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:10:0
#SBATCH --partition=gpu
#SBATCH --exclusive
#SBATCH --no-requeue
export HSA_ENABLE_SDMA=0
export NCCL_NET='AWS Libfabric'
export NCCL_CROSS_NIC=1
export FI_CXI_DEFAULT_CQ_SIZE=131072
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RX_MATCH_MODE=software
export FI_MR_CACHE_MONITOR=userfaultfd
export MPICH_GPU_SUPPORT_ENABLED=1
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
trap 'exit 143' TERM
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,1 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,1
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,2 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,2
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,3 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,3
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,4 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,4
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,5 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,5
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,6 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,6
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
printf '%s\n' '$ HIP_VISIBLE_DEVICES=0,7 srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D'
export HIP_VISIBLE_DEVICES=0,7
srun --mpi=cray_shasta --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh osu_bw -m 16777216:16777216 D D
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
