# SPDX-License-Identifier: MIT
"""Versions and topology file that aws-ofi-nccl names."""

from __future__ import annotations

import pytest

from busbar.engine.collect import collect
from busbar.parse.text import Source
from busbar.tools.aws_ofi_nccl import used

FILE = "p4d-24xl-topo.xml"


@pytest.fixture
def named(data):
    """Of the recorded run on two p4d, whose plugin is 1.7.4."""
    return used(collect([Source.from_path(data / "p4d-efa" / "all_reduce_2x8.log")])[0])


def test_what_the_plugin_names(named):
    assert named == {"aws-ofi-nccl": "1.7.4-aws", "topology_file": FILE}


def test_newer_plugins_name_libfabric():
    line = "host:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 1.22\n"
    assert used(collect([Source.from_text("log", line)])[0]) == {"libfabric": "1.22"}
