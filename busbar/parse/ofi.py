# SPDX-License-Identifier: MIT
"""Messages of aws-ofi-nccl 1.5 to 1.20 and libfabric."""

from __future__ import annotations

from functools import partial

from busbar.parse.messages import Pattern, pattern

_info = partial(pattern, info=("NET/",))

TABLE: tuple[Pattern, ...] = (
    _info(
        "ofi.init", "NET/OFI Initializing", r"NET/OFI Initializing (?P<name>\S+) (?P<version>\S+)"
    ),
    _info(
        "ofi.libfabric", "Using Libfabric", r"NET/OFI Using Libfabric version (?P<version>\d\S*)"
    ),
    _info("ofi.loaded", "Loaded net plugin", r"Loaded net plugin (?P<name>.*Libfabric.*?) \(v"),
    _info(
        "ofi.cuda-runtime",
        "CUDA runtime version",
        r"NET/OFI Using CUDA runtime version (?P<version>\d{1,18})",
    ),
    # From 1.13 on, one line names both.
    _info(
        "ofi.cuda-runtime",
        "Using CUDA driver version",
        r"NET/OFI Using CUDA driver version \d+ with runtime (?P<version>\d{1,18})",
    ),
    _info("ofi.aws-options", "NET/OFI Configuring AWS-specific options"),
    _info(
        "ofi.provider",
        "elected ",
        r"NET/OFI Selected [Pp]rovider is (?P<provider>[^\s,]+)(?:, fabric is (?P<fabric>\S+))?"
        r"(?: \(found (?P<nics>\d{1,18}) nics?\))?",
    ),
    _info(
        "ofi.no-provider",
        "any optimal provider",
        r"NET/OFI (?P<text>Could(?: not|n't) find any optimal provider.*)",
    ),
    _info("ofi.no-provider", "fi_getinfo", r"(?P<text>provider efa output empty list)"),
    _info(
        "ofi.topology",
        "NCCL_TOPO_FILE",
        r"NET/OFI (?:Running on (?P<instance>\S+) platform, )?(?:Setting )?NCCL_TOPO_FILE"
        r" environment variable(?: is already set)? to (?P<file>\S+)",
    ),
    _info(
        "ofi.topology",
        "opology file",
        r"NET/OFI Running on (?P<instance>\S+) platform, topology file (?P<file>\S+)",
    ),
    _info("ofi.gdr-off", "disabling GDR", r"NET/OFI (?P<text>.*disabling GDR)"),
    _info(
        "ofi.gdr-off",
        "GDR disabled",
        r"NET/OFI (?P<text>GDR disabled on GDR-supported instance .*)",
    ),
    _info(
        "ofi.gdr-off",
        "without GPUDirect",
        r"NET/OFI (?P<text>Using Libfabric.*without GPUDirect RDMA.*)",
    ),
    _info(
        "ofi.gdr-off",
        "not support communication",
        r"NET/OFI (?P<text>Network does not support communication using CUDA buffers.*)",
    ),
    _info(
        "ofi.gdr-on",
        "supports communication using CUDA buffers",
        r"NET/OFI Network supports communication using CUDA buffers",
    ),
    _info("ofi.gdr-on", "with GPUDirect", r"NET/OFI Using Libfabric.*, with GPUDirect RDMA"),
    _info(
        "ofi.process",
        "NCCLNet device used on",
        r"NET/OFI Process rank (?P<rank>\d{1,18}) started\. NCCLNet device used on"
        r" (?P<host>\S+) is (?P<device>.*?)\.?\s*$",
    ),
    _info(
        "ofi.completions",
        "Got completions",
        r"NET/OFI Got completions for (?P<requests>\d{1,18}) requests for rank (?P<rank>\d{1,18})",
    ),
    pattern("ofi.warning", "NCCL WARN NET/OFI", r"NCCL WARN NET/OFI (?P<text>.*\S)"),
    pattern(
        "ofi.warning", "WARN: Function", r"WARN: Function: \S+ Line: \d+: NET/OFI (?P<text>.*\S)"
    ),
)
