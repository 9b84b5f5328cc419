#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:10:0
#SBATCH --partition=gpu
#SBATCH --exclusive
#SBATCH --no-requeue
export OMPI_MCA_pml='^cm'
export OMPI_MCA_pml_ucx_tls=ib,sm,tcp,self,cuda,rocm
export UCX_RNDV_THRESH=1
export NCCL_PROTO=simple
export FI_PROVIDER=efa
export FI_EFA_USE_DEVICE_RDMA=1
export FI_EFA_FORK_SAFE=1
export OMPI_MCA_btl=tcp,self
export OMPI_MCA_btl_tcp_if_exclude=lo,docker0
export NCCL_DEBUG=INFO
export PRTE_MCA_plm=ssh
export PRTE_MCA_plm_ssh_args='-o BatchMode=yes -o StrictHostKeyChecking=yes'
trap 'exit 143' TERM
scontrol show hostnames "$SLURM_JOB_NODELIST" >hosts
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ mpirun -np 2 --hostfile hosts -N 1 -x FI_EFA_FORK_SAFE -x FI_EFA_USE_DEVICE_RDMA -x FI_PROVIDER -x NCCL_DEBUG -x NCCL_PROTO -x UCX_RNDV_THRESH BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh nccl_message_transfer'
mpirun -np 2 --hostfile hosts -N 1 -x FI_EFA_FORK_SAFE -x FI_EFA_USE_DEVICE_RDMA -x FI_PROVIDER -x NCCL_DEBUG -x NCCL_PROTO -x UCX_RNDV_THRESH BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/placed.sh nccl_message_transfer
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
