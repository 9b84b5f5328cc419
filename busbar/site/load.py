# SPDX-License-Identifier: MIT
"""Find and load sites, families and link classes."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from busbar import data
from busbar.errors import BusbarError, file_error, require_known, suggestion
from busbar.near import nearest, question
from busbar.parse.tables import refused
from busbar.site.family import Family, LinkClass, LinkClasses
from busbar.site.model import Site
from busbar.site.yamlfile import Document, parse, written
from busbar.terminal import stderr

SITE_FILE = "site.yaml"
_CPUS = Path("/sys/devices/system/cpu")
FAMILIES = "_families"
LINKS = "links"
"""The file of link classes, in the directory of the families."""


def search_path() -> list[Path]:
    """Return the directories of sites: ``BUSBAR_SITE_PATH`` (colon list), then the shipped one.

    A directory that does not exist yet is skipped with a warning. Raises ``BusbarError`` for an
    entry that is not a directory of sites, because its sites would be missed.
    """
    own = [Path(part) for part in os.environ.get("BUSBAR_SITE_PATH", "").split(":") if part]
    for directory in own:
        if not directory.exists():
            _warn_of_missing(directory)
        elif not directory.is_dir():
            raise refused(__file__, "no-directory", "BUSBAR_SITE_PATH", directory=str(directory))
        if (directory / SITE_FILE).is_file():
            words = {"directory": str(directory), "parent": directory.absolute().parent}
            raise refused(__file__, "is-a-site", "BUSBAR_SITE_PATH", **words)
    return [*filter(Path.is_dir, own), data.SITES]


@lru_cache
def _warn_of_missing(directory: Path) -> None:
    where = f"busbar: BUSBAR_SITE_PATH: {str(directory)!r} does not exist"
    stderr().line(f"{where}; busbar site detect --output {directory}/NAME creates it")


def ships(site: Site) -> bool:
    """Return whether the site ships with Busbar."""
    return site.directory is not None and site.directory.parent == data.SITES


def names() -> list[str]:
    """Return every site that can be loaded by name, sorted."""
    files = [file for root in search_path() for file in root.glob(f"*/{SITE_FILE}")]
    return sorted({file.parent.name for file in files if not file.parent.name.startswith("_")})


def find(name_or_path: str | Path) -> Path:
    """Return the `site.yaml` of a site, by name, directory or file.

    Raises ``BusbarError`` for a name that no site has.
    """
    name = str(name_or_path)
    places = [root / name for root in search_path() if not name.startswith("_")]
    if "/" in name or name.endswith(".yaml"):
        places.insert(0, Path(name))
    else:  # a directory of the same name must not hide a known site
        places.append(Path(name))
    for place in places:
        if _is_file(place):
            return place
        if _is_file(place / SITE_FILE):
            return place / SITE_FILE
    here: list[Path] = []
    with suppress(OSError):  # a name that is too long for a path
        here = [*Path(name).glob(f"*/{SITE_FILE}"), *Path(name).parent.glob(SITE_FILE)]
    beside = {
        key: str(file.parent)
        for file in here
        for key in (str(file.parent), file.parent.resolve().name, str(file))
    }
    meant = [beside.get(each, each) for each in nearest(name, [*beside, *names()])]
    words = {"name": name, "question": f"{question(meant)} ".lstrip()}
    raise refused(__file__, "no-site", ":".join(map(str, search_path())), **words)


def _is_file(path: Path) -> bool:
    with file_error("cannot be read", path, "check its permissions"):
        try:
            return path.is_file()
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
    return False


def load(name_or_path: str | Path) -> Site:
    """Load a site, filled in with the facts of its family; for `local`, of this machine.

    Raises ``BusbarError`` with file, line, key, rule and next step.
    """
    document = read(find(name_or_path))
    data, documents = _composed(document, ())
    if data.get("name") == "local":
        data = merged(local_facts(), data)
    site = parse(Site, data, documents)
    for index, partition in enumerate(site.partitions):
        what = f"partition {partition.name!r} has unknown node type"
        place = written(documents, ("partitions", index, "node_type"))
        require_known(what, partition.node_type, site.node_types, place)
    _refuse_links_to_nowhere(site, documents)
    directory = document.path.resolve().parent
    if directory.name != site.name and document.path.name == SITE_FILE:
        words = {"kind": "site", "name": site.name, "place": "directory", "other": directory.name}
        raise refused(__file__, "named", document.where(["name"]), **words)
    site._directory = directory
    return site


def _refuse_links_to_nowhere(site: Site, documents: Sequence[Document]) -> None:
    for name, node in site.node_types.items():
        gpus = node.gpus
        for index, link in enumerate(gpus.links.pairs if gpus and gpus.links else ()):
            if gpus and max(link.between) >= gpus.packages:
                key = ("node_types", name, "gpus", "links", "pairs", index, "between")
                words = {"gpu": max(link.between), "last": gpus.packages - 1}
                raise refused(__file__, "no-gpu", written(documents, key), **words)


def family(site: Site) -> Family:
    """Return the family of a site, merged with the families that it includes.

    The family's own variables come last, as the last of one name wins.
    """
    return _joined(tuple(_family_documents(site.family, site.directory)))


@lru_cache(maxsize=64)
def _joined(documents: tuple[Document, ...]) -> Family:
    """Merge a family with those that it includes, which follow it."""
    families = [_own_family(document) for document in documents]
    return families[0].model_copy(
        update={
            "default_engine": next((f.default_engine for f in families if f.default_engine), None),
            "engine_by": next((f.engine_by for f in families if f.engine_by), {}),
            "variables": tuple(v for f in reversed(families) for v in f.variables),
            "operator_steps": tuple(step for f in families for step in f.operator_steps),
            "launch_rules": tuple(rule for f in families for rule in f.launch_rules),
        }
    )


def family_named(name: str) -> Family:
    """Return a family without those that it includes."""
    return _own_family(read(_family_file(name, None)))


def link_classes(site: Site) -> dict[str, LinkClass]:
    """Return the link classes that the site can use, by name; the nearest of one name wins.

    One without a rate adds its bands to the next one of the name.
    """
    return link_classes_of(site.directory)


def link_classes_of(directory: Path | None = None) -> dict[str, LinkClass]:
    """Return the link classes for the directory of a site: its own, and all others."""
    return _links(_link_files(directory)).link_classes


def shadowed(directory: Path | None) -> list[tuple[str, str]]:
    """Return file and key, and name, of each shipped class that another file states otherwise."""
    *others, shipped = reversed(_link_files(directory))
    return [
        (document.where(["link_classes", name]), name)
        for document in others
        for name, facts in document.data.get("link_classes", {}).items()
        if "raw_gb_per_s" in facts and shipped.data["link_classes"].get(name, facts) != facts
    ]


def _link_files(directory: Path | None) -> tuple[Document, ...]:
    """Return the files of link classes, the nearest last."""
    files = _files_of(LINKS, tuple(_family_roots(directory)))
    return tuple(read(file) for file in reversed(files))


@lru_cache(maxsize=256)
def _files_of(name: str, roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the files of a family, nearest first; every reading of a run asks for them."""
    files = [root / FAMILIES / f"{name}.yaml" for root in roots]
    return tuple(file for file in files if _is_file(file))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``over`` into ``base``: mappings are merged, other values are replaced."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        mappings = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(cast(dict[str, Any], old), value) if mappings else value
    return result


