# SPDX-License-Identifier: MIT
"""ReFrame's view of the lab: Slurm, srun and Apptainer."""

site_configuration = {
    "systems": [
        {
            "name": "lab",
            "hostnames": [".*"],
            "modules_system": "nomod",
            "partitions": [
                {
                    "name": "nodes",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "environs": ["image"],
                    "max_jobs": 4,
                    "container_platforms": [{"type": "Apptainer"}],
                }
            ],
        }
    ],
    "environments": [{"name": "image"}],
}
