#!/bin/bash
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
trap 'exit 143' TERM
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ flux run --nodes=2 --ntasks=16 --exclusive -o cpu-affinity=off BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1'
flux run --nodes=2 --ntasks=16 --exclusive -o cpu-affinity=off BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/nvidia BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
