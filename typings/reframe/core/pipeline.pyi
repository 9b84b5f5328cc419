# SPDX-License-Identifier: MIT
from typing import Any

from reframe.core.deferrable import Deferred
from reframe.core.environments import ProgEnvironment
from reframe.core.schedulers import Job
from reframe.core.systems import SystemPartition

class RegressionTestPlugin:
    """Only ever part of a test, so its hooks may use what a test has."""

    build_locally: bool
    # Is set by name, and then read as an object.
    build_system: Any
    current_environ: ProgEnvironment
    current_partition: SystemPartition
    descr: str
    env_vars: dict[str, Any]
    executable: str
    executable_opts: list[str]
    job: Job
    keep_files: list[str]
    name: str
    num_tasks: int
    num_tasks_per_node: int
    perf_variables: dict[str, Deferred]
    postrun_cmds: list[str]
    prerun_cmds: list[str]
    reference: dict[str, tuple[float, float | None, float | None, str]]
    require_reference: bool
    sourcepath: str
    sourcesdir: str
    stagedir: str
    stderr: Deferred
    stdout: Deferred
    tags: set[str]
    time_limit: str
    valid_prog_environs: list[str]
    valid_systems: list[str]

    def __init_subclass__(cls, *, special: bool = False) -> None: ...
    def check_performance(self) -> None: ...
    def is_dry_run(self) -> bool: ...
    def skip_if(self, cond: object, msg: str | None = None) -> None: ...

class RegressionTest(RegressionTestPlugin):
    num_variants: int
    prefix: str
    variant_num: int
    _rfm_custom_prefix: str
    @classmethod
    def get_variant_info(cls, variant_num: int, *, recurse: bool = False) -> dict[str, Any]: ...
    @property
    def display_name(self) -> str: ...
    @property
    def hashcode(self) -> str: ...
    def is_fixture(self) -> bool: ...

class RunOnlyRegressionTest(RegressionTest): ...
class CompileOnlyRegressionTest(RegressionTest): ...
