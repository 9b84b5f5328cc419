# SPDX-License-Identifier: MIT
"""The links of a node: between its GPUs, and on PCI Express."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, model_validator

from busbar.site.record import Record

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Place = Literal["switch", "socket", "node"]
"""What two GPUs on PCI Express share: a switch, only a socket, or only the node."""


class Bundle(Record):
    """Parallel links of one class from one GPU."""

    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""
    count: Count
    """Links, in parallel."""


class Switched(Bundle):
    """Parallel links from one GPU to switches."""

    domain_nodes: Count | None = 1
    """Nodes whose GPUs the same switches connect: 18 in a GB200 NVL72 rack. ``null``: unknown, so
    runs on several nodes have the limit of one domain, and no band."""


class PairLink(Bundle):
    """Parallel links between two GPUs, in both directions."""

    between: tuple[Index, Index]
    """The two GPUs, or packages."""


class PackageLinks(Record):
    """Devices in one package, such as the partitions of an accelerator, and their link class."""

    devices: Annotated[int, Field(ge=2)]
    """Devices of one package."""
    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""


class Links(Record):
    """Links between the GPUs of a node: one of ``switched``, ``all_pairs`` and ``pairs``.

    GPUs with only PCI Express have ``through_host`` instead; if some pairs have a bridge, both
    ``through_host`` and ``pairs``. With ``package`` the links connect packages instead of
    devices: package ``p`` contains the devices ``p * devices`` to ``(p + 1) * devices - 1``.
    """

    switched: Switched | None = None
    """Links of each GPU to a non-blocking switch."""
    all_pairs: Bundle | None = None
    """Links of each GPU to every other GPU."""
    pairs: tuple[PairLink, ...] = ()
    """The pairs with a direct link, each listed once."""
    through_host: bool = False
    """Set if GPUs without a direct link reach each other by their ``host_link``."""
    package: PackageLinks | None = None
    """Set if devices share packages."""

    @model_validator(mode="after")
    def _one_form(self) -> Links:
        forms = [bool(self.switched), bool(self.all_pairs), bool(self.pairs)]
        if sum(forms) != 1 and not (self.through_host and not any(forms)):
            raise ValueError(
                "write exactly one of switched, all_pairs and pairs, or through_host: true"
            )
        if self.through_host and (self.switched or self.all_pairs):
            raise ValueError("through_host needs pairs or nothing else: all GPUs have links")
        pairs = set()
        for link in self.pairs:
            pair = frozenset(link.between)
            if len(pair) != 2:
                raise ValueError(f"pair {list(link.between)} links a GPU to itself")
            if pair in pairs:
                raise ValueError(
                    f"pair {sorted(pair)} is listed twice; a link carries both directions, so"
                    " write each pair once with its count"
                )
            pairs.add(pair)
        return self

    def direct(self, devices: int) -> Iterator[PairLink]:
        """Yield the direct links among ``devices`` GPUs or packages; none with a switch."""
        if self.all_pairs:
            for pair in combinations(range(devices), 2):
                yield PairLink(
                    between=pair, link_class=self.all_pairs.link_class, count=self.all_pairs.count
                )
        yield from self.pairs

    def classes(self) -> set[str]:
        """Return the link classes in use."""
        bundles = [self.switched, self.all_pairs, *self.pairs, self.package]
        return {bundle.link_class for bundle in bundles if bundle}


class PcieSwitch(Record):
    """A PCI Express switch and the devices below it."""

    gpus: tuple[Index, ...] = ()
    """GPUs below it."""
    nics: tuple[str, ...] = ()
    """NICs below it, by name."""
    uplink: Bundle | None = None
    """Links to the root complex; omit them if you do not know: they then limit nothing."""


class Socket(Record):
    """A socket, and what its root complexes reach."""

    gpus: tuple[Index, ...] = ()
    """GPUs that no switch is above."""
    switches: tuple[PcieSwitch, ...] = ()
    """Switches of PCI Express."""
    link: Bundle | None = None
    """Links to each other socket; omit them if you do not know: they then limit nothing."""

    @property
    def all_gpus(self) -> tuple[int, ...]:
        """GPUs of the socket, below switches or not."""
        return (*self.gpus, *(gpu for switch in self.switches for gpu in switch.gpus))
