# SPDX-License-Identifier: MIT
"""What the gate knows of a site: its rules, and what each type of node should have and carry.

``busbar gate compile`` writes it to a JSON file, which a prolog reads in no time and without
any library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from pkgutil import get_data
from typing import Any, Literal, NamedTuple

from busbar.boundary import read_text, refuse_foreign_code
from busbar.errors import DAMAGED, file_error, require_known, value_error
from busbar.gate.typed import typed
from busbar.parse.numbers import load_json
from busbar.seal import KEY, refuse_changed, sealed
from busbar.verdict import Verdict, verdict_on_rate

GateMode = Literal["skip", "observe", "enforce"]
GateSeverity = Literal["info", "warning", "critical"]
GateAction = Literal["note", "drain", "reset_gpu", "reboot", "service"]


class CheckFacts(NamedTuple):
    """What is known of a check before it runs."""

    title: str
    severity: GateSeverity
    action: GateAction
    remedy: str


CHECKS: Mapping[str, CheckFacts] = {
    name: CheckFacts(*facts)
    for name, facts in json.loads(get_data(__name__, "checks.json") or "").items()
}
"""Every check: meaning, and the severity and action that a site gets by default."""

SCHEMA = "busbar-gate-site/1"
_MOST_BYTES = 2**26


@dataclass(frozen=True)
class Rule:
    """What the site does about one check; None is the default of the check."""

    mode: GateMode = "observe"
    severity: GateSeverity | None = None
    action: GateAction | None = None


@dataclass(frozen=True)
class MountRule:
    """A file system that must be mounted."""

    path: str
    type: str | None = None
    read_only: bool = False
    free_percent: float | None = None


@dataclass(frozen=True)
class CommandRule:
    """A program of the site that checks the node."""

    name: str
    run: tuple[str, ...]
    seconds: float
    mode: GateMode
    severity: GateSeverity
    remedy: str


@dataclass(frozen=True)
class Rules:
    """The key ``gate`` of the site."""

    checks: Mapping[str, Rule] = field(default_factory=dict)
    mounts: tuple[MountRule, ...] = ()
    commands: tuple[CommandRule, ...] = ()
    driver: str | None = None
    xid_hours: float = 24.0

    def of(self, check: str) -> Rule:
        """Return the rule for a check."""
        return self.checks.get(check, Rule())


@dataclass(frozen=True)
class NodeGpus:
    """The GPUs of a node."""

    vendor: str
    model: str
    count: int
    accelerators: int
    """Those on the bus; more GPUs than these divide them."""
    uniform: bool
    """Whether it does not matter which GPUs of a node are there."""
    nvlinks: tuple[int, ...] = ()
    """Links of each GPU to the others; empty if the site does not say."""


@dataclass(frozen=True)
class NodePort:
    """Network ports of one name."""

    name: str
    count: int
    gbit_per_s: float | None


@dataclass(frozen=True)
class CopyBand:
    """What one direction of one link should carry, in GB/s."""

    low: float | None = None
    """None if no band is known."""
    high: float | None = None
    limit: float | None = None
    floor: bool = False
    """Whether ``low`` is a floor, above which nothing says that it is fast enough."""
    note: str = ""
    """Why no band is known."""
    wrong: bool = False
    """Whether the site cannot be used for it."""

    def verdict(self, gb_per_s: float) -> Verdict:
        """Compare a reading with limit and band."""
        if self.wrong:
            return Verdict.UNKNOWN
        limit = inf if self.limit is None else self.limit
        if self.low is None:
            return Verdict.IMPOSSIBLE if gb_per_s > limit else Verdict.UNJUDGED
        return verdict_on_rate(gb_per_s, limit, self.low, floor=self.floor)

    @property
    def text(self) -> str:
        """The band in words; the limit if there is none."""
        if self.low is not None:
            return f"{self.low:.4g}-{self.high:.4g} GB/s"
        return f"at most {self.limit:.4g} GB/s" if self.limit else ""


@dataclass(frozen=True)
class NodeKind:
    """One type of node; None for what the site does not say."""

    cores: int | None = None
    gpus: NodeGpus | None = None
    ports: tuple[NodePort, ...] = ()
    copies: Mapping[str, CopyBand] = field(default_factory=dict)
    """By buffers, and the number of the GPU that sends and of the one that receives."""


XidKind = Literal["hardware", "driver", "application", "notice", "consequence", "unknown"]


@dataclass(frozen=True)
class Xid:
    """What a code of NVIDIA's driver means, and what to do about it."""

    kind: XidKind
    meaning: str
    action: str


UNKNOWN_XID = Xid("unknown", "not in Busbar's catalog", "look it up in NVIDIA's Xid catalog")


@dataclass(frozen=True)
class GateSite:
    """All of it."""

    name: str
    rules: Rules
    partitions: Mapping[str, str]
    """The type of node of each partition."""
    nodes: Mapping[str, NodeKind]
    xids: Mapping[str, Xid] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The partition of each node that the site lists."""

    @property
    def alike(self) -> bool:
        """Whether all partitions have nodes of one type."""
        return len(set(self.partitions.values())) == 1

    def node(self, partition: str) -> NodeKind:
        """Return the type of node of a partition; of the first one for an empty name.

        Raises ``BusbarError`` for an unknown partition.
        """
        name = partition or next(iter(self.partitions))
        require_known("no partition", name, self.partitions, f"site {self.name}")
        return self.nodes[self.partitions[name]]

    def xid(self, code: int) -> Xid:
        """Return what a code means."""
        return self.xids.get(str(code), UNKNOWN_XID)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield each key whose value nothing in the document explains, or others contradict."""
        for name in self.rules.checks.keys() - CHECKS.keys():
            yield f"rules.checks.{name}", "is not a check"
        for at, mount in enumerate(self.rules.mounts):
            if not mount.path.startswith("/") or not (mount.free_percent or 0) <= 100:
                yield f"rules.mounts.{at}", "is not an absolute path with at most 100 % free"
        for key, known, names in (
            ("partitions", self.nodes, self.partitions.values()),
            ("hosts", self.partitions, self.hosts.values()),
        ):
            if other := set(names) - known.keys():
                yield key, f"{min(other)!a} is missing in the document"
        for name, node in self.nodes.items():
            for key, band in node.copies.items():
                low = band.low or 0
                if not low <= (band.high or low) <= (band.limit or inf):
                    yield f"nodes.{name}.copies.{key}", "has a low above its high or limit"
        if not self.partitions:
            yield "partitions", "is empty"

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return sealed({"schema": SCHEMA, **asdict(self)})


def read(path: Path) -> GateSite:
    """Read what ``busbar gate compile`` wrote; raise ``BusbarError`` for anything else."""
    hint = "write it with busbar gate compile --site NAME"
    damaged = value_error("is not a compiled site ({kind}: {})", path, hint, DAMAGED)
    with file_error("cannot be read", path, hint), damaged:
        raw = load_json(read_text(path, _MOST_BYTES), once=True)
        if raw["schema"] != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        values = {key: value for key, value in raw.items() if key not in ("schema", KEY)}
        site: GateSite = typed(GateSite, values)
        for key, what in site.contradictions():
            raise ValueError(f"{key}: {what}")
        refuse_changed(raw)
    return refuse_foreign_commands(site, path)


def refuse_foreign_commands(site: GateSite, path: Path) -> GateSite:
    """Return the site; raise ``BusbarError`` if another user can change its commands."""
    if site.rules.commands:
        refuse_foreign_code(path)
    return site
