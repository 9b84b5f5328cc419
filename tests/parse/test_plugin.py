# SPDX-License-Identifier: MIT
"""Versions and topology file that aws-ofi-nccl names, against what a site states."""

from __future__ import annotations

import pytest

from busbar.engine.collect import collect
from busbar.parse.text import Source
from busbar.site.model import Fabric
from busbar.tools.aws_ofi_nccl.plugin import contradictions, used

FILE = "p4d-24xl-topo.xml"


@pytest.fixture
def named(data):
    """Of the recorded run on two p4d, whose plugin is 1.7.4."""
    return used(collect([Source.from_path(data / "p4d-efa" / "all_reduce_2x8.log")])[0])


def test_what_the_plugin_names(named):
    assert named == {"aws-ofi-nccl": "1.7.4-aws", "topology_file": FILE}


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({}, []),
        ({"topology_file": FILE, "versions": {"aws-ofi-nccl": "1.7"}}, []),
        ({"versions": {"aws-ofi-nccl": "1.7.4"}}, []),
        ({"versions": {"aws-ofi-nccl": "1.7.40"}}, ["aws-ofi-nccl is 1.7.4-aws, the site"]),
        ({"versions": {"aws-ofi-nccl": "1.1"}}, ["aws-ofi-nccl is 1.7.4-aws, the site"]),
        ({"versions": {"libfabric": "1.22"}}, ["libfabric is none, the site states 1.22"]),
        ({"topology_file": "p5.48xl-topo.xml"}, [f"the topology file is {FILE}, the site"]),
    ],
)
def test_what_the_site_states_is_asserted(named, stated, says):
    found = list(contradictions(Fabric(provider="efa", rails=4, **stated), named))
    assert len(found) == len(says)
    assert all(sentence.startswith(start) for sentence, start in zip(found, says, strict=True))


def test_newer_plugins_name_libfabric():
    line = "host:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 1.22\n"
    assert used(collect([Source.from_text("log", line)])[0]) == {"libfabric": "1.22"}