def _composed(
    document: Document, visited: tuple[Path, ...]
) -> tuple[dict[str, Any], list[Document]]:
    """Merge the keys of a site over the keys of its ``nodes_like`` and its family."""
    data: dict[str, Any] = document.data
    documents = [document]
    directory = document.path.resolve().parent
    if isinstance(data.get("nodes_like"), str):
        model = read(_like(document, directory.parent, visited))
        nodes, more = _composed(model, (*visited, document.path))
        data = merged({"node_types": nodes.get("node_types") or {}}, data)
        documents += more
    if isinstance(data.get("family"), str):
        for family_file in _family_documents(data["family"], directory, document):
            shared, own = family_file.inside("site"), data.get("node_types")
            data = merged(shared.data, data)
            if isinstance(own, dict):  # what a family states of other kinds of nodes is not here
                data["node_types"] = {name: data["node_types"][name] for name in own}
            documents.append(shared)
    return data, documents


def _like(document: Document, beside: Path, visited: tuple[Path, ...]) -> Path:
    name = document.data["nodes_like"]
    neighbour = beside / name / SITE_FILE
    path = neighbour if _is_file(neighbour) else find(name)
    if path in (*visited, document.path):
        raise refused(__file__, "circular", document.where(["nodes_like"]), name=name)
    return path


