# SPDX-License-Identifier: MIT
"""The kernel log: errors that a driver wrote count, and none that a user can forge."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from busbar.gate.kernel_log import KernelLog, parse, parse_dmesg, read
from busbar.gate.passive import gather
from busbar.gate.run import run
from busbar.gate.site import NodeGpus, NodeKind
from busbar.gate.state import Stated, judge_state

from .node import OLD, UPTIME_S, Node, found, gpu, kmsg, report

pytestmark = pytest.mark.usefixtures("uptime")


def test_dmesg_is_read_as_well_but_proves_nothing(node: Node) -> None:
    """Where `/dev/kmsg` is missing: a line feed in the name of a file begins a line there."""
    text = "[    0.000000] Linux\n[  12.5] NVRM: Xid (PCI:0000:02:00): 48, pid=1\n[ 13.0] other\n"
    log = parse_dmesg(text)
    (error,) = log.errors
    assert (error.kind, error.bus_id, error.code, error.seconds) == ("xid", "0000:02:00", 48, 12.5)
    assert (log.lost_until_s, log.certain) == (None, False)
    assert parse_dmesg("[ 13.0] other\n").lost_until_s == 13.0
    (node.root / "dev/kmsg").unlink()
    node.smi(report(gpu(1, OLD), gpu(2, OLD)))
    node.program("dmesg", f"echo '{text.replace('12.5', f'{UPTIME_S - 60}')}'")
    result = run(node.options())
    assert ("unknown", "gpu_xid", "0000:02:00") in found(result)
    assert not result.drain


XID = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus"
AMD_ERROR = "amdgpu 0000:c1:00.0: amdgpu: "
WRITTEN = (
    XID,
    XID.replace(":00)", ":00 GPU-I:05)"),
    XID.replace("PCI:", ""),
    f"{AMD_ERROR}GPU reset(3) failed",
    f"{AMD_ERROR}socket: 0, die: 0 2 new uncorrectable hardware errors detected in umc block",
)
"""Messages of drivers."""
FORGED = (
    "GPU recovery failed[7]: segfault at 0 ip 0 sp 0 error 6 in a[0+1]",
    "amdgpu 0: x[15309]: segfault at 0 ip 0 sp 0 error 6 in GPU recovery failed[401000+1000]",
    "NVRM: Xid (1) 7[15309]: segfault at 0 ip 0 sp 0 error 6 in a[0+1]",
    "NVRM: Xid (PCI:[7]: segfault at 0 ip 0 sp 0 error 6 in 0000:02:00): 79, x[0+1]",
    f"traps: x[7] trap divide error ip:401000 sp:7ffc0 error:0 in {XID}[0+1]",
    f"x[7]: segfault at 0 ip 0 sp 0 error 6 in a\\x0a{XID}[0+1]",
    f"oom-kill: constraint=CONSTRAINT_NONE,task={XID},pid=7",
    f"{AMD_ERROR} in process bad state pid 7 thread fatal error pid 7)",
    f"{AMD_ERROR}Process information: process Fatal error pid 7 thread bad state pid 7",
    f"{XID} IN=lo OUT= MAC=00:00 SRC=127.0.0.1 DST=127.0.0.1 LEN=84 TOS=0x00",
    f"{XID} IN=p1 OUT= MAC=ff:ff:ff:ff:ff:ff:02:00:00:00:00:01:88:b5 ",
    f"{XID} IN=br0 OUT= PHYSIN=p1 MAC=ff:ff:ff:ff:ff:ff:02:00:00:00:00:01:88:b5 ",
    f"{XID} IN=tun0 OUT= ",
    XID.replace("PCI:", "")[:27]
    + " IN=p1 OUT= MAC source = 02:00 MAC dest = ff:ff proto = 0x88b5",
    f"{XID}, IN= OUT=eth0 ARP HTYPE=1 PTYPE=0x0800 OPCODE=1",
    f"{AMD_ERROR}GPU reset(3) failed IN=lo OUT= MACSRC=00 MACDST=00 MACPROTO=0800",
    XID.replace(" 79,", " 79 x"),
    f"{AMD_ERROR}0 uncorrectable hardware errors detected in umc",
    f"{AMD_ERROR}0 new uncorrectable hardware errors detected in umc",
)
"""Records with text of a user, and counts of zero."""


def test_only_what_a_driver_begins_is_an_error() -> None:
    assert [text for text in WRITTEN if not parse(kmsg(text)).errors] == []
    assert [text for text in FORGED if parse(kmsg(text)) != KernelLog()] == []
    for name in ("IN= OUT= ABC=,", "IN=a OUT= MAC=,", "IN= OUT= ,"):
        named = XID.replace("GPU", f"name={name}")
        assert parse(kmsg(named)).errors, "the name of a process must not hide an error"
    reset = kmsg(f"{AMD_ERROR}GPU reset(3) failed")
    assert not parse(reset.partition("\n")[0]).errors
    assert not parse(reset.replace("pci:0000:c1", "pci:0000:c2")).errors
    assert (
        not parse(kmsg(f"{AMD_ERROR}page fault, process GPU reset(3) failed")).errors[0].text[11:]
    )


def test_a_flood_by_a_job_hides_nothing_unsaid() -> None:
    job, fault = XID.replace(" 79,", " 13,"), f"{AMD_ERROR}page fault"
    forged = f"a[7]: segfault at 0 ip 0 sp 0 error 6 in ;{XID}[0+1]"

    def log(*texts: str) -> KernelLog:
        records = (kmsg(text, 9e4 - number, number=number) for number, text in enumerate(texts))
        return parse("".join(records))

    assert [error.code for error in log(XID, *[job] * 60_000).errors] == [79, 13]
    both = log(f"{AMD_ERROR}GPU reset(3) failed", *[fault] * 9).errors
    assert [error.may_be_a_job for error in both] == [False, True]
    for text in (fault, forged, f"{AMD_ERROR}a", f";{XID[:30]}" * 40):
        begin = time.process_time()
        long = log(XID, *[text] * 60_000)
        assert time.process_time() - begin < 2
        # That the log was not searched as a whole is said.
        assert long.lost_until_s if text.startswith("amdgpu") else long.errors == log(XID).errors


def test_the_devices_of_the_node_are_read_once(node: Node) -> None:
    """Of errors at many addresses, only those of this node count."""
    elsewhere = (XID.replace("0000:", f"{number + 1:04x}:") for number in range(4000))
    records = (kmsg(text, number=number) for number, text in enumerate([XID, *elsewhere]))
    node.write("dev/kmsg", "".join(records))
    begin = time.process_time()
    assert [error.bus_id for error in read(node.root).errors] == ["0000:02:00"]
    assert time.process_time() - begin < 0.5


def test_lines_that_the_log_has_lost_are_reported(node: Node) -> None:
    """They pass no check, so that it resumes no node."""
    assert parse(kmsg("a") + kmsg("b", number=1)).lost_until_s is None
    for text, verdict in (
        (kmsg("a", 30 * 3600, number=7) + kmsg("b", number=8), "unjudged"),
        (kmsg("a", 3600, number=7), "unknown"),
        (kmsg("a", 30 * 3600) + kmsg("b", 3600, number=2), "unknown"),
        (kmsg("a", 3600, number=7) + kmsg(XID.replace(" 79,", " 31,"), number=8), "unknown"),
    ):
        node.write("dev/kmsg", text)
        first = next(each for each in run(node.options()).checks if each.check == "gpu_xid")
        assert str(first.verdict) == verdict, text
        assert "has lost lines" in first.note


def test_a_node_without_gpus_has_no_errors_of_gpus_to_lose(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "dev/kmsg").write_text(kmsg("a", 3600, number=7))
    facts = gather(5, root=tmp_path, nvidia=False)
    gpus = NodeGpus("nvidia", "h100", count=8, accelerators=8, uniform=True)
    for kind, verdict in (
        (NodeKind(), "pass"),
        (NodeKind(gpus=gpus), "unknown"),
        (None, "unknown"),
    ):
        found = judge_state(facts, Stated(node=kind))
        assert [str(row.verdict) for row in found if row.check == "gpu_xid"] == [verdict], kind
