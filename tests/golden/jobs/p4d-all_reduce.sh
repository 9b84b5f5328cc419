#!/bin/bash
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=8
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
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,TUNING
export NCCL_DEBUG_FILE=nccl.%h.%p.log
export PRTE_MCA_plm=ssh
export PRTE_MCA_plm_ssh_args='-o BatchMode=yes -o StrictHostKeyChecking=yes'
trap 'exit 143' TERM
scontrol show hostnames "$SLURM_JOB_NODELIST" >hosts
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ mpirun -np 16 --bind-to none --hostfile hosts -N 8 -x FI_EFA_FORK_SAFE -x FI_EFA_USE_DEVICE_RDMA -x FI_PROVIDER -x NCCL_DEBUG -x NCCL_DEBUG_FILE -x NCCL_DEBUG_SUBSYS -x NCCL_PROTO -x UCX_RNDV_THRESH BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 8 -e 1G -f 2 -g 1 -c 1 -n 100'
mpirun -np 16 --bind-to none --hostfile hosts -N 8 -x FI_EFA_FORK_SAFE -x FI_EFA_USE_DEVICE_RDMA -x FI_PROVIDER -x NCCL_DEBUG -x NCCL_DEBUG_FILE -x NCCL_DEBUG_SUBSYS -x NCCL_PROTO -x UCX_RNDV_THRESH BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 8 -e 1G -f 2 -g 1 -c 1 -n 100
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
