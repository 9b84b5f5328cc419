# SPDX-License-Identifier: MIT
"""The contract: requirements for nodes, with the agreed figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal

from jinja2 import Template
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from busbar import data, site as sites
from busbar.errors import BusbarError, several, suggestion
from busbar.expect import NoExpectation, Question, expect
from busbar.expect.bounds import network
from busbar.expect.expectation import Expectation
from busbar.parse.tables import beside
from busbar.site.links import Count, Name
from busbar.site.load import link_classes, ships
from busbar.site.model import CollectiveBench, Positive, Site
from busbar.site.record import Record
from busbar.site.yamlfile import Document, parse
from busbar.slurm.options import partition_of
from busbar.tools.nccl_tests.request import SIZES
from busbar.units import format_bytes, parse_bytes

Requirement = Literal["gate", "sweep", "check", "pairs", "collective", "soak", "same"]
_TABLES = beside(__file__)
"""Optional and required keys of each requirement, and the facts that nodes report."""
_FIGURE = re.compile(
    r"(?:(?P<percent>\d+(?:\.\d+)?) ?% of )?(?P<of>low|typical|high|limit)"
    r"|(?P<value>\d+(?:\.\d+)?) ?(?P<unit>GB/s|us)",
    re.ASCII,
)
_HOW = "use 95 % of typical, low, 80 % of limit or 400 GB/s; for a latency, 5 us"


@dataclass(frozen=True)
class Figure:
    """A figure that a reading must reach: a value, or a share of the expectation for its links."""

    text: str
    value: float = 0.0
    of: str = ""
    """``low``, ``typical``, ``high`` or ``limit``; empty for an absolute value."""
    unit: str = ""

    @classmethod
    def parse(cls, text: str) -> Figure:
        """Parse a figure; raise ``ValueError`` if it is not one."""
        match = _FIGURE.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{text!r} is not a figure; {_HOW}")
        value = float(match["value"] or match["percent"] or 100)
        if not value or (match["of"] == "limit" and value > 100):
            raise ValueError(f"{text!r} is {'0' if not value else 'above the limit'}; {_HOW}")
        return cls(
            text, value / (100 if match["of"] else 1), match["of"] or "", match["unit"] or ""
        )

    def among(self, known: object) -> float | None:
        """Return the value for a row or an expectation; None if that does not define it.

        For a calibrated site, the typical value of the link model counts: otherwise the site would
        be compared with its own past.
        """
        calibrated = self.of == "typical" and getattr(known, "calibrated", False)
        base = getattr(known, "model" if calibrated else self.of, None) if self.of else 1.0
        return None if base is None else self.value * base


def _figures(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _is_figure(text: str) -> str:
    Figure.parse(text)
    return text


def _bytes(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


Figures = Annotated[
    tuple[Annotated[str, AfterValidator(_is_figure)], ...], BeforeValidator(_figures)
]


class Clause(Record):
    """One requirement."""

    require: Requirement
    """Requirement: every node passes the ``gate``; a ``sweep`` finds nothing slow; a ``check`` of
    Busbar or of the site, all ``pairs`` of GPUs or ranks, or a ``collective`` reaches its figures;
    nothing fails in a ``soak``; all nodes have the ``same`` facts."""
    times: Count = 3
    """For a sweep: the number of sweeps that must find nothing slow."""
    check: str = ""
    """Name of the check, as `busbar check --list` prints it."""
    file: str = ""
    """ReFrame file that contains the check, if it is not part of Busbar."""
    operation: CollectiveBench | None = None
    """The collective; for a check, one of the collectives that it measures."""
    bytes: Annotated[Count, BeforeValidator(_bytes)] | None = None
    """Message size: only its readings count. Default: all sizes."""
    nodes: Count = 1
    """Number of nodes that measure together; 1 means each node alone."""
    at_least: Figures = ()
    """The value that every rate must reach: ``low``, ``95 % of typical``, ``80 % of limit``,
    ``400 GB/s``.

    Default: every rate must be within its band. For a sweep: the rate between two nodes with all
    NICs; default: the bands of the site.
    """
    at_most: Figures = ()
    """The value that no latency may exceed: ``high``, ``5 us``."""
    hours: Positive | None = None
    """How long to repeat the checks of the other clauses."""
    facts: dict[str, str] = Field(default_factory=dict)
    """Names of provenance, such as driver, kernel, lock_hash, image_digest; an empty value only
    requires that all nodes agree."""

    @model_validator(mode="after")
    def _has_its_keys(self) -> Clause:
        """Refuse keys of other requirements, and missing keys."""
        for name in sorted(self.model_fields_set - {"require", *_TABLES["keys"][self.require]}):
            raise ValueError(f"{self.require} does not have the key {name}; remove it")
        if self.require == "sweep" and [f.unit for f in self.figures] not in ([], ["GB/s"]):
            raise ValueError("a sweep needs an absolute rate; use at_least: 48 GB/s")
        for texts, unit, key in (
            (self.at_least, "us", "at_most"),
            (self.at_most, "GB/s", "at_least"),
        ):
            if wrong := [text for text in texts if Figure.parse(text).unit == unit]:
                raise ValueError(f"{wrong[0]} has a different unit; use {key}")
        if any(Figure.parse(text).of in ("low", "limit") for text in self.at_most):
            raise ValueError("no latency is below its low or limit; use at_most: high, or 5 us")
        needed = _TABLES["needed"].get(self.require)
        if needed and not getattr(self, needed):
            raise ValueError(f"{self.require} needs {needed}; add the key")
        return self

    @property
    def figures(self) -> list[Figure]:
        """The figure that rates must reach."""
        return [Figure.parse(text) for text in self.at_least]

    @property
    def text(self) -> str:
        """The clause in words."""
        where = f"on {self.nodes} nodes" if self.nodes > 1 else "on every node"
        size = format_bytes(self.bytes) if self.bytes else ""
        bounds = [f">= {each}" for each in self.at_least] + [f"<= {each}" for each in self.at_most]
        match self.require:
            case "gate":
                words = ["every node passes the gate"]
            case "sweep":
                words = [f"0 accused in {self.times} sweep{'s' * (self.times > 1)}"]
                words += ["of links of", *self.at_least] if self.at_least else []
            case "soak":
                words = [f"{self.hours:g} h of checks without a failure"]
            case "same":
                named = (f"{name} {value}".strip() for name, value in self.facts.items())
                words = [f"the same on all nodes: {', '.join(named)}"]
            case _:
                what = "every pair" if self.require == "pairs" else self.check
                words = [what, self.operation or "", size, where]
                words.append(" and ".join(bounds) or "pass")
        return " ".join(filter(None, words))

    @property
    def name(self) -> str:
        """The check that measures it, as for ``busbar check --name``; may be empty."""
        if self.require == "pairs":
            return "link_matrix_nodes" if self.nodes > 1 else "link_matrix"
        if self.require == "collective":
            check = "xccl_nodes" if self.nodes > 1 else "xccl"
            return f"{check}%size_set={_set_of(self.bytes)}%collective={self.operation}"
        return self.check


class Contract(Record):
    """The requirements for accepting a machine."""

    site: str
    """Name of the site, or its directory."""
    partition: Name | None = None
    """Partition of the site; may be omitted if the site has only one."""
    clauses: Annotated[tuple[Clause, ...], Field(min_length=1)]
    """The requirements."""


def _set_of(nbytes: int | None) -> str | None:
    """Return the smallest set of sizes that contains the size."""
    return next((name for name, each in SIZES.items() if nbytes in (None, *each.judged)), None)


def read(path: Path) -> Contract:
    """Read a contract; raise ``BusbarError`` with file and line."""
    document = Document(path)
    return parse(Contract, document.data, [document])


def load(path: Path) -> tuple[Contract, Site]:
    """Return the site and the contract, which it must be able to test; raise as ``read``."""
    document = Document(path)
    contract = parse(Contract, document.data, [document])
    try:
        site = sites.load(contract.site)
        partition = partition_of(site, "", contract.partition or "")
    except BusbarError as error:
        key = "partition" if error.where == "--partition" else "site"
        raise BusbarError(error.what, where=document.where([key]), hint=error.hint) from error
    found = [
        BusbarError(what, where=document.where(["clauses", number, key]), hint=hint)
        for number, clause in enumerate(contract.clauses)
        for key, what, hint in _wrong(clause, contract.clauses[:number], site, partition.name)
    ]
    if found:
        raise several(found)
    return contract, site


def _wrong(
    clause: Clause, earlier: Sequence[Clause], site: Site, partition: str
) -> Iterator[tuple[str, str, str]]:
    """Yield key, error and hint for clauses that the site cannot test, and for duplicates."""
    most = next(each.nodes for each in site.partitions if each.name == partition)
    if clause.nodes > most:
        yield "nodes", f"{clause.nodes} nodes, and partition {partition} has {most}", "lower it"
    if clause.require == "sweep" and most < 2:
        yield "require", "a sweep requires two nodes", "remove the clause"
    if clause.require == "check":
        yield from _wrong_check(clause)
    for name in clause.facts if clause.require == "same" else ():
        if not any(fnmatchcase(name, known) for known in _TABLES["facts"]):
            yield "facts", f"nodes do not report {name!r}", suggestion(name, _TABLES["facts"])
    if clause.require == "collective" and _set_of(clause.bytes) is None:
        sizes = "use a power of two from 1 MiB to 16 GiB, or omit the key"
        yield "bytes", f"no check measures {format_bytes(clause.bytes or 0)}", sizes
    else:
        yield from _beyond(clause, site, partition)
    if any(_overlap(each, clause) for each in earlier):
        yield "require", "another clause applies to the same readings", "merge the two clauses"


def _wrong_check(clause: Clause) -> Iterator[tuple[str, str, str]]:
    name, several = clause.check.split("%")[0], clause.nodes > 1
    if clause.file:
        if not Path(clause.file).is_file():
            yield "file", f"no such file: {clause.file}", "pass the path of a ReFrame file"
    elif name not in known_checks():
        hint = suggestion(name, known_checks(), "busbar check --list prints the names")
        yield "check", f"unknown check {clause.check!r}", hint
    elif several != any(fnmatchcase(name, known) for known in _TABLES["of several nodes"]):
        what = f"{name} runs on {'one node' if several else 'several nodes'}"
        yield "nodes" if several else "check", what, f"use nodes: {1 if several else 2}"


def _overlap(one: Clause, other: Clause) -> bool:
    """Whether two clauses apply to the same readings or facts."""
    if not one.name or not other.name:
        same = one.require == other.require and not one.name and not other.name
        return same and (one.require != "same" or not one.facts.keys().isdisjoint(other.facts))
    pairs = ((one.name, other.name), (one.nodes, other.nodes))
    open_ended = ((one.bytes, other.bytes), (one.operation, other.operation))
    return all(a == b for a, b in pairs) and all(a == b or not (a and b) for a, b in open_ended)


def _beyond(clause: Clause, site: Site, partition: str) -> Iterator[tuple[str, str, str]]:
    """Yield figures that are undefined, or that no machine can reach."""
    known = expected(site, partition, clause)
    for figure in clause.figures if known else ():
        if figure.of in ("low", "typical") and isinstance(known, NoExpectation):
            what = f"{figure.of} is unknown: {known.what}"
            yield "at_least", what, "use an agreed figure, or a share of the limit"
            continue
        value, limit = figure.among(known), getattr(known, "limit", None)
        if value and limit and value > limit:
            what = f"{figure.text} is more than {limit:.4g} GB/s"
            what += ": no machine with these links can reach it"
            yield "at_least", what, "use a lower figure"


def expected(site: Site, partition: str, clause: Clause) -> Expectation | NoExpectation | None:
    """Return the expectation for a clause, for its slowest pair; None if it has no readings."""
    node = site.node_type(partition)
    question = Question(nbytes=clause.bytes, nodes=clause.nodes, partition=partition)
    questions: Iterable[Question] = ()
    match clause.require:
        case "collective":
            questions = [replace(question, bench=clause.operation or "")]
        case "pairs" if clause.nodes > 1:
            questions = [replace(question, bench="osu_bw", src=0, dst=0, buffers="H H")]
        case "pairs" if node.gpus:
            pairs = permutations(range(node.gpus.count), 2)
            questions = [replace(question, bench="osu_bw", src=a, dst=b) for a, b in pairs]
        case "sweep" if node.nics:
            return NoExpectation("", limit=network(node, link_classes(site)))
    found = [_answer(site, each) for each in questions]
    missing = [each for each in found if isinstance(each, NoExpectation)]
    return min(missing or found, key=lambda each: each.limit or math.inf, default=None)


def _answer(site: Site, question: Question) -> Expectation | NoExpectation:
    """Return the expectation, without bands that are extrapolated from other links or sizes."""
    try:
        known = expect(site, question)
    except NoExpectation as error:
        return error
    if not known.outside and not known.floor:
        return known
    return NoExpectation("no such run has been measured", limit=known.limit, guess=known)


@cache
def known_checks() -> frozenset[str]:
    """The names of Busbar's checks; loading them takes ReFrame seconds."""
    texts = (file.read_text(encoding="utf-8") for file in data.CHECKS.glob("*.py"))
    return frozenset(
        name for text in texts for name in re.findall(r"(?m)^class (?P<name>[a-z]\w*)", text)
    )


def first(site: Site, partition: str, nodes: int) -> str:
    """Return a draft contract for nodes of a partition, with expectations as comments."""
    gpus = site.node_type(partition).gpus
    most = gpus.count if gpus else 0
    counts = [count for count in sorted({1, min(2, nodes), nodes}) if count * most > 1]
    words: dict[str, Any] = {"require": "collective", "operation": "all_reduce", "bytes": "1 GiB"}
    clauses = [Clause(**words, nodes=count) for count in counts]
    clauses[:0] = [Clause(require="pairs")] if most > 1 else []
    text = Path(__file__).with_name("contract.yaml.j2").read_text("utf-8")
    template = Template(text, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    found: str = template.render(
        site=site,
        name=site.name if ships(site) else site.directory,
        partition=partition,
        nodes=nodes,
        figures=[(clause, expected(site, partition, clause)) for clause in clauses],
    )
    return found
