#!/bin/bash
export HIP_FORCE_DEV_KERNARG=1
export NCCL_NET='AWS Libfabric'
export NCCL_CROSS_NIC=1
export FI_CXI_DEFAULT_CQ_SIZE=131072
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RX_MATCH_MODE=software
export FI_MR_CACHE_MONITOR=userfaultfd
export MPICH_GPU_SUPPORT_ENABLED=1
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,TUNING
export NCCL_DEBUG_FILE=nccl.%h.%p.log
trap 'exit 143' TERM
echo 'busbar: standard error goes to standard output from here' >&2
exec 2>&1
printf '%s\n' '$ flux run --nodes=2 --ntasks=8 --exclusive -o cpu-affinity=off BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/amdgpu BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1'
flux run --nodes=2 --ntasks=8 --exclusive -o cpu-affinity=off BUSBAR/reframe_checks/src/busy.sh BUSBAR/reframe_checks/src/near_gpu.sh /sys/bus/pci/drivers/amdgpu BUSBAR/reframe_checks/src/placed.sh all_reduce_perf -b 512 -e 18G -f 2 -g 1
status=$?
cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"
echo "exit_status=$status"
