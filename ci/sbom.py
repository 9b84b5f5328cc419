# SPDX-License-Identifier: MIT
"""Write the bill of materials of locks or an image: CycloneDX 1.6 and SPDX 2.3.

$ python -m ci.sbom build/sbom/host site/_stacks/host/spack.lock requirements.lock
$ python -m ci.sbom build/sbom/image build/images/busbar-host-wheels.sif
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from uuid import NAMESPACE_URL, UUID, uuid5

from cyclonedx import model as cdx
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx import model as spdx
from spdx_tools.spdx.writer.json.json_writer import write_document_to_file

from busbar.errors import BusbarError
from busbar.preflight.loader import View
from busbar.preflight.plan import Contents
from busbar.spack import FILE, load

ROOT = Path(__file__).resolve().parents[1]
_WHEEL = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[\w.+-]+)(?P<hashes>(?:.*\\\n)*.*)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DPKG = re.compile(
    r"^Package: (?P<name>\S+)\nStatus: install ok installed\n(?:.+\n)*?"
    r"Architecture: (?P<arch>\S+)\n(?:.+\n)*?Version: (?P<version>\S+)$",
    re.MULTILINE,
)
_STATUS, _PACKAGES = map(PurePosixPath, ("/var/lib/dpkg/status", "/opt/busbar/packages.txt"))
_DOCUMENT = "SPDXRef-DOCUMENT"
_validated = cache(spdx_licensing.validate)
Parts = dict[Component, tuple[Component, ...]]
"""Packages, and what each depends on."""


def parts(source: Path) -> Parts:
    """Return the packages of a lock of Spack, a lock of wheels, a SIF or a sandbox."""
    if source.name == FILE:
        return _of_spack(source)
    if source.suffix in {".lock", ".txt"}:
        wheels = _WHEEL.finditer(source.read_text())
        return {_component("pypi", e["name"], e["version"], e["hashes"]): () for e in wheels}
    return dict.fromkeys(_of_image(source), ())


@cache
def recorded() -> dict[tuple[str, str, str | None], str]:
    """Return the licences of wheels (``pip``) and of Spack's packages, by kind, name, version."""
    lines = (ROOT / "locks/licenses.list").read_text().splitlines()
    rows = (line.split(maxsplit=3) for line in lines)
    return {(kind, canonicalize_name(name), version): rest for kind, name, version, rest in rows}


def _component(kind: str, name: str, version: str, hashes: str = "", **rest: str) -> Component:
    """Return a package with its licence as stated, and the digests of its files."""
    name = canonicalize_name(name)
    url = PackageURL(kind, {"pypi": None, "deb": "debian"}.get(kind, "spack"), name, version, rest)
    digests = [
        cdx.HashType(alg=cdx.HashAlgorithm.SHA_256, content=x) for x in _HASH.findall(hashes)
    ]
    key = url.to_string()
    each = Component(name=name, version=version, bom_ref=key, purl=url, hashes=digests)
    if (stated := licence(each)[0]) != "unknown":
        each.licenses = [LicenseFactory().make_from_string(stated)]
    return each


def _of_spack(path: Path) -> Parts:
    nodes = load(path).nodes
    found = {
        key: _component("generic", node.name, node.version, hash=key, external=node.prefix or "")
        for key, node in nodes.items()
    }
    return {each: tuple(found[e.hash] for e in nodes[key].edges) for key, each in found.items()}


def _of_image(path: Path) -> Iterator[Component]:
    contents = Contents.of_file(path)
    if not contents.fingerprint:
        raise BusbarError("was not built by Busbar", where=str(path), hint="see make image")
    view = View.of(contents.files)
    kind = "pypi" if contents.fingerprint.delivery == "wheels" else "generic"
    for line in view.text(_PACKAGES).splitlines():
        yield _component(kind, *line.split(maxsplit=1))
    for each in _DPKG.finditer(view.text(_STATUS)):
        yield _component("deb", each["name"], each["version"], arch=each["arch"])


def licence(each: Component) -> tuple[str, bool]:
    """Return the licence as stated, and whether it is an expression of SPDX."""
    kind = "pip" if each.purl and each.purl.type == "pypi" else "spack"
    stated = recorded().get((kind, each.name, each.version), "unknown").removesuffix(" to Spack")
    return stated, not _validated(stated).errors


def write_cyclonedx(path: Path, found: Parts, serial: UUID, when: datetime) -> None:
    """Write CycloneDX 1.6; raise ``BusbarError`` if its library does not take it for valid."""
    bom = Bom(components=found, serial_number=serial)
    bom.metadata.timestamp = when
    bom.metadata.component = root = Component(name=path.name, type=ComponentType.PLATFORM)
    bom.register_dependency(root, found)
    for each, needs in found.items():
        bom.register_dependency(each, needs)
    root.bom_ref.value = path.name
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise BusbarError(f"is not valid: {error}", where=str(path), hint="correct ci/sbom.py")
    path.with_name(f"{path.name}.cdx.json").write_text(f"{text}\n")


def _package(each: Component, name: str) -> spdx.Package:
    stated, valid = licence(each)
    category = spdx.ExternalPackageRefCategory.PACKAGE_MANAGER
    return spdx.Package(
        name,
        each.name,
        spdx.SpdxNoAssertion(),
        each.version,
        files_analyzed=False,
        license_declared=spdx_licensing.parse(stated) if valid else spdx.SpdxNoAssertion(),
        license_comment=f"stated as: {stated}",
        external_references=[spdx.ExternalPackageRef(category, "purl", str(each.bom_ref))],
    )


def write_spdx(path: Path, found: Parts, serial: UUID, when: datetime) -> None:
    """Write SPDX 2.3; raise ``ValueError`` if its library does not take it for valid."""
    names = {each: f"SPDXRef-{uuid5(NAMESPACE_URL, str(each.bom_ref))}" for each in found}
    maker = [spdx.Actor(spdx.ActorType.TOOL, "busbar")]
    space = f"urn:uuid:{serial}"
    about = spdx.CreationInfo("SPDX-2.3", _DOCUMENT, path.name, space, maker, when)
    kinds = spdx.RelationshipType
    edges = [spdx.Relationship(_DOCUMENT, kinds.DESCRIBES, name) for name in names.values()]
    edges += [
        spdx.Relationship(names[each], kinds.DEPENDS_ON, names[other])
        for each, needs in found.items()
        for other in needs
    ]
    packages = [_package(each, name) for each, name in names.items()]
    document = spdx.Document(about, packages, relationships=edges)
    write_document_to_file(document, str(path.with_name(f"{path.name}.spdx.json")))


def main(arguments: list[str]) -> int:
    """Write NAME.cdx.json and NAME.spdx.json of locks and images; print unknown licences."""
    output, *sources = map(Path, arguments)
    try:
        known = {
            str(each.bom_ref): (each, needs) for s in sources for each, needs in parts(s).items()
        }
        found = dict(known[key] for key in sorted(known))
        # The same packages give the same bytes.
        serial = uuid5(NAMESPACE_URL, " ".join(sorted(known)))
        when = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_cyclonedx(output, found, serial, when)
        write_spdx(output, found, serial, when)
    except (BusbarError, OSError, ValueError) as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 2
    unknown = [f"{each.name} {each.version}" for each in found if not licence(each)[1]]
    print(f"{output}.cdx.json, {output}.spdx.json: {len(found)} packages")
    print(f"no SPDX licence is stated for {len(unknown)}: {', '.join(unknown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
