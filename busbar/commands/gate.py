# SPDX-License-Identifier: MIT
"""``busbar gate``: check in seconds whether this node is fit for jobs; compile the gate."""

from __future__ import annotations

import argparse
import io
import json
import py_compile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations
from modulefinder import ModuleFinder
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from busbar.boundary import output_directory, replace_file
from busbar.commands.declare import command
from busbar.errors import BusbarError, file_error
from busbar.gate import site as compiled
from busbar.gate.command import OPTIONS, run_gate
from busbar.gate.copies import NBYTES
from busbar.gate.slurm import SlurmContext, from_environment
from busbar.parse.tables import beside
from busbar.site.gate import Gate
from busbar.site.load import find, link_classes, load, names
from busbar.site.model import Gpus, NodeType, Site
from busbar.terminal import stderr, stdout

_BITS = 8


def add_parser(subparsers: Any) -> None:
    """Add ``busbar gate``."""
    command(subparsers, _run, name="gate", documented=run_gate, GATE=OPTIONS)


def _run(args: argparse.Namespace) -> int:
    if args.action:
        return _compile(args)
    slurm = from_environment()
    return run_gate(args, slurm, partial(_load, args, slurm), stdout(), _xid)


def _compile(args: argparse.Namespace) -> int:
    from busbar.commands.gate import gate_program  # noqa: PLC0415 - no gate needs it

    if not args.site:
        raise BusbarError("compile requires a site", hint="pass --site NAME")
    xids = {str(code): xid for code, xid in _catalog().items()}
    site = replace(_trusted(args.site), xids=xids)
    for each in load(args.site).unlisted:
        stderr().line(
            f"busbar gate: partition {each.name} has no nodelist: on its nodes, pass --partition"
            f" {each.name}, otherwise the gate exits with status 2 and checks little"
        )
    path = output_directory(args.output, "--output") / site.name
    text = json.dumps(site.document, separators=(",", ":"))
    program = path.with_name(f"{site.name}.pyz")
    with file_error("cannot be written", program, "choose another --output"):
        replace_file(path.with_name(f"{site.name}.json"), f"{text}\n", public=True)
        replace_file(program, gate_program(), public=True)
    stdout().line(f"wrote {program} and {site.name}.json; next, run: python3 -I {program}")
    return 0


def _catalog() -> Mapping[int, compiled.Xid]:
    from busbar.explain.xid import catalog  # noqa: PLC0415 - few nodes log an error

    return catalog()


def _xid(code: int) -> compiled.Xid:
    return _catalog().get(code, compiled.UNKNOWN_XID)


def _load(args: argparse.Namespace, slurm: SlurmContext) -> compiled.GateSite | None:
    name = args.site
    if name is None and slurm.cluster in names():
        name = slurm.cluster
    if name is None:
        return None
    if name.endswith(".json"):
        return compiled.read(Path(name))
    return _trusted(name, copies=not args.passive)


def _trusted(name: str, *, copies: bool = True) -> compiled.GateSite:
    return compiled.refuse_foreign_commands(compile_site(load(name), copies=copies), find(name))


def compile_site(site: Site, *, copies: bool = True) -> compiled.GateSite:
    """Return the facts of a site that the gate needs; ``copies``: also the bands of copies."""
    kinds = {partition.node_type: partition.name for partition in site.partitions}
    return compiled.GateSite(
        name=site.name,
        rules=_rules(site.gate or Gate()),
        partitions={partition.name: partition.node_type for partition in site.partitions},
        nodes={kind: _node(site, partition, copies) for kind, partition in kinds.items()},
        hosts=_hosts(site),
    )


def _hosts(site: Site) -> Mapping[str, str]:
    if not any(partition.nodelist for partition in site.partitions):
        return {}
    from busbar.slurm.nodes import partition_by_node  # noqa: PLC0415 - few gates need it

    return partition_by_node(site)


