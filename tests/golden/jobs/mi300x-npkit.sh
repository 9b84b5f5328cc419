#!/bin/bash
#SBATCH --ntasks=64
#SBATCH --ntasks-per-node=64
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:10:0
#SBATCH --partition=cpx
#SBATCH --exclusive
#SBATCH --no-requeue
export OMPI_MCA_pml=ucx
export OMPI_MCA_pml_ucx_tls=ib,sm,tcp,self,cuda,rocm
export HIP_FORCE_DEV_KERNARG=1
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,TUNING
export NCCL_DEBUG_FILE=nccl.%h.%p.log
export NPKIT_DUMP_DIR=npkit
trap 'exit 143' TERM
mkdir -p "$NPKIT_DUMP_DIR"
exec 2>&1  # one file, in the order in which things were said
printf '%s\n' '$ ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63 srun --cpu-bind=ldoms --mpi=pmix BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 1M -e 1M -f 2 -g 1 -n 1 -w 0'
export ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63
srun --cpu-bind=ldoms --mpi=pmix BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 1M -e 1M -f 2 -g 1 -n 1 -w 0
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
