# SPDX-License-Identifier: MIT
"""aws-ofi-nccl and libfabric, in the wording of plugin 1.5 to 1.20."""

from __future__ import annotations

from busbar.parse.messages import Pattern, pattern

TABLE: tuple[Pattern, ...] = (
    pattern("ofi.init", "NET/OFI Initializing", r"NET/OFI Initializing (\S+ \S+)"),
    pattern("ofi.libfabric", "Using Libfabric", r"NET/OFI Using Libfabric version (\d\S*)"),
    pattern("ofi.loaded", "Loaded net plugin", r"Loaded net plugin (.*Libfabric.*?) \(v"),
    pattern(
        "ofi.cuda-runtime",
        "CUDA runtime version",
        r"NET/OFI Using CUDA runtime version (\d{1,18})",
    ),
    # From 1.13 on, one line names both.
    pattern(
        "ofi.cuda-runtime",
        "Using CUDA driver version",
        r"NET/OFI Using CUDA driver version \d+ with runtime (\d{1,18})",
    ),
    pattern("ofi.aws-options", "NET/OFI Configuring AWS-specific options"),
    pattern(
        "ofi.provider",
        "elected ",
        r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is (\S+))?(?: \(found (\d{1,18})"
        r" nics?\))?",
    ),
    pattern(
        "ofi.no-provider",
        "any optimal provider",
        r"NET/OFI (Could(?: not|n't) find any optimal provider.*)",
    ),
    pattern("ofi.no-provider", "fi_getinfo", r"(provider efa output empty list)"),
    pattern(
        "ofi.topology",
        "NCCL_TOPO_FILE",
        r"NET/OFI (?:Running on (\S+) platform, )?(?:Setting )?NCCL_TOPO_FILE environment variable"
        r"(?: is already set)? to (\S+)",
    ),
    pattern(
        "ofi.topology", "opology file", r"NET/OFI Running on (\S+) platform, topology file (\S+)"
    ),
    pattern("ofi.gdr-off", "disabling GDR", r"NET/OFI (.*disabling GDR)"),
    pattern("ofi.gdr-off", "GDR disabled", r"NET/OFI (GDR disabled on GDR-supported instance .*)"),
    pattern(
        "ofi.gdr-off", "without GPUDirect", r"NET/OFI (Using Libfabric.*without GPUDirect RDMA.*)"
    ),
    pattern(
        "ofi.gdr-off",
        "not support communication",
        r"NET/OFI (Network does not support communication using CUDA buffers.*)",
    ),
    pattern(
        "ofi.gdr-on",
        "supports communication using CUDA buffers",
        r"NET/OFI Network (supports) communication using CUDA buffers",
    ),
    pattern("ofi.gdr-on", "with GPUDirect", r"NET/OFI Using Libfabric.*, (with) GPUDirect RDMA"),
    pattern(
        "ofi.process",
        "NCCLNet device used on",
        r"NET/OFI Process rank (\d{1,18}) started\. NCCLNet device used on (\S+) is (.*?)\.?\s*$",
    ),
    pattern(
        "ofi.completions",
        "Got completions",
        r"NET/OFI Got completions for (\d{1,18}) requests for rank (\d{1,18})",
    ),
    pattern("ofi.warning", "NCCL WARN NET/OFI", r"NCCL WARN NET/OFI (.*\S)"),
    pattern("ofi.warning", "WARN: Function", r"WARN: Function: \S+ Line: \d+: NET/OFI (.*\S)"),
)
MESSAGE_TRANSFER = "INFO: Function: "
"""How the functional tests of the plugin begin their lines when NCCL does not print for them."""
