# SPDX-License-Identifier: MIT
"""Checks as other suites write them: they know ReFrame's words, and nothing of Busbar."""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, run_before, sanity_function, variable


class NodeCheck(rfm.RunOnlyRegressionTest):
    """Prints what the partition says of its hardware."""

    valid_prog_environs = ["*"]
    executable = "echo"

    @run_after("setup")
    def set_cpus(self):
        processor = self.current_partition.processor
        self.num_cpus_per_task = processor.num_cpus
        self.env_vars = {
            "NODE_CORES": processor.num_cores or "none",
            "NODE_SOCKETS": processor.num_sockets or "none",
            "NODE_NUMA": processor.num_numa_nodes or "none",
            "NODE_RUNTIME": self.current_partition.container_runtime or "none",
        }

    @run_before("run")
    def set_text(self):
        self.executable_opts = [f"cpus={self.current_partition.processor.num_cpus}"]

    @sanity_function
    def printed(self):
        return sn.assert_found(r"^cpus=\d+", self.stdout)


@rfm.simple_test
class any_node(NodeCheck):  # noqa: N801
    valid_systems = ["*"]


class GpuCheck(NodeCheck):
    """One task a GPU; the compiler is told of its architecture."""

    default_num_gpus_per_node = variable(int, value=0)

    @run_after("setup")
    def set_gpus(self):
        gpu = self.current_partition.select_devices("gpu")[0]
        self.default_num_gpus_per_node = gpu.num_devices
        self.num_tasks = self.num_tasks_per_node = self.default_num_gpus_per_node
        self.num_cpus_per_task //= self.num_tasks
        self.env_vars |= {"GPU_ARCH": gpu.arch, "GPU_MODEL": f"'{gpu.model}'"}


@rfm.simple_test
class nvidia_node(GpuCheck):  # noqa: N801
    valid_systems = ["+nvgpu"]


@rfm.simple_test
class amd_node(GpuCheck):  # noqa: N801
    valid_systems = ["+gpu +amdgpu"]


@rfm.simple_test
class contained(rfm.RunOnlyRegressionTest):  # noqa: N801
    """Runs in the partition's own container runtime."""

    valid_systems = ["+gpu"]
    valid_prog_environs = ["*"]

    @run_before("run")
    def set_container(self):
        self.container_platform.image = "image.sif"
        self.container_platform.command = "true"

    @sanity_function
    def ran(self):
        return sn.assert_true(True)
