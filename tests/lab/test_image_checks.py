# SPDX-License-Identifier: MIT
"""The checks run in an image: by every launcher and runtime, and what must not pass there."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from busbar.delivery.environment import Environment
from tests.cases import some
from tests.said import ran

from .checking import check, here, host_mpi, local_site, passed, slurm_site
from .common import ROOT, Run

pytestmark = pytest.mark.lab


def job_script(site: Path, name: str) -> str:
    """The line of the job that starts the program."""
    found = list((site.parent / "out" / "reframe").rglob(f"{name}*/rfm_job.sh"))
    lines = found[0].read_text().splitlines()
    return next(line for line in lines if "--ranks=" in line and not line.startswith("printf"))


def causes(document: dict[str, Any]) -> list[str]:
    return [cause["id"] for cause in document["causes"]]


@pytest.mark.parametrize(("mpi", "nodes"), some([("injected", 2), ("own", 4)], 2))
def test_through_slurm(on_lab: Run, sif: Path, tmp_path: Path, mpi: str, nodes: int) -> None:
    """ReFrame, Slurm, Apptainer, MPI: that of the image, or that of the host in its place."""
    options = ["-n", "gpu_aware_nodes", "-S", f"gpu_aware_nodes.nodes={nodes}"]
    more = host_mpi() if mpi == "injected" else []
    site = slurm_site(tmp_path)
    document = check(site, sif, *options, *more, run=on_lab)
    assert passed(document) == {"gpu_aware_nodes"}
    hosts = {row["where"] for row in document["results"]}
    assert {len(each.split(",")) for each in hosts} == {nodes}
    assert ("injected" if more else "image") == _origin_of_mpi(site)
    assert document["delivery"] == "image"
    assert document["versions"]["ucx"] == "1.14.1"


def _origin_of_mpi(site: Path) -> str:
    written = runpy.run_path(str(site.parent / "out" / "configuration.py"))
    image = Environment.from_configuration(written["site_configuration"]["environments"][0]).image
    assert image is not None
    return next(str(e.origin) for e in image.preflight.libraries if e.name == "libmpi.so.40")


def test_the_image_says_which_checks_it_can_run(sif: Path, tmp_path: Path) -> None:
    """What needs a program that is not inside is skipped with a reason; nothing is compiled."""
    site = local_site(tmp_path)
    document = check(site, sif, "-n", "gpu_aware", "-n", "fabric_ucx", "-n", "memory")
    assert {name.split(" ")[0] for name in passed(document)} == {"gpu_aware", "fabric_ucx"}
    skipped = {row["check"].split(" ")[0]: row["reason"] for row in document["skipped"]}
    assert "environment image-ucx-1_14 lacks +memory" in skipped["memory"]
    recorder = ROOT / "reframe_checks" / "src" / "busy.sh"
    started = f" mpirun -n 2 {recorder} /opt/busbar/bin/gpu_aware "
    assert started in job_script(site, "gpu_aware")
    assert not list((site.parent / "out").rglob("*/BuildGpuAware*/gpu_aware"))


@pytest.mark.long
def test_the_hosts_mpirun_starts_an_image_with_the_hosts_mpi(sif: Path, tmp_path: Path) -> None:
    site = local_site(tmp_path)
    assert passed(check(site, sif, "-n", "gpu_aware$", *host_mpi())) == {"gpu_aware"}
    assert "bin/mpirun -n 2 apptainer exec" in job_script(site, "gpu_aware")


@pytest.mark.parametrize("runtime", some(["docker", "podman"], 2))
def test_by_another_runtime(oci: dict[str, Path], tmp_path: Path, runtime: str) -> None:
    """Cross memory attach is among what both allow: ``link_matrix`` would see two copies."""
    site = local_site(tmp_path, runtime)
    command = [runtime, "load", "--input", str(oci["buildah"])]
    loaded = ran(*command, check=True).stdout
    image = loaded.split("image: ")[-1].split("ID: ")[-1].strip()
    document = check(site, image, "-n", "gpu_aware$")
    assert passed(document) == {"gpu_aware"}
    assert job_script(site, "gpu_aware").startswith(f"{runtime} run --rm ")


def test_a_broken_image_costs_no_job(sif: Path, mpich: dict[str, Path], tmp_path: Path) -> None:
    """The host offers MPICH to a program of Open MPI."""
    site = local_site(tmp_path)
    inject = mpich["4.3.2"] / "lib"
    document = check(site, sif, "-n", "gpu_aware$", "-n", "link_matrix", "--inject", inject)
    assert document["verdict"] == "failed"
    assert {row["check"] for row in document["results"]} == {"gpu_aware", "link_matrix"}
    assert any("libmpi.so.12 (MPICH)" in row["message"] for row in document["results"])
    assert set(causes(document)) == {"image-broken"}
    assert not list((site.parent / "out").rglob("*/gpu_aware/rfm_job.out"))


def test_an_image_without_the_provider_is_degraded(sif: Path, tmp_path: Path) -> None:
    """Correct data over the slow way is no pass: the UCX of the image has no verbs.

    The machine has no InfiniBand: a null device in a /dev of our own stands in for it.
    """
    site = local_site(tmp_path, fabric="fabric: {provider: verbs, rails: 1}\n")
    private = tmp_path / "dev"
    private.mkdir()
    shell = (
        f"mount -t tmpfs tmpfs {private} && mkdir {private}/up {private}/work"
        f" && mount -t overlay -o lowerdir=/dev,upperdir={private}/up,workdir={private}/work dev"
        " /dev && mkdir -m 1777 -p /dev/infiniband /dev/shm"
        " && mknod /dev/infiniband/uverbs0 c 1 3 && mount -t tmpfs tmpfs /dev/shm"
        ' && exec "$0" "$@"'
    )

    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return here("unshare", "--mount", "sh", "-c", shell, *words, **more)

    document = check(site, sif, "-n", "gpu_aware$", run=run)
    assert document["verdict"] == "degraded"
    data = {row["verdict"] for row in document["results"] if row["metric"] == "correctness"}
    assert data == {"pass"}
    (cause,) = document["causes"]
    assert cause["id"] == "image-slow-path"
    assert "has no libuct_ib: it uses TCP between nodes" in cause["summary"]


def test_an_image_without_cross_memory_attach_is_degraded(
    without_cma: Path, tmp_path: Path
) -> None:
    document = check(local_site(tmp_path), without_cma, "-n", "gpu_aware$")
    assert document["verdict"] == "degraded"
    assert causes(document) == ["image-slow-path"]
    assert "no libuct_cma" in document["causes"][0]["summary"]


@pytest.mark.long
def test_an_image_without_its_own_ucx_is_not_what_was_asked_for(
    without_cma: Path, tmp_path: Path
) -> None:
    """Open MPI has another UCX within; its numbers are good, and of something else."""
    image = tmp_path / "image"
    subprocess.run(["cp", "-a", str(without_cma), str(image)], check=True)
    subprocess.run(["rm", "-r", str(image / "opt/busbar/libucx")], check=True)
    document = check(local_site(tmp_path), image, "-n", "gpu_aware$")
    assert document["verdict"] == "failed"
    assert any("requested lane ucx-1.14" in row["message"] for row in document["results"])


@pytest.mark.parametrize("variable", some(["APPTAINER_CONTAINALL", "APPTAINER_CLEANENV"], 2))
def test_an_image_that_starts_alone_fails(
    on_lab: Run, sif: Path, tmp_path: Path, variable: str
) -> None:
    """The variables of PMIx do not come in: N jobs of one rank, which Slurm calls a success."""
    options = ["-n", "gpu_aware$"]
    document = check(slurm_site(tmp_path), sif, *options, run=on_lab, **{variable: "1"})
    assert document["verdict"] == "failed"
    assert any("2 separate programs started" in row["message"] for row in document["results"])
    assert "singletons" in causes(document)
