# SPDX-License-Identifier: MIT
"""What ReFrame's configuration carries to the checks, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reframe.core.environments import ProgEnvironment

from busbar import site as sites
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment, Image, PartitionFacts
from busbar.delivery.environments import spack_view
from busbar.delivery.programs import lock_of, locked_versions, packages
from busbar.delivery.reframe import configuration, load, write
from busbar.errors import BusbarError
from busbar.preflight.model import (
    Fingerprint,
    LaunchLine,
    Origin,
    PreflightLine,
    PreflightReport,
    Status,
)
from busbar.site.load import find
from busbar.site.stacks import find_environment
from tests.cases import cases

IMAGE = Image(
    reference="some.sif",
    runtime="apptainer",
    fingerprint=Fingerprint(stack="host", features=["osu"]),
    programs={"gpu_aware": "/opt/busbar/bin/gpu_aware"},
    settings={"UCX_TLS": "tcp"},
    preflight=PreflightReport(
        image="some.sif",
        site="local",
        lines=[PreflightLine("glibc", Status.SLOW, "a reason", "a remedy")],
        libraries=[Origin("libmpi.so.40", "/lib/libmpi.so.40", "image", "abc")],
        modules=[],
        launch=LaunchLine(("srun", "-n", "2"), ("apptainer", "exec"), (), "pmix"),
        command="srun",
    ),
)
ENVIRONMENT = Environment(
    name="image-ucx-1_14",
    features=("host", "osu"),
    variables={"PATH": '"/a b:$PATH"'},
    compiler="mpic++",
    delivery="image",
    stack="host",
    lane="ucx-1.14",
    mpi="openmpi",
    transports=("sysv",),
    across=("sysv", "tcp"),
    provider="",
    srun=("--mpi=pmix",),
    programs={"osu_bw": "/usr/bin/osu_bw"},
    ldflags=("-ldl",),
    lacking={"memory": "no compiler"},
    image=IMAGE,
    versions={"nccl": "2.28.7"},
)


def test_checks_get_the_environment_that_was_found():
    entry = json.loads(json.dumps(ENVIRONMENT.to_reframe()))
    assert Environment.from_reframe(ProgEnvironment(**entry)) == ENVIRONMENT
    assert Environment.from_configuration(entry) == ENVIRONMENT


def test_a_partition_knows_its_gpus():
    config = configuration(find("h200x4").parent, Choice(declared=True))
    (partition,) = config["systems"][0]["partitions"]

    class Partition:
        extras = partition["extras"]

    facts = PartitionFacts.from_reframe(Partition())
    assert sites.load(facts.site).name == "h200x4"
    assert (facts.gpus, facts.nodes, facts.ranks_per_node) == (4, 1, 4)


def test_the_configuration_of_a_site_is_its_own(tmp_path):
    """What an administrator adds to reframe.py is in the configuration of a run."""
    site = tmp_path / "local"
    site.mkdir()
    (site / "site.yaml").write_text(find("local").read_text())
    (site / "reframe.py").write_text(
        "from pathlib import Path\n"
        "from busbar.delivery.reframe import configuration\n"
        "site_configuration = configuration(Path(__file__).parent)\n"
        "site_configuration['general'][0]['trap_job_errors'] = True\n"
    )
    config = load(site / "site.yaml", Choice(declared=True))
    assert config["general"][0]["trap_job_errors"] is True
    written: dict[str, object] = {}
    exec(write(config, tmp_path).read_text(), written)  # noqa: S102 - as ReFrame does
    assert written["site_configuration"] == config


@cases(
    ("text", "says"), [("1 / 0", "ZeroDivisionError"), ("a = 1", "KeyError"), ("(", "SyntaxError")]
)
def test_a_configuration_that_fails_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "reframe.py").write_text(text)
    with pytest.raises(BusbarError, match=f"reframe.py: {says}"):
        load(tmp_path / "site.yaml", Choice())


def test_plain_reframe_is_told_by_variables(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Choice.from_variables() == Choice()
    values = {"LANE": "mpich", "PREFIX": "p", "DELIVERY": "spack", "DECLARED": "1"}
    for name, value in values.items():
        monkeypatch.setenv(f"BUSBAR_{name}", value)
    monkeypatch.setenv("BUSBAR_IMAGE", "some.sif")
    monkeypatch.setenv("BUSBAR_INJECT", "/a:/b")
    stack = {"lane": "mpich", "prefix": tmp_path / "p", "delivery": "spack", "declared": True}
    assert Choice.from_variables() == Choice(**stack, image="some.sif", inject=("/a", "/b"))


def test_versions_of_the_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = sites.load("h200x4")
    environment, delivery, lane = find_environment(site)
    monkeypatch.setenv("SPACK_ENV", str(environment))
    lock = lock_of(spack_view(site, delivery, lane))
    assert locked_versions(lock) == {"nccl": "2.28.7"}
    assert packages(lock, wheels=False)["lock.nccl"].startswith("2.28.7")
    monkeypatch.setenv("SPACK_ENV", str(tmp_path))
    assert locked_versions(lock_of(None)) == {}
