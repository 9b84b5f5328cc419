#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=4
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:10:0
#SBATCH --partition=spx
#SBATCH --exclusive
#SBATCH --no-requeue
export OMPI_MCA_pml=ucx
export OMPI_MCA_pml_ucx_tls=ib,sm,tcp,self,cuda,rocm
export HIP_FORCE_DEV_KERNARG=1
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,TUNING
export NCCL_DEBUG_FILE=nccl.%h.%p.log
export NCCL_MIN_NCHANNELS=32
trap 'exit 143' TERM
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ ROCR_VISIBLE_DEVICES=0,1,2,3 srun --cpu-bind=ldoms --mpi=pmix --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 8 -e 16G -f 2 -g 1'
export ROCR_VISIBLE_DEVICES=0,1,2,3
srun --cpu-bind=ldoms --mpi=pmix --kill-on-bad-exit=1 BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 8 -e 16G -f 2 -g 1
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