def _rules(gate: Gate) -> compiled.Rules:
    return compiled.Rules(
        checks={name: compiled.Rule(**dict(rule)) for name, rule in gate.checks.items()},
        mounts=tuple(compiled.MountRule(**dict(mount)) for mount in gate.mounts),
        commands=tuple(compiled.CommandRule(**dict(command)) for command in gate.commands),
        driver=gate.driver,
        xid_hours=gate.xid_hours,
    )


def _node(site: Site, partition: str, copies: bool) -> compiled.NodeKind:
    node, classes = site.node_type(partition), link_classes(site)
    rates = {name: link.raw_gb_per_s * _BITS for name, link in classes.items()}
    return compiled.NodeKind(
        cores=node.cores,
        gpus=_gpus(node.gpus) if node.gpus else None,
        ports=tuple(
            compiled.NodePort(n.name, n.count, rates.get(n.link_class)) for n in node.nics
        ),
        copies=dict(_copies(site, node, partition)) if copies else {},
    )


def _gpus(gpus: Gpus) -> compiled.NodeGpus:
    divided = gpus.partitioning.compute_count if gpus.partitioning else 1
    return compiled.NodeGpus(
        vendor=gpus.vendor,
        model=gpus.model,
        count=gpus.count,
        accelerators=gpus.count // divided,
        uniform=gpus.links is None or not gpus.links.pairs,
        nvlinks=links_of(gpus) if gpus.vendor == "nvidia" else (),
    )


def links_of(gpus: Gpus) -> tuple[int, ...]:
    """Return how many links each GPU has to the others; empty if the site does not state it."""
    if gpus.links is None:
        return ()
    if gpus.links.switched:
        return (gpus.links.switched.count,) * gpus.count
    direct = list(gpus.links.direct(gpus.packages))
    counts = [sum(link.count for link in direct if n in link.between) for n in range(gpus.count)]
    return tuple(counts) if any(counts) else ()


def _copies(site: Site, node: NodeType, partition: str) -> Iterator[tuple[str, compiled.CopyBand]]:
    from busbar.expect import NoExpectation, Question  # noqa: PLC0415 - --passive needs none
    from busbar.expect.floors import host_copy  # noqa: PLC0415
    from busbar.expect.point import point_to_point  # noqa: PLC0415

    def band(question: Question) -> compiled.CopyBand:
        expect = point_to_point if question.buffers == "D D" else host_copy
        try:
            known = expect(site, question)
        except NoExpectation as missing:
            return compiled.CopyBand(limit=missing.limit, note=missing.what)
        except BusbarError as error:
            return compiled.CopyBand(note=str(error), wrong=True)
        return compiled.CopyBand(known.low, known.high, known.limit, known.floor)

    gpus = _gpus(node.gpus) if node.gpus else None
    count = gpus.count if gpus and gpus.accelerators == gpus.count else 0
    links = [("D D", *pair) for pair in permutations(range(count), 2)]
    links += [(buffers, gpu, gpu) for gpu in range(count) for buffers in ("H D", "D H")]
    for buffers, src, dst in links:
        question = Question(
            bench="copy", nbytes=NBYTES, src=src, dst=dst, buffers=buffers, partition=partition
        )
        yield f"{buffers} {src} {dst}", band(question)


def gate_program() -> bytes:
    """Return a zip file of the modules of the gate, as Python runs it.

    Each is there as source, and compiled for the Python that runs this, which starts it faster.
    """
    root = Path(__file__).parents[2]
    finder = ModuleFinder(path=[str(root)])
    finder.run_script(str(root / "busbar" / "gate" / "command.py"))
    files = {Path(file) for m in finder.modules.values() if (file := getattr(m, "__file__", ""))}
    data = io.BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as archive, NamedTemporaryFile(suffix=".pyc") as made:
        archive.writestr("__main__.py", beside(__file__)["main"])
        for file in sorted(files):
            name = str(file.relative_to(root))
            py_compile.compile(
                *(str(file), made.name, name),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.write(file, name)
            archive.write(made.name, f"{name}c")
        for file in (root / "busbar" / "redact.toml", *(root / "busbar" / "gate").glob("*.json")):
            archive.write(file, str(file.relative_to(root)))
    return data.getvalue()