def read(path: Path) -> Document:
    """Read a file, cached by its time and size; a matrix of pairs needs it thousands of times.

    Raises ``BusbarError`` as `Document`.
    """
    stat = path.stat()
    return _document_of(path, (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=64)
def _document_of(path: Path, _version: tuple[int, int]) -> Document:
    return Document(path)


@lru_cache(maxsize=8)
def _links(documents: tuple[Document, ...]) -> LinkClasses:
    """Merge the files of link classes, the nearest last."""
    classes: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for document in documents:
        own = document.data.get("link_classes", {})
        if not isinstance(own, dict):
            return parse(LinkClasses, document.data, [document])
        others = merged(others, {k: v for k, v in document.data.items() if k != "link_classes"})
        classes |= {name: _extended(classes.get(name), facts) for name, facts in own.items()}
    return parse(LinkClasses, others | {"link_classes": classes}, documents[::-1])


def _extended(base: object, own: object) -> object:
    """Return a link class; one without a rate adds its lists to ``base``."""
    if not isinstance(base, dict) or not isinstance(own, dict) or "raw_gb_per_s" in own:
        return own
    lists = {
        key: [*value, *base.get(key, ())] for key, value in own.items() if isinstance(value, list)
    }
    return base | own | lists


@lru_cache(maxsize=64)
def _own_family(document: Document) -> Family:
    own = parse(Family, document.data, [document])
    if own.family != document.path.stem:
        words = {"kind": "family", "name": own.family, "place": "file"}
        raise refused(
            __file__, "named", document.where(["family"]), other=document.path.stem, **words
        )
    return own


def _family_documents(
    name: str, directory: Path | None, user: Document | None = None
) -> list[Document]:
    """Return the files of a family and of the families that it includes, nearest first."""
    documents = [read(_family_file(name, directory, user))]
    for document in documents:  # the loop appends to the list
        for included in _own_family(document).includes:
            path = _family_file(included, directory, document)
            if path not in [other.path for other in documents]:
                documents.append(read(path))
    return documents


def _family_roots(directory: Path | None) -> list[Path]:
    """Return the directories of families, nearest first.

    They are in the directory of the site, beside it, and in the search path. A shipped site
    uses its own and shipped families only.
    """
    if directory is None:
        return search_path()
    own = [directory, directory.parent]
    return own if directory.parent == data.SITES else [*own, *search_path()]


def _family_file(name: str, directory: Path | None, user: Document | None = None) -> Path:
    if files := _files_of(name, tuple(_family_roots(directory))):
        return files[0]
    where = user.where(["family"]) if user else ""
    hint = suggestion(name, family_names(directory)).replace("known:", "known families:")
    raise BusbarError(f"no family {name!r}", where=where, hint=hint)


def family_names(directory: Path | None = None) -> list[str]:
    """Return the families for the directory of a site: its own, and all others."""
    files = [f for root in _family_roots(directory) for f in (root / FAMILIES).glob("*.yaml")]
    return sorted({file.stem for file in files} - {LINKS})


def local_facts() -> dict[str, Any]:
    """Return facts about this machine: its host name and the usable CPUs."""
    cpus = os.sched_getaffinity(0)
    node = {"cores": len(cpus)}
    cores = {topology(cpu, "thread_siblings_list") for cpu in cpus}
    sockets = {topology(cpu, "physical_package_id") for cpu in cpus}
    if "" not in cores | sockets:
        node["sockets"] = len(sockets)
        if len(cpus) % len(cores) == 0:  # else some cores have fewer usable CPUs than others
            node["threads_per_core"] = len(cpus) // len(cores)
    return {"hosts": re.escape(socket.gethostname()), "node_types": {"host": node}}


def topology(cpu: int, name: str) -> str:
    """Return a fact of a CPU as the kernel writes it; empty if it does not."""
    path = _CPUS / f"cpu{cpu}" / "topology" / name
    return path.read_text().strip() if path.is_file() else ""
