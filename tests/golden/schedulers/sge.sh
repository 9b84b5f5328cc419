#!/bin/bash
#$ -N "rfm_xccl_nodes_HASH"
#$ -o rfm_job.out
#$ -e rfm_job.err
#$ -wd PREFIX/stage/h20-roce/gpu/spack-ucx-1_14/xccl_nodes_HASH
#$ -l h_rt=0:10:0
#$ -q gpu.q
#$ -pe mpi 16
export OMPI_MCA_pml=ucx
export OMPI_MCA_pml_ucx_tls=ib,sm,tcp,self,cuda,rocm
export UCX_RNDV_THRESH=1
export UCX_TLS=rc,ud,sm,self,cuda
export NCCL_IB_GID_INDEX=3
export NCCL_IBEXT_DISABLE=1
export NCCL_IB_HCA=mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1
export NCCL_SOCKET_IFNAME=bond0
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,TUNING
export NCCL_DEBUG_FILE=nccl.%h.%p.log
export PRTE_MCA_plm=ssh
export PRTE_MCA_plm_ssh_args='-o BatchMode=yes -o StrictHostKeyChecking=yes'
trap 'exit 143' TERM
awk '{print $1}' "$PE_HOSTFILE" >hosts
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ mpirun -np 16 --bind-to none --hostfile hosts -N 8 -x NCCL_DEBUG -x NCCL_DEBUG_FILE -x NCCL_DEBUG_SUBSYS -x NCCL_IBEXT_DISABLE -x NCCL_IB_GID_INDEX -x NCCL_IB_HCA -x NCCL_SOCKET_IFNAME -x UCX_RNDV_THRESH -x UCX_TLS BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1'
mpirun -np 16 --bind-to none --hostfile hosts -N 8 -x NCCL_DEBUG -x NCCL_DEBUG_FILE -x NCCL_DEBUG_SUBSYS -x NCCL_IBEXT_DISABLE -x NCCL_IB_GID_INDEX -x NCCL_IB_HCA -x NCCL_SOCKET_IFNAME -x UCX_RNDV_THRESH -x UCX_TLS BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
